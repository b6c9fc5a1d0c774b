"""Statements of tracking: executions, ids of one cause, search."""
