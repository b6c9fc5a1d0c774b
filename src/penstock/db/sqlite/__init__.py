"""SQLite: one file, one writing connection with group commit."""
