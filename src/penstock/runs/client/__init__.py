"""Use cases of runs: submit, read, cancel, retry."""
