"""Filters of messages by their attributes."""
