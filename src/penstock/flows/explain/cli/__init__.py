"""The commands `explain`, `why` and `trace`."""
