"""Routes of configs and of the scheduler."""
