"""Tests of bus/push."""
