"""Recovery: replays of flows, backfills, cancelling by filter, and what each would affect."""
