"""Trace context that processes exchange."""
