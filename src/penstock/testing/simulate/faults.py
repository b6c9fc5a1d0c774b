"""A store with injected faults of stores and processes; its director decides when.

`FaultyStore` sits between one simulated process and the real store. Before each transaction it lets
the director run other actors. Then the director may draw a fault: the process dies before, inside
or after the transaction, the response to a commit is lost, the store is busy or unreachable, or the
engine requires the body to be run again. The module does not interpret the transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from penstock.core.errors import StoreBusy, StoreUnavailable
from penstock.core.naming import CustomerKey
from penstock.db.scoped import ScopedStore
from penstock.db.statements import Engine
from penstock.db.store import Capabilities, PendingResult, Row, Store, StoreView, Tx, Waiter

T = TypeVar("T")


class Fault(StrEnum):
    """Kinds of faults; the first eight affect a transaction, the others its environment."""

    CRASH_BEFORE = "crash_before"
    CRASH_INSIDE = "crash_inside"
    CRASH_AFTER = "crash_after"
    REPLY_LOST = "reply_lost"
    UNAVAILABLE = "unavailable"
    ERROR_INSIDE = "error_inside"
    BUSY = "busy"
    AGAIN = "again"
    PAUSE = "pause"
    DUPLICATE = "duplicate"
    LATE = "late"
    CLOCK_JUMP = "clock_jump"
    DOWNTIME = "downtime"
    NO_SCHEDULERS = "no_schedulers"


OF_TRANSACTIONS = (
    Fault.CRASH_BEFORE,
    Fault.CRASH_INSIDE,
    Fault.CRASH_AFTER,
    Fault.REPLY_LOST,
    Fault.UNAVAILABLE,
    Fault.ERROR_INSIDE,
    Fault.BUSY,
    Fault.AGAIN,
)
_INSIDE = (Fault.CRASH_INSIDE, Fault.ERROR_INSIDE, Fault.AGAIN)


class Crash(BaseException):
    """The simulated process died here. Not an Exception, so that no handler catches it."""


class _Again(Exception):
    """The engine rolled back and runs the body again (deadlock, serialization failure)."""


class Director(Protocol):
    """Decides what happens between and inside transactions."""

    def between(self, actor: str) -> None:
        """Called before a transaction: other actors may run, and time may pass."""
        ...

    def draw(self, actor: str) -> tuple[Fault | None, int]:
        """Return the next transaction's fault and, for one inside it, the statement it hits."""
        ...

    def committed(self, actor: str, statements: Sequence[str]) -> None:
        """Called after each commit, with the names of the executed statements."""
        ...


class FaultyTx:
    """A transaction that may fail at one of its statements."""

    def __init__(self, tx: Tx, strike_at: int, error: BaseException | None) -> None:
        self._tx = tx
        self._strike_at = strike_at
        self._error = error
        self.names: list[str] = []
        self.callbacks: list[Callable[[], None]] = []

    @property
    def engine(self) -> Engine:
        """Engine that runs this transaction."""
        return self._tx.engine

    @property
    def sees_all(self) -> bool:
        """Whether it sees the rows of all customers."""
        return self._tx.sees_all

    @property
    def events(self) -> object | None:
        """Stream on which facts of this transaction are emitted."""
        return self._tx.events

    def now(self) -> int:
        """Return the current time of this transaction."""
        return self._tx.now()

    def rows(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> list[Row]:
        """Run a named statement, unless the fault occurs first."""
        self._strike(name)
        return self._tx.rows(name, params, batch)

    def run(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> int:
        """Run a named statement, unless the fault occurs first."""
        self._strike(name)
        return self._tx.run(name, params, batch)

    def later(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> PendingResult:
        """Queue a named statement, unless the fault occurs first."""
        self._strike(name)
        return self._tx.later(name, params, batch)

    def after_commit(self, call: Callable[[], None]) -> None:
        """Keep the call until the caller has the response: a lost response runs no calls."""
        self.callbacks.append(call)

    def wake(self, channels: Iterable[str]) -> None:
        """Send wake-ups; a lost response loses them like any other effect."""
        self._tx.wake(channels)

    def strike_late(self) -> None:
        """Raise a fault before the commit if its statement was never reached."""
        if self._error is not None and len(self.names) <= self._strike_at:
            raise self._error

    def _strike(self, name: str) -> None:
        if self._error is not None and len(self.names) == self._strike_at:
            raise self._error
        self.names.append(name)


class FaultyStore:
    """The store as one simulated process sees it."""

    def __init__(self, inner: Store, actor: str, director: Director) -> None:
        self._inner = inner
        self.events = inner.events
        self._actor = actor
        self._director = director

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the engine."""
        return self._inner.capabilities

    def read(self, body: Callable[[Tx], T]) -> T:
        """Read, unless the store is unreachable."""
        self._director.between(self._actor)
        fault, _ = self._director.draw(self._actor)
        if fault in (Fault.UNAVAILABLE, Fault.ERROR_INSIDE, Fault.REPLY_LOST):
            raise StoreUnavailable("simulated: the store is unreachable")
        if fault in (Fault.CRASH_BEFORE, Fault.CRASH_INSIDE, Fault.CRASH_AFTER):
            raise Crash
        if fault is Fault.BUSY:
            raise StoreBusy("simulated: the store is busy")
        return self._inner.read(body)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Write, with the fault that the director drew for this transaction."""
        self._director.between(self._actor)
        fault, strike_at = self._director.draw(self._actor)
        if fault is Fault.CRASH_BEFORE:
            raise Crash
        if fault is Fault.UNAVAILABLE:
            raise StoreUnavailable("simulated: the store is unreachable")
        if fault is Fault.BUSY:
            raise StoreBusy("simulated: the store is busy")
        if fault is Fault.AGAIN:
            self._rolled_back(body, strike_at)
        inside = fault if fault in (Fault.CRASH_INSIDE, Fault.ERROR_INSIDE) else None
        value, tx = self._inner.write(lambda real: _guarded(real, body, inside, strike_at))
        self._director.committed(self._actor, tx.names)
        if fault is Fault.CRASH_AFTER:
            raise Crash
        if fault is Fault.REPLY_LOST:
            raise StoreUnavailable("simulated: the response to COMMIT was lost", ambiguous=True)
        for call in tx.callbacks:
            call()
        return value

    def reserved(self) -> FaultyStore:
        """Return the same store: the simulation has one connection."""
        return self

    def scoped(self, customer: int) -> StoreView:
        """Return a view restricted to a customer, with the same faults."""
        return ScopedStore(self, CustomerKey(customer), read=self.read, write=self.write)

    def wake(self, channels: Iterable[str]) -> None:
        """Drop wake-ups: no work may depend on them."""

    def listen(self, channels: Iterable[str]) -> Waiter:
        """Return a waiter of the real store."""
        return self._inner.listen(channels)

    def migrate(self) -> list[str]:
        """Apply missing migrations."""
        return self._inner.migrate()

    def verify(self) -> list[str]:
        """Return the names of missing migrations."""
        return self._inner.verify()

    def vacuum(self, tables: Sequence[str]) -> None:
        """Do nothing: the simulation owns the real store."""

    def before_close(self, call: Callable[[], None]) -> None:
        """Ignore close hooks: the real store outlives every simulated process."""

    def close(self) -> None:
        """Do nothing: the simulation owns the real store."""

    def _rolled_back(self, body: Callable[[Tx], object], strike_at: int) -> None:
        """Run the body and roll it back: it must be safe to run again."""
        try:
            self._inner.write(lambda real: _guarded(real, body, Fault.AGAIN, strike_at))
        except _Again:
            return
        raise AssertionError("the rolled-back transaction committed")


def _guarded(
    real: Tx, body: Callable[[Tx], T], fault: Fault | None, strike_at: int
) -> tuple[T, FaultyTx]:
    error: BaseException | None = None
    if fault is Fault.CRASH_INSIDE:
        error = Crash()
    elif fault is Fault.ERROR_INSIDE:
        error = StoreUnavailable("simulated: the connection broke inside the transaction")
    elif fault is Fault.AGAIN:
        error = _Again()
    assert (error is not None) == (fault in _INSIDE), fault
    tx = FaultyTx(real, strike_at, error)
    value = body(tx)
    tx.strike_late()
    return value, tx
