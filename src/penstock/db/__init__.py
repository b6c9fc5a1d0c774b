"""Database access: the store protocol, SQLite and PostgreSQL drivers, statements and migrations."""
