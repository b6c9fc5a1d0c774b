"""Runs: the list, and one run."""
