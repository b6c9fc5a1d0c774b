"""A transaction on one PostgreSQL connection: statements by name, batches as arrays.

Used by the driver in `postgres` only. What is asked `later` waits here, BEGIN first of all, and
travels in one flush with the next statement whose answer is needed, or with COMMIT. Small batches
go through prepared statements with one plan for ever; a large one is sent as text and planned by
its own size, because a prepared plan takes every batch for ten rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import psycopg

from penstock.db.postgres.array_literal import array_literal, text_of
from penstock.db.postgres.pipeline import Ask, Wire, prepared, verbatim
from penstock.db.statements import Engine, Statement, load
from penstock.db.store import Row

PREPARED_ROWS_MAX = 32


class DeadConnection(Exception):
    """The connection was gone before the server answered anything: another may be used."""


class Answer:
    """What comes of a statement that was asked for; waits for it when it is looked at."""

    __slots__ = ("_ask", "_tx")

    def __init__(self, tx: PostgresTx, ask: Ask | None) -> None:
        self._tx = tx
        self._ask = ask

    def rows(self) -> list[Row]:
        """The rows of its last text."""
        return [] if self._ask is None else self._tx.answered(self._ask).rows()

    def count(self) -> int:
        """How many rows its last text touched."""
        return 0 if self._ask is None else self._tx.answered(self._ask).count()


class PostgresTx:
    """A transaction on one connection."""

    engine: Engine = "postgres"

    def __init__(
        self,
        wire: Wire,
        injected: int | None,
        *,
        begin: Sequence[str] = (),
        is_single: bool = False,
        sees_all: bool = True,
        wake: Callable[[Iterable[str]], None] | None = None,
    ) -> None:
        """A transaction that opens with `begin`; a `single` one is its only statement."""
        self._wire = wire
        self.sees_all = sees_all
        self._wake = wake
        self._injected = injected
        self._is_single = is_single
        self._is_spent = False
        self._waiting = [verbatim("BEGIN", text) for text in begin]
        self._answers = 0
        self.callbacks: list[Callable[[], None]] = []

    def now(self) -> int:
        """The time this transaction judges by."""
        if self._injected is not None:
            return self._injected
        ask = self._put("now", "SELECT db_now()", {})
        return cast("int", self.answered(ask).rows()[0][0])

    def rows(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> list[Row]:
        """Run a named statement and return the rows of its last text."""
        return self.later(name, params, batch).rows()

    def run(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> int:
        """Run a named statement and return how many rows its last text touched."""
        return self.later(name, params, batch).count()

    def later(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> Answer:
        """Ask for a named statement; it travels with the next one that is waited for."""
        statement = load("postgres")[name]
        bound: dict[str, Any] = dict(params or {})
        bound["now"] = self._injected
        is_one = False
        if statement.batch:
            if not batch:
                return Answer(self, None)
            is_one = len(batch) == 1 and bool(statement.one)
            bound |= _one(statement, batch[0]) if is_one else _many(statement, batch)
        is_small = batch is None or len(batch) <= PREPARED_ROWS_MAX
        ask = None
        for text in statement.one if is_one else statement.texts:
            ask = self._put(name, text, bound, is_small=is_small)
        return Answer(self, ask)

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call once the transaction is durable."""
        self.callbacks.append(call)

    def wake(self, channels: Iterable[str]) -> None:
        """Tell waiters, once the transaction is durable."""
        if self._wake is not None:
            self.callbacks.append(partial(self._wake, list(channels)))

    def answered(self, ask: Ask) -> Ask:
        """The statement, answered: whatever waits is sent first."""
        if ask.result is None:
            self.flush()
        return ask

    def commit(self) -> bool:
        """Send what waits and make it durable; False when the server undid it instead."""
        if not self._answers and all(ask.label == "BEGIN" for ask in self._waiting):
            return True  # nothing was asked for
        if not self._answers:
            self.flush()  # once COMMIT is on its way too, nobody could tell what came of it
        commit = verbatim("COMMIT", "COMMIT")
        self._waiting.append(commit)
        self.flush()
        assert commit.result is not None
        # After an error PostgreSQL turns COMMIT into ROLLBACK, without an error of its own.
        return commit.result.command_status == b"COMMIT"

    def rollback(self) -> None:
        """Undo what was sent, on a connection that still lives."""
        self._waiting.clear()
        if self._answers and not self._is_single and not self._wire.is_dead:
            with contextlib.suppress(psycopg.Error):  # then the connection undoes it by its end
                self._wire.send([verbatim("ROLLBACK", "ROLLBACK")])

    def flush(self) -> None:
        """Send what waits, in order and at once."""
        if not self._waiting:
            return
        asks, self._waiting = self._waiting, []
        try:
            self._send(asks)
        except psycopg.OperationalError as error:
            # A lone statement may have been executed: only inside a transaction nothing is lost.
            if self._wire.is_dead and not self._answers and not self._is_single:
                raise DeadConnection(str(error)) from error
            raise
        finally:
            self._answers += 1

    @property
    def _connection(self) -> psycopg.Connection[Row]:
        """The connection inside this transaction, for who looks behind the statements (tests)."""
        self.flush()
        return self._wire.connection

    def _put(
        self, label: str, text: str, bound: Mapping[str, Any], *, is_small: bool = True
    ) -> Ask:
        self._spend()
        if is_small:
            ask = prepared(label, text, bound)
        else:
            cursor = psycopg.ClientCursor(self._wire.connection)
            ask = verbatim(label, cursor.mogrify(cast("Any", text), bound))
        self._waiting.append(ask)
        return ask

    def _send(self, asks: Sequence[Ask]) -> None:
        self._wire.send(asks)

    def _spend(self) -> None:
        """A single transaction is over after its statement: a second one would be another."""
        if self._is_single:
            assert not self._is_spent, "a single body runs one statement"
            self._is_spent = True


def _many(statement: Statement, batch: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """A batch as arrays, one per column."""
    columns = zip(statement.batch, zip(*batch, strict=True), strict=True)
    return {f"b_{c.name}": array_literal(values, c.type) for c, values in columns}


def _one(statement: Statement, row: Sequence[Any]) -> dict[str, Any]:
    """A batch of one row as its values; as arrays, too, for who looks them up there."""
    bound: dict[str, Any] = {}
    for column, value in zip(statement.batch, row, strict=True):
        bound[f"o_{column.name}"] = text_of(value, column.type)
        if f"b_{column.name}" in statement.arrays:
            bound[f"b_{column.name}"] = array_literal((value,), column.type)
    return bound
