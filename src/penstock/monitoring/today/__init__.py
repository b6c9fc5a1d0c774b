"""The work of the current day and its progress: flows, and cohorts of runs."""
