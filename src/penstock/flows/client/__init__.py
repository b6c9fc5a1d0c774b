"""Use cases of flows: trigger, report, read, cancel."""
