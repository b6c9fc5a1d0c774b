"""Tests of flows/explain."""
