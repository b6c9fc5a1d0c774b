"""Races between statements on a real PostgreSQL, played out in chosen orders."""
