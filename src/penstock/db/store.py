"""The interface between Penstock and its database: stores and transactions.

The subject modules (`runs`, `schedule`, `configs` ...) hold the domain operations as functions over
a `Tx`; services and the client call `store.write(lambda tx: run_claim(tx, ...))`. A transaction
body must be safe to run again: the driver repeats it after a serialization failure, and SQLite may
commit several bodies together. The drivers are `sqlite` and `postgres`; only `assembly` names them.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from penstock.core.clock import SystemClock
from penstock.core.errors import ReadTimeout
from penstock.core.naming import CustomerKey
from penstock.db.statements import Engine

T = TypeVar("T")
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Features in which engines differ. Tests and services check these, never a driver's type."""

    engine: Engine
    concurrent_writers: bool
    cross_process_wake: bool
    partitioned_history: bool
    row_level_security: bool


class PendingResult(Protocol):
    """The future result of a statement; reading it waits for the response."""

    def rows(self) -> list[Row]:
        """Return the rows of the statement's last SQL text."""
        ...

    def count(self) -> int:
        """Return the number of rows affected by the statement's last SQL text."""
        ...


class Tx(Protocol):
    """One transaction. Statements are called by name; `:now` is bound by the store."""

    @property
    def engine(self) -> Engine:
        """The engine that runs this transaction."""
        ...

    @property
    def sees_all(self) -> bool:
        """Whether it sees the rows of all customers; a tenant transaction cannot check limits."""
        ...

    def now(self) -> int:
        """Return the current time of this transaction, in microseconds."""
        ...

    def rows(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> list[Row]:
        """Run a named statement and return the rows of its last SQL text."""
        ...

    def run(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> int:
        """Run a named statement and return the number of rows its last SQL text affected."""
        ...

    def later(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> PendingResult:
        """Run a named statement whose result is not needed immediately, or not at all.

        It is executed in order, before every statement called after it, and at the latest with the
        commit; an engine may send it together with those. An error aborts the transaction as usual,
        but may be raised by the next call or by the commit.
        """
        ...

    def after_commit(self, call: Callable[[], None]) -> None:
        """Register a callback that runs once the transaction is durable; never after a rollback."""
        ...

    def wake(self, channels: Iterable[str]) -> None:
        """Wake waiters once the transaction is durable; there may be work. Best effort."""
        ...

    @property
    def events(self) -> object | None:
        """The stream on which events of this transaction are emitted after its commit."""
        ...


class Single(Generic[T]):
    """A transaction body that runs exactly one statement and does not catch its errors.

    `store.write(Single(body))` has the effect of `store.write(body)`; an engine may omit the round
    trips of BEGIN and COMMIT, because a single statement is its own transaction.
    """

    __slots__ = ("_body",)

    def __init__(self, body: Callable[[Tx], T]) -> None:
        self._body = body

    def __call__(self, tx: Tx) -> T:
        """Run the body."""
        return self._body(tx)


class Transactions(Protocol):
    """The part of a store that a use case needs. A request or an open transaction can provide it
    too.
    """

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in a read-only transaction."""
        ...

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in one durable transaction; it has committed when this returns."""
        ...

    def wake(self, channels: Iterable[str]) -> None:
        """Wake waiters in this and other processes; there may be work. Best effort."""
        ...


class StoreView(Transactions, Protocol):
    """The part of a store for components that did not open it, such as a customer's view."""

    @property
    def capabilities(self) -> Capabilities:
        """The features of this engine."""
        ...

    def listen(self, channels: Iterable[str]) -> Waiter:
        """Return a waiter for wake-ups on the channels."""
        ...

    def reserved(self) -> StoreView:
        """Return a view of this store with its own connection, for heartbeats."""
        ...

    def scoped(self, customer_key: CustomerKey) -> StoreView:
        """Return a view of this store whose transactions are restricted to one customer's rows.

        The engine enforces it if it has row-level security; otherwise the callers' filters are the
        only isolation. The view of a customer cannot be changed to another customer.
        """
        ...

    def vacuum(self, tables: Sequence[str]) -> None:
        """Remove dead row versions of tables, outside a transaction; skips tables in use by others.

        Does nothing on an engine that keeps no dead rows.
        """
        ...

    def before_close(self, call: Callable[[], None]) -> None:
        """Register a hook that runs before the store closes, while it can still be written to."""
        ...


class Store(StoreView, Protocol):
    """A database that holds Penstock's state, for the code that opens, migrates and closes it."""

    events: object | None
    """The stream of events of this process (`audit.telemetry.Events`); None emits nothing."""

    def migrate(self) -> list[str]:
        """Apply missing migrations; return their names."""
        ...

    def verify(self) -> list[str]:
        """Return the names of missing migrations. Raises SchemaMismatch for a foreign schema."""
        ...

    def close(self) -> None:
        """Release every connection; idempotent."""
        ...


class Waiter(Protocol):
    """Waits for a wake-up; a lost one costs latency, never work."""

    def call_on_hint(self, call: Callable[[], None]) -> None:
        """Call a function on each wake-up, from any thread, instead of waiting."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait for a wake-up, at most `seconds`. Return True if one arrived."""
        ...

    def interrupt(self) -> None:
        """Wake this waiter now, from any thread."""
        ...

    def close(self) -> None:
        """Stop listening; idempotent."""
        ...


def one(rows: list[Row]) -> Row:
    """Return the only row of a result that must have exactly one."""
    assert len(rows) == 1, f"expected one row, got {len(rows)}"
    return rows[0]


def first(rows: list[Row]) -> Row | None:
    """Return the first row, or None."""
    return rows[0] if rows else None


_CLOCK = SystemClock()
_READS_END: ContextVar[float | None] = ContextVar("reads_end", default=None)


@contextlib.contextmanager
def read_limit(seconds: float) -> Iterator[None]:
    """Give all reads of this block together a time limit; ReadTimeout ends a read that reaches it.

    Inside another limit, the earlier end applies. Writes have no such limit.
    """
    end, outer = _CLOCK.monotonic() + seconds, _READS_END.get()
    token = _READS_END.set(end if outer is None else min(end, outer))
    try:
        yield
    finally:
        _READS_END.reset(token)


def read_seconds_left() -> float | None:
    """Return how long reads may take; None without a limit. Raise ReadTimeout once it is over."""
    end = _READS_END.get()
    if end is None:
        return None
    left = end - _CLOCK.monotonic()
    if left <= 0:
        raise ReadTimeout
    return left


def is_read_over() -> bool:
    """Whether the time limit of reads has passed."""
    end = _READS_END.get()
    return end is not None and _CLOCK.monotonic() >= end


def are_reads_limited() -> bool:
    """Whether reads have a time limit here."""
    return _READS_END.get() is not None


class ConflictCounter:
    """Number of conflicts between transactions: retries, and waits for a writer. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    def add(self) -> None:
        """Count a conflict."""
        with self._lock:
            self._count += 1

    def count(self) -> float:
        """Return the number of conflicts since the process started."""
        return self._count


CONFLICTS = ConflictCounter()
"""Conflicts of all stores of this process."""
