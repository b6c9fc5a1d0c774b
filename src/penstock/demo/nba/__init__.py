"""A season of basketball: six phases and grading, over a DuckDB file that is generated."""
