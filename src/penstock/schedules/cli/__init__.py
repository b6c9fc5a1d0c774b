"""Commands of configs and pauses."""
