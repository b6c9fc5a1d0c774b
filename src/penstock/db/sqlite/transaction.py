"""A transaction on one SQLite connection: statements by name, batches through temporary tables.

Used only by the driver in `sqlite`. Time is bound to every statement, because SQLite has no server
clock: the injected time, else a wall clock that never decreases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from penstock.db.statements import Engine, Statement, batch_table, load
from penstock.db.store import Row

if TYPE_CHECKING:
    import sqlite3


class SqliteResult:
    """The result of a statement."""

    __slots__ = ("_count", "_rows")

    def __init__(self, rows: list[Row], count: int) -> None:
        self._rows = rows
        self._count = count

    def rows(self) -> list[Row]:
        """Return the rows of the statement's last SQL text."""
        return self._rows

    def count(self) -> int:
        """Return the number of rows affected by the statement's last SQL text."""
        return self._count


class SqliteTx:
    """A transaction on one connection."""

    engine: Engine = "sqlite"
    sees_all = True

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Callable[[], int],
        wake: Callable[[Iterable[str]], None] | None = None,
        events: object | None = None,
    ) -> None:
        """Create a transaction on `connection` that takes the time from `clock`."""
        self.events = events
        self._wake = wake
        self._connection = connection
        # Shared by all statements: each result is read completely before the next statement starts.
        self._cursor = connection.cursor()
        self._clock = clock
        self.callbacks: list[Callable[[], None]] = []

    @property
    def database(self) -> object | None:
        """Store that opened the transaction to write; caches of database keys belong to it."""
        return getattr(self._wake, "__self__", None)

    def now(self) -> int:
        """Return the current time of this transaction."""
        return self._clock()

    def rows(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> list[Row]:
        """Run a named statement and return the rows of its last SQL text."""
        cursor = self._execute(name, params, batch)
        return [] if cursor is None else cast("list[Row]", cursor.fetchall())

    def run(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> int:
        """Run a named statement and return the number of rows its last SQL text affected."""
        cursor = self._execute(name, params, batch)
        if cursor is None:
            return 0
        return len(cursor.fetchall()) if cursor.description else cursor.rowcount

    def later(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> SqliteResult:
        """Run a named statement immediately; SQLite has no round trip to save."""
        cursor = self._execute(name, params, batch)
        if cursor is None:
            return SqliteResult([], 0)
        if not cursor.description:
            return SqliteResult([], cursor.rowcount)
        rows = cast("list[Row]", cursor.fetchall())
        return SqliteResult(rows, len(rows))

    def after_commit(self, call: Callable[[], None]) -> None:
        """Register a callback that runs once the transaction is durable."""
        self.callbacks.append(call)

    def wake(self, channels: Iterable[str]) -> None:
        """Wake waiters once the transaction is durable."""
        if self._wake is not None:
            self.callbacks.append(partial(self._wake, list(channels)))

    def _execute(
        self,
        name: str,
        params: Mapping[str, Any] | None,
        batch: Sequence[Sequence[Any]] | None,
    ) -> sqlite3.Cursor | None:
        statement = load("sqlite")[name]
        bound: dict[str, Any] = dict(params) if params else {}
        bound["now"] = self._clock()
        for key, value in bound.items():
            if isinstance(value, (list, tuple)):
                bound[key] = msgspec.json.encode(value).decode()
        if statement.batch:
            if not batch:
                return None
            self._fill(statement, batch)
        cursor = self._cursor
        for text in statement.texts:
            cursor.execute(text, bound)
        return cursor

    def _fill(self, statement: Statement, batch: Sequence[Sequence[Any]]) -> None:
        """Insert the batch into its temporary table.

        Binding costs about a microsecond per value (None and bool more), so a column with the same
        value in every row is set once instead of bound for each row.
        """
        table = batch_table(statement.name)
        self._create(statement, table)
        self._connection.execute(f"DELETE FROM {table}")
        columns = list(zip(*batch, strict=True))
        varying = [i for i, c in enumerate(columns) if c.count(c[0]) != len(c)] or [0]
        names = ", ".join(statement.batch[i].name for i in varying)
        marks = ", ".join("?" * len(varying))
        self._connection.executemany(
            f"INSERT INTO {table} ({names}) VALUES ({marks})",
            zip(*(columns[i] for i in varying), strict=True),
        )
        same = [i for i in range(len(columns)) if i not in varying and columns[i][0] is not None]
        if same:
            names = ", ".join(f"{statement.batch[i].name} = ?" for i in same)
            self._connection.execute(f"UPDATE {table} SET {names}", [columns[i][0] for i in same])

    def _create(self, statement: Statement, table: str) -> None:
        columns = ", ".join(f"{c.name} {c.type}" for c in statement.batch)
        self._connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
        keys = ", ".join(c.name for c in statement.batch if c.key)
        if keys:
            self._connection.execute(
                f"CREATE INDEX IF NOT EXISTS {table}_key ON batch_{statement.name} ({keys})"
            )
