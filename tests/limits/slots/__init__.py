"""Tests of limits/slots."""
