"""Entities that processors changed, and which of them an incremental processor receives."""
