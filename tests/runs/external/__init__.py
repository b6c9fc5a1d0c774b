"""Tests of runs/external."""
