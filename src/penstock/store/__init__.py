"""The store: one schema, one set of statements, two engines. Topics hold the verbs."""
