"""Tests of egress."""
