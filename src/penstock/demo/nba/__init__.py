"""The nba demo: a pipeline of six phases and grading over a generated DuckDB file."""
