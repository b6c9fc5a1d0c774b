"""Assembly: the only package that names drivers and builds processes."""
