"""Targets of a copy: all rows are written to an empty database in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

from penstock.core.clock import WEEK
from penstock.core.errors import Conflict
from penstock.db.copying.source import (
    ROWS,
    TOKEN,
    CopySource,
    postgres_tables,
    sequences,
    sqlite_tables,
)
from penstock.db.postgres_url import connection_options
from penstock.db.sqlite.store import open_connection

PREFILLED: Final = frozenset({"counters"})
"""Tables that migrations fill; their rows are replaced."""
WEEKLY: Final = {"history": "finished_at", "journal": "at", "messages": "published_at",
                 "settled": "at", "execution_log": "completed_at"}  # fmt: skip


def copy_to_postgres(
    url: str, where: str, source: CopySource, on_table: Callable[[str, int], None]
) -> dict[str, int]:
    """Copy everything into an empty, migrated PostgreSQL database, in one transaction."""
    counts: dict[str, int] = {}
    with psycopg.connect(url, **connection_options(url)) as session:
        wanted = _matching(source.tables(), postgres_tables(session))
        _refuse_rows(where, [t for t in wanted if session.execute(_any_row(t)).fetchone()])
        session.execute("ALTER TABLE alerts DISABLE TRIGGER USER")
        _partitions(session, source, wanted)
        for table in PREFILLED:
            session.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
        for table in _in_order(session, wanted):
            columns = wanted[table]
            text = sql.SQL("COPY {} ({}) FROM STDIN").format(
                sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns))
            )
            count = 0
            with session.cursor() as cursor, cursor.copy(text) as stream:
                for row in source.rows(table, columns):
                    stream.write_row(row)
                    count += 1
            _check_count(table, count, session.execute(_count(table)).fetchone())
            counts[table] = count
            on_table(table, count)
        session.execute("ALTER TABLE alerts ENABLE TRIGGER USER")
        numbers = source.numbers()
        for table, column, sequence, _ in sequences(session):
            _set_number(session, (table, column, sequence), numbers.get(table, 0))
        if numbers[TOKEN]:
            session.execute("SELECT setval('token_seq', %s)", (numbers[TOKEN],))
        session.commit()
        session.autocommit = True
        session.execute("ANALYZE")
    return counts


def _set_number(
    session: psycopg.Connection[Any], numbered: tuple[str, str, str], last: int
) -> None:
    table, column, sequence = numbered
    names = (sql.Identifier(column), sql.Identifier(table))
    row = session.execute(sql.SQL("SELECT max({}) FROM {}").format(*names)).fetchone()
    value = max(last, (row and row[0]) or 0)
    if value:
        session.execute("SELECT setval(%s::regclass, %s)", (sequence, value))


def _partitions(
    session: psycopg.Connection[Any], source: CopySource, wanted: dict[str, list[str]]
) -> None:
    """Create the weekly partitions that the rows need."""
    row = session.execute("SELECT db_now()").fetchone()
    now = oldest = int(row[0]) if row else 0
    for table, column in WEEKLY.items():
        if table in wanted:
            times = (one[0] for one in source.rows(table, [f"min({column})"]))
            oldest = min([oldest, *(at for at in times if at is not None)])
    weeks = min((now - oldest) // WEEK + 5, 600)
    session.execute("SELECT ensure_partitions(%s, %s)", (oldest, weeks))


def _in_order(session: psycopg.Connection[Any], wanted: dict[str, list[str]]) -> list[str]:
    """Return the tables, each after those that its foreign keys refer to."""
    needs: dict[str, set[str]] = {table: set() for table in wanted}
    text = (
        "SELECT conrelid::regclass::text, confrelid::regclass::text FROM pg_constraint "
        "WHERE contype = 'f' AND connamespace = current_schema()::regnamespace"
    )
    for table, other in session.execute(text).fetchall():
        if table in needs and other != table:
            needs[table].add(other)
    ordered: list[str] = []
    while needs:
        free = sorted(table for table, others in needs.items() if not others & needs.keys())
        assert free, f"foreign keys form a cycle: {needs}"
        ordered += free
        for table in free:
            del needs[table]
    return ordered


def copy_to_sqlite(
    path: Path, where: str, source: CopySource, on_table: Callable[[str, int], None]
) -> dict[str, int]:
    """Copy everything into an empty, migrated SQLite file, in one transaction."""
    counts: dict[str, int] = {}
    connection = open_connection(path)
    try:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("BEGIN IMMEDIATE")
        wanted = _matching(source.tables(), sqlite_tables(connection))
        _refuse_rows(
            where,
            [
                t
                for t in wanted
                if t not in PREFILLED and _one(connection, f"SELECT 1 FROM {t} LIMIT 1")
            ],
        )
        kept = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        triggers = connection.execute(kept).fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for table, columns in wanted.items():
            connection.execute(f"DELETE FROM {table}")
            marks = ", ".join("?" * len(columns))
            text = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
            counts[table] = 0
            for page in _pages(source.rows(table, columns)):
                connection.executemany(text, page)
                counts[table] += len(page)
            _check_count(table, counts[table], _one(connection, f"SELECT count(*) FROM {table}"))
            on_table(table, counts[table])
        for _, text in triggers:
            connection.execute(text)
        _set_sqlite_numbers(connection, source.numbers())
        connection.execute("COMMIT")
        connection.execute("PRAGMA foreign_keys = ON")
    finally:
        connection.close()
    return counts


def _set_sqlite_numbers(connection: Any, numbers: dict[str, int]) -> None:
    numbered = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%AUTOINCREMENT%'"
    for (table,) in connection.execute(numbered).fetchall():
        connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
        connection.execute(
            "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, numbers.get(table, 0))
        )
    connection.execute(
        "INSERT INTO counters (name, value) VALUES ('token', ?) ON CONFLICT (name) "
        "DO UPDATE SET value = max(counters.value, excluded.value)",
        (numbers[TOKEN],),
    )


def _matching(source: dict[str, list[str]], target: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the tables to copy with their columns, which both databases must have."""
    if source != target:
        names = sorted(
            name
            for name in source.keys() | target.keys()
            if sorted(source.get(name, [])) != sorted(target.get(name, []))
        )
        if names:
            raise Conflict(
                f"the schemas differ in {', '.join(names)}. Run `penstock db migrate` on both."
            )
    return source


def _refuse_rows(where: str, tables: list[str]) -> None:
    found = [table for table in tables if table not in PREFILLED]
    if found:
        raise Conflict(
            f"{where} is not empty: it has rows in {', '.join(found[:5])}. Use an empty database."
        )


def _check_count(table: str, copied: int, found: Sequence[Any] | None) -> None:
    if found is None or found[0] != copied:
        raise Conflict(f"{table}: {copied:,} rows were copied, but the target has {found}.")


def _any_row(table: str) -> sql.Composed:
    return sql.SQL("SELECT 1 FROM {} LIMIT 1").format(sql.Identifier(table))


def _count(table: str) -> sql.Composed:
    return sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table))


def _one(connection: Any, text: str) -> Sequence[Any] | None:
    found: Sequence[Any] | None = connection.execute(text).fetchone()
    return found


def _pages(rows: Iterable[Sequence[Any]]) -> Iterator[list[Sequence[Any]]]:
    page: list[Sequence[Any]] = []
    for row in rows:
        page.append(row)
        if len(page) == ROWS:
            yield page
            page = []
    if page:
        yield page
