"""Entities that processors changed, and the changes that an incremental processor receives."""
