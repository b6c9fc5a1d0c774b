"""Tests of fan-out and fan-in."""
