"""Flows, phases, completions and log tables as stored."""
