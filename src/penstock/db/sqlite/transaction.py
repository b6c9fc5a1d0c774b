"""A transaction on one SQLite connection: statements by name, batches through temporary tables.

Used by the driver in `sqlite` only. Time is bound to every statement, because SQLite has no clock
of its own: the injected time, else the wall clock that never goes back.
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


class Answer:
    """What came of a statement."""

    __slots__ = ("_count", "_rows")

    def __init__(self, rows: list[Row], count: int) -> None:
        self._rows = rows
        self._count = count

    def rows(self) -> list[Row]:
        """The rows of its last text."""
        return self._rows

    def count(self) -> int:
        """How many rows its last text touched."""
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
    ) -> None:
        """A transaction on `connection` that judges by `clock`."""
        self._wake = wake
        self._connection = connection
        # One for all statements: each is read to its end before the next begins.
        self._cursor = connection.cursor()
        self._clock = clock
        self.callbacks: list[Callable[[], None]] = []

    def now(self) -> int:
        """The time this transaction judges by."""
        return self._clock()

    def rows(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> list[Row]:
        """Run a named statement and return the rows of its last text."""
        cursor = self._execute(name, params, batch)
        return [] if cursor is None else cast("list[Row]", cursor.fetchall())

    def run(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> int:
        """Run a named statement and return how many rows its last text touched."""
        cursor = self._execute(name, params, batch)
        if cursor is None:
            return 0
        return len(cursor.fetchall()) if cursor.description else cursor.rowcount

    def later(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> Answer:
        """Run a named statement, at once: there is no way that could be saved."""
        cursor = self._execute(name, params, batch)
        if cursor is None:
            return Answer([], 0)
        if not cursor.description:
            return Answer([], cursor.rowcount)
        rows = cast("list[Row]", cursor.fetchall())
        return Answer(rows, len(rows))

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call once the transaction is durable."""
        self.callbacks.append(call)

    def wake(self, channels: Iterable[str]) -> None:
        """Tell waiters, once the transaction is durable."""
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
        """Put the batch into its temporary table.

        Binding costs about a microsecond a value (None and bool more), so a column that says the
        same in every row is not bound row by row but set once.
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
