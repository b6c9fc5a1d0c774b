"""Shipping of the journal and the logs to audit sinks, exactly once for their readers."""
