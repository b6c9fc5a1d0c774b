"""Limits as stored: grants, queues of runs, reads."""
