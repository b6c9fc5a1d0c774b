"""Tests of flows/advance."""
