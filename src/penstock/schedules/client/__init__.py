"""Use cases of configs and pauses."""
