"""Commands of dead letters."""
