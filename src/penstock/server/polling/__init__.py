"""Long polls and group commits of worker calls."""
