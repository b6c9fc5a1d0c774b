"""Bounds on requests: admission, load shedding, sizes and times."""
