"""Copying a database to the other engine: all rows, ids and sequences."""
