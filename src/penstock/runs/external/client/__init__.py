"""Use cases of external workers: claim, start, heartbeat, complete, fail."""
