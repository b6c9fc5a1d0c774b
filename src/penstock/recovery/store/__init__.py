"""Statements about backfills, recorded durations and what recovery would affect."""
