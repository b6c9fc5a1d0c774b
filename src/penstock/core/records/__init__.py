"""Records: resources declared once, with their parameters and their validation."""
