"""Built-in rules over measurements."""
