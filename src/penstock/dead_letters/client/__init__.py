"""Use cases of dead letters."""
