"""Live pages: hints about what has changed, and the part of a page that is drawn again."""
