"""A transaction on one PostgreSQL connection: statements by name, batches as arrays.

Used by the driver in `postgres` only. Small batches go through prepared statements with one plan
for ever; a large one is sent as text and planned by its own size, because a prepared plan takes
every batch for ten rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import psycopg

from penstock.store.api import Row
from penstock.store.arrays import array_literal
from penstock.store.statements import Engine, load

PREPARED_ROWS_MAX = 32


class PostgresTx:
    """A transaction on one connection."""

    engine: Engine = "postgres"

    def __init__(
        self,
        connection: psycopg.Connection[Row],
        injected: int | None,
        *,
        is_single: bool = False,
        sees_all: bool = True,
        wake: Callable[[Iterable[str]], None] | None = None,
    ) -> None:
        """A transaction on `connection`; a `single` one is its only statement, without BEGIN."""
        self.sees_all = sees_all
        self._wake = wake
        self._connection = connection
        self._injected = injected
        self._is_single = is_single
        self._is_spent = False
        self.callbacks: list[Callable[[], None]] = []

    def now(self) -> int:
        """The time this transaction judges by."""
        if self._injected is not None:
            return self._injected
        self._spend(1)
        row = self._connection.execute("SELECT db_now()", prepare=True).fetchone()
        assert row is not None
        return cast("int", row[0])

    def rows(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> list[Row]:
        """Run a named statement and return the rows of its last text."""
        cursor = self._execute(name, params, batch)
        return [] if cursor is None else cursor.fetchall()

    def run(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> int:
        """Run a named statement and return how many rows its last text touched."""
        cursor = self._execute(name, params, batch)
        return 0 if cursor is None else cursor.rowcount

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
    ) -> psycopg.Cursor[Row] | None:
        statement = load("postgres")[name]
        bound: dict[str, Any] = dict(params or {})
        bound["now"] = self._injected
        if statement.batch:
            if not batch:
                return None
            for column, values in zip(statement.batch, zip(*batch, strict=True), strict=True):
                bound[f"b_{column.name}"] = array_literal(values, column.type)
        self._spend(len(statement.texts))
        cursor = None
        for text in statement.texts:
            if batch is None or len(batch) <= PREPARED_ROWS_MAX:
                cursor = self._connection.execute(text, bound, prepare=True)
            else:
                cursor = psycopg.ClientCursor(self._connection).execute(text, bound)
        return cursor

    def _spend(self, statements: int) -> None:
        """A single transaction is over after its statement: a second one would be another."""
        if self._is_single:
            assert statements == 1, "a single body runs one statement"
            assert not self._is_spent, "a single body runs one statement"
            self._is_spent = True
