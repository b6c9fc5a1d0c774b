"""Races between statements on a real PostgreSQL, run in chosen orders."""
