"""Assembly of transports and bridges."""
