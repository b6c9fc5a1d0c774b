"""Counts that every process reports for rules: requests, and times of gate checks."""
