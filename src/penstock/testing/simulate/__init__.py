"""Simulated histories of a user's own pipelines under seeded faults."""
