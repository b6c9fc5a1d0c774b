"""Tests of service levels."""
