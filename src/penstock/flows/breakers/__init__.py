"""Breakers: list, explain, reset."""
