"""Tests of flows/gates."""
