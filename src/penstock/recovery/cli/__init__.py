"""Commands of recovery."""
