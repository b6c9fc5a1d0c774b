"""Statements of recovery: backfills, recorded durations, matching work."""
