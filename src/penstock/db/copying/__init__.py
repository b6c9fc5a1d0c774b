"""The copy of a database into one of the other engine: every row, ids and sequences."""
