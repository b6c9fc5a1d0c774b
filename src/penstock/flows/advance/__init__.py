"""Advancing flows: load a snapshot, decide, write the change set."""
