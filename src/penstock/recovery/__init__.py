"""Recovery: replays of flows, backfills and cancelling by filter, with their blast radius."""
