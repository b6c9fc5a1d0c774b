"""Use cases of alerts."""
