"""Lists of runs."""
