"""Helpers that tests of several subjects share."""
