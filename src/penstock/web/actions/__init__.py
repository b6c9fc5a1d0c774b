"""Actions on the pages: each is previewed, confirmed and reported."""
