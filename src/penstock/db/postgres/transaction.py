"""A transaction on one PostgreSQL connection: statements by name, batches as arrays.

Used only by the driver in `postgres`. Statements queued with `later`, and BEGIN before them, are
sent in one flush with the next statement whose result is needed, or with COMMIT. Small batches use
prepared statements with one generic plan; a large batch is sent as text and planned by its own
size, because a generic plan assumes ten rows for every batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import psycopg

from penstock.db.postgres.array_literal import array_literal, text_of
from penstock.db.postgres.pipeline import PipelinedStatement, StatementPipeline, verbatim
from penstock.db.statements import Engine, Statement, load
from penstock.db.store import Row, read_seconds_left

PREPARED_ROWS_MAX = 32


class DeadConnection(Exception):
    """The connection was lost before any response; another one may be used."""


class PostgresResult:
    """The future result of a statement; reading it waits for the response."""

    __slots__ = ("_ask", "_tx")

    def __init__(self, tx: PostgresTx, ask: PipelinedStatement | None) -> None:
        self._tx = tx
        self._ask = ask

    def rows(self) -> list[Row]:
        """Return the rows of the statement's last SQL text."""
        return [] if self._ask is None else self._tx.with_result(self._ask).rows()

    def count(self) -> int:
        """Return the number of rows affected by the statement's last SQL text."""
        return 0 if self._ask is None else self._tx.with_result(self._ask).count()


class PostgresTx:
    """A transaction on one connection."""

    engine: Engine = "postgres"

    def __init__(
        self,
        wire: StatementPipeline,
        injected: int | None,
        *,
        begin: Sequence[str] = (),
        is_single: bool = False,
        sees_all: bool = True,
        wake: Callable[[Iterable[str]], None] | None = None,
        events: object | None = None,
    ) -> None:
        """Create a transaction that opens with `begin`; an `is_single` one has one statement."""
        self._wire = wire
        self.events = events
        self.sees_all = sees_all
        self._wake = wake
        self._injected = injected
        self._is_single = is_single
        self._is_spent = False
        self._waiting = [verbatim("BEGIN", text) for text in begin]
        self._is_snapshot = bool(begin) and "READ ONLY" in begin[0]
        self._now: int | None = None
        self._flushes = 0
        self.callbacks: list[Callable[[], None]] = []

    @property
    def database(self) -> object | None:
        """Store that opened the transaction to write; caches of database keys belong to it."""
        return getattr(self._wake, "__self__", None)

    def now(self) -> int:
        """Return the current time of this transaction; a snapshot asks the server once."""
        if self._injected is not None:
            return self._injected
        if self._now is not None and self._is_snapshot:
            return self._now
        ask = self._put("now", "SELECT db_now()", {})
        self._now = cast("int", self.with_result(ask).rows()[0][0])
        return self._now

    def rows(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> list[Row]:
        """Run a named statement and return the rows of its last SQL text."""
        return self.later(name, params, batch).rows()

    def run(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> int:
        """Run a named statement and return the number of rows its last SQL text affected."""
        return self.later(name, params, batch).count()

    def later(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> PostgresResult:
        """Queue a named statement; it is sent with the next one whose result is needed."""
        statement = load("postgres")[name]
        bound: dict[str, Any] = dict(params or {})
        bound["now"] = self._injected
        is_one = False
        if statement.batch:
            if not batch:
                return PostgresResult(self, None)
            is_one = len(batch) == 1 and bool(statement.one)
            bound |= _one(statement, batch[0]) if is_one else _many(statement, batch)
        is_small = batch is None or len(batch) <= PREPARED_ROWS_MAX
        ask = None
        for text in statement.one if is_one else statement.texts:
            ask = self._put(name, text, bound, is_small=is_small)
        return PostgresResult(self, ask)

    def after_commit(self, call: Callable[[], None]) -> None:
        """Register a callback that runs once the transaction is durable."""
        self.callbacks.append(call)

    def wake(self, channels: Iterable[str]) -> None:
        """Wake waiters once the transaction is durable."""
        if self._wake is not None:
            self.callbacks.append(partial(self._wake, list(channels)))

    def with_result(self, ask: PipelinedStatement) -> PipelinedStatement:
        """Return the statement with its result; sends queued statements first if necessary."""
        if ask.result is None:
            self.flush()
        return ask

    def commit(self) -> bool:
        """Send queued statements and commit. Return False if the server rolled back instead."""
        if not self._flushes and all(ask.label == "BEGIN" for ask in self._waiting):
            return True  # no statement was queued
        if not self._flushes:
            self.flush()  # sent with COMMIT, its outcome could be unknown
        commit = verbatim("COMMIT", "COMMIT")
        self._waiting.append(commit)
        self.flush()
        # After an error PostgreSQL turns COMMIT into ROLLBACK, without reporting an error.
        return commit.arrived().status() == "COMMIT"

    def rollback(self) -> None:
        """Roll back what was sent, if the connection is still alive."""
        self._waiting.clear()
        if self._flushes and not self._is_single and not self._wire.is_dead:
            with contextlib.suppress(
                psycopg.Error
            ):  # the server rolls back when the connection ends
                self._wire.send([verbatim("ROLLBACK", "ROLLBACK")])

    def flush(self) -> None:
        """Send all queued statements, in order, in one flush."""
        if not self._waiting:
            return
        if self._is_snapshot:
            read_seconds_left()  # raises once the limit of the caller's reads is over
        asks, self._waiting = self._waiting, []
        try:
            self._send(asks)
        except psycopg.OperationalError as error:
            # A single statement may have been executed; it can be retried only inside a
            # transaction.
            if self._wire.is_dead and not self._flushes and not self._is_single:
                raise DeadConnection(str(error)) from error
            raise
        finally:
            self._flushes += 1

    @property
    def _connection(self) -> psycopg.Connection[Row]:
        """The connection inside this transaction, for tests that bypass named statements."""
        self.flush()
        return self._wire.connection

    def _put(
        self, label: str, text: str, bound: Mapping[str, Any], *, is_small: bool = True
    ) -> PipelinedStatement:
        self._spend()
        if is_small:
            ask = self._wire.prepared(label, text, bound)
        else:
            cursor = psycopg.ClientCursor(self._wire.connection)
            ask = verbatim(label, cursor.mogrify(cast("Any", text), bound))
        self._waiting.append(ask)
        if not self._wire.is_pipelined:
            self.flush()
        return ask

    def _send(self, asks: Sequence[PipelinedStatement]) -> None:
        self._wire.send(asks)

    def _spend(self) -> None:
        """Check that a single transaction runs only one statement."""
        if self._is_single:
            assert not self._is_spent, "a single body runs one statement"
            self._is_spent = True


def _many(statement: Statement, batch: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Return a batch as arrays, one per column."""
    columns = zip(statement.batch, zip(*batch, strict=True), strict=True)
    return {f"b_{c.name}": array_literal(values, c.type) for c, values in columns}


def _one(statement: Statement, row: Sequence[Any]) -> dict[str, Any]:
    """Return a batch of one row as values, and also as arrays where the text uses them."""
    bound: dict[str, Any] = {}
    for column, value in zip(statement.batch, row, strict=True):
        bound[f"o_{column.name}"] = text_of(value, column.type)
        if f"b_{column.name}" in statement.arrays:
            bound[f"b_{column.name}"] = array_literal((value,), column.type)
    return bound
