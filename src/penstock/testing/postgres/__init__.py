"""Real PostgreSQL servers for tests, launched from binaries."""
