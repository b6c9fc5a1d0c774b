"""Tests of bus/incoming."""
