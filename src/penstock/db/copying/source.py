"""Sources of a copy: one snapshot of a SQLite file or of a PostgreSQL database."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import psycopg
from psycopg import sql

from penstock.db.postgres_url import connection_options
from penstock.db.sqlite.store import open_connection

ROWS: Final = 5_000
KEPT: Final = frozenset({"schema_migrations", "clusters", "sqlite_sequence"})
"""Tables that describe a database itself; they are not copied."""
TOKEN: Final = "token"  # noqa: S105 - the name of a counter


class CopySource(Protocol):
    """A snapshot of a database."""

    def tables(self) -> dict[str, list[str]]:
        """Return the columns of every table."""
        ...

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Sequence[Any]]:
        """Return the rows of a table."""
        ...

    def numbers(self) -> dict[str, int]:
        """Return the last assigned number of each table and of the fencing tokens."""
        ...


@contextlib.contextmanager
def snapshot_of(place: Path | str) -> Iterator[CopySource]:
    """Open one snapshot of a SQLite file or, by its URL, of a PostgreSQL database."""
    if isinstance(place, Path):
        connection = open_connection(place, read_only=True)
        try:
            connection.execute("BEGIN")
            yield _SqliteSource(connection)
        finally:
            connection.close()
        return
    with psycopg.connect(place, **connection_options(place)) as session:
        session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        session.read_only = True
        yield _PostgresSource(session)
        session.rollback()


class _SqliteSource:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def tables(self) -> dict[str, list[str]]:
        return sqlite_tables(self._connection)

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Sequence[Any]]:
        cursor = self._connection.execute(f"SELECT {', '.join(columns)} FROM {table}")
        while page := cursor.fetchmany(ROWS):
            yield from page

    def numbers(self) -> dict[str, int]:
        given = dict(self._connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
        row = self._connection.execute("SELECT value FROM counters WHERE name = 'token'").fetchone()
        return {**given, TOKEN: row[0] if row else 0}


class _PostgresSource:
    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self._session = session
        row = session.execute("SELECT coalesce(max(cluster), 0) FROM clusters").fetchone()
        self._clusters = (row[0] if row else 0) + 1

    def tables(self) -> dict[str, list[str]]:
        return postgres_tables(self._session)

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Sequence[Any]]:
        shown = [
            sql.SQL("xid::text::bigint") if name == "xid"
            else sql.SQL("cluster - {}").format(self._clusters) if name == "cluster"
            else sql.Identifier(name)
            for name in columns
        ]  # fmt: skip
        text = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(shown), sql.Identifier(table))
        with self._session.cursor(name="copying") as cursor:
            cursor.itersize = ROWS
            cursor.execute(text)
            yield from cursor

    def numbers(self) -> dict[str, int]:
        found = {table: last for table, _, _, last in sequences(self._session)}
        row = self._session.execute(
            "SELECT coalesce(last_value, 0) FROM pg_sequences WHERE sequencename = 'token_seq'"
        ).fetchone()
        return {**found, TOKEN: row[0] if row else 0}


def sequences(session: psycopg.Connection[Any]) -> list[tuple[str, str, str, int]]:
    """Return (table, column, sequence, last number) of every numbered column."""
    text = (
        "SELECT c.table_name::text, c.column_name::text, coalesce(pg_get_serial_sequence("
        "quote_ident(c.table_name), c.column_name), "
        "substring(c.column_default, 'nextval..([a-z_]+)')) "
        "FROM information_schema.columns c JOIN pg_class t ON t.relname = c.table_name "
        "AND t.relnamespace = current_schema()::regnamespace AND NOT t.relispartition "
        "WHERE c.table_schema = current_schema() "
        "AND (c.is_identity = 'YES' OR c.column_default LIKE 'nextval%')"
    )
    last = dict(session.execute("SELECT sequencename, last_value FROM pg_sequences").fetchall())
    return [
        (table, column, name, last.get(name.rpartition(".")[2]) or 0)
        for table, column, name in session.execute(text).fetchall()
    ]


def sqlite_tables(connection: Any) -> dict[str, list[str]]:
    """Return the columns of every table of a SQLite file."""
    text = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1"
    return {
        name: sorted(row[1] for row in connection.execute(f"PRAGMA table_info({name})"))
        for (name,) in connection.execute(text).fetchall()
        if name not in KEPT
    }


def postgres_tables(session: psycopg.Connection[Any]) -> dict[str, list[str]]:
    """Return the columns of every table of a PostgreSQL database."""
    text = (
        "SELECT c.relname::text, a.attname::text FROM pg_class c JOIN pg_attribute a "
        "ON a.attrelid = c.oid WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition "
        "AND c.relnamespace = current_schema()::regnamespace AND a.attnum > 0 "
        "AND NOT a.attisdropped ORDER BY 1, 2"
    )
    found: dict[str, list[str]] = {}
    for table, column in session.execute(text).fetchall():
        if table not in KEPT:
            found.setdefault(table, []).append(column)
    return {table: sorted(columns) for table, columns in found.items()}
