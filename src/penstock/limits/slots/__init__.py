"""Slots for user code: `limits.slot(name)`, its broker, and retries on quota errors."""
