"""Facts about flows, read in one transaction."""
