"""Tests of generated dashboards and rules."""
