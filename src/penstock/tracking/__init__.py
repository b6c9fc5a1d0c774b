"""Tracking: the execution log, everything that one cause started, and search."""
