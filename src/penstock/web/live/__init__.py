"""Live pages: hints about changes, and the part of a page that is rendered again."""
