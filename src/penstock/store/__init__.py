"""The store: one schema and one set of named statements for two database engines."""
