"""Routes: declared once, bound to use cases, served and described from the declaration."""
