"""Shipping of the journal and the logs to audit sinks; readers see every row exactly once."""
