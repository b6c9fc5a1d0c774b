"""Explaining flows: what happened, why something does not happen, the trace of a cause."""
