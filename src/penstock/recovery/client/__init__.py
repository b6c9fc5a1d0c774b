"""Use cases of recovery: backfills, replays, cancelling by filter."""
