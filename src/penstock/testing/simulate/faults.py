"""A store that fails the way stores and processes fail, as often as its director says.

`FaultyStore` stands between one simulated process and the real store. Before each transaction it
lets the director run others; then the director may draw a fault: the process dies before, inside or
after the transaction, the answer to a commit gets lost, the store is busy or away, or the engine
asks for the body to be run again. Nothing here knows what the transactions mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from penstock.core.errors import StoreBusy, StoreUnavailable
from penstock.db.scoped import ScopedStore
from penstock.db.statements import Engine
from penstock.db.store import Capabilities, Later, Row, Store, Tx, Waiter

T = TypeVar("T")


class Fault(StrEnum):
    """What may go wrong; the first eight strike a transaction, the rest the world around it."""

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
    """The simulated process died here. Not an Exception: no handler of ours may survive it."""


class _Again(Exception):
    """The engine undid the transaction and wants its body once more (deadlock, serialization)."""


class Director(Protocol):
    """Who decides what happens between and inside transactions."""

    def between(self, actor: str) -> None:
        """Called before a transaction: others may act, time may pass."""
        ...

    def draw(self, actor: str) -> tuple[Fault | None, int]:
        """The fault of the next transaction and, for one inside it, the statement it strikes."""
        ...

    def committed(self, actor: str, statements: Sequence[str]) -> None:
        """Called after each commit, with the names of the statements it ran."""
        ...


class FaultyTx:
    """A transaction that may break at one of its statements."""

    def __init__(self, tx: Tx, strike_at: int, error: BaseException | None) -> None:
        self._tx = tx
        self._strike_at = strike_at
        self._error = error
        self.names: list[str] = []
        self.callbacks: list[Callable[[], None]] = []

    @property
    def engine(self) -> Engine:
        """Which engine runs this transaction."""
        return self._tx.engine

    @property
    def sees_all(self) -> bool:
        """Whether it sees everybody's rows."""
        return self._tx.sees_all

    def now(self) -> int:
        """The time this transaction judges by."""
        return self._tx.now()

    def rows(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> list[Row]:
        """Run a named statement, unless the fault strikes first."""
        self._strike(name)
        return self._tx.rows(name, params, batch)

    def run(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> int:
        """Run a named statement, unless the fault strikes first."""
        self._strike(name)
        return self._tx.run(name, params, batch)

    def later(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> Later:
        """Ask for a named statement, unless the fault strikes first."""
        self._strike(name)
        return self._tx.later(name, params, batch)

    def after_commit(self, call: Callable[[], None]) -> None:
        """Kept until the caller has the answer: a lost answer calls nobody."""
        self.callbacks.append(call)

    def wake(self, channels: Iterable[str]) -> None:
        """Hints are as lost as any other effect of a lost answer."""
        self._tx.wake(channels)

    def strike_late(self) -> None:
        """A fault whose statement never came strikes before the commit."""
        if self._error is not None and len(self.names) <= self._strike_at:
            raise self._error

    def _strike(self, name: str) -> None:
        if self._error is not None and len(self.names) == self._strike_at:
            raise self._error
        self.names.append(name)


class FaultyStore:
    """One process's way to the store."""

    def __init__(self, inner: Store, actor: str, director: Director) -> None:
        self._inner = inner
        self._actor = actor
        self._director = director

    @property
    def capabilities(self) -> Capabilities:
        """What the engine behind can do."""
        return self._inner.capabilities

    def read(self, body: Callable[[Tx], T]) -> T:
        """Read, unless the store is away."""
        self._director.between(self._actor)
        fault, _ = self._director.draw(self._actor)
        if fault in (Fault.UNAVAILABLE, Fault.ERROR_INSIDE, Fault.REPLY_LOST):
            raise StoreUnavailable("simulated: the store is away")
        if fault in (Fault.CRASH_BEFORE, Fault.CRASH_INSIDE, Fault.CRASH_AFTER):
            raise Crash
        if fault is Fault.BUSY:
            raise StoreBusy("simulated: the store is busy")
        return self._inner.read(body)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Write, with whatever the director has in store for this transaction."""
        self._director.between(self._actor)
        fault, strike_at = self._director.draw(self._actor)
        if fault is Fault.CRASH_BEFORE:
            raise Crash
        if fault is Fault.UNAVAILABLE:
            raise StoreUnavailable("simulated: the store is away")
        if fault is Fault.BUSY:
            raise StoreBusy("simulated: the store is busy")
        if fault is Fault.AGAIN:
            self._undone(body, strike_at)
        inside = fault if fault in (Fault.CRASH_INSIDE, Fault.ERROR_INSIDE) else None
        value, tx = self._inner.write(lambda real: _guarded(real, body, inside, strike_at))
        self._director.committed(self._actor, tx.names)
        if fault is Fault.CRASH_AFTER:
            raise Crash
        if fault is Fault.REPLY_LOST:
            raise StoreUnavailable("simulated: the answer to COMMIT got lost", ambiguous=True)
        for call in tx.callbacks:
            call()
        return value

    def reserved(self) -> FaultyStore:
        """The same way: the simulation has one connection."""
        return self

    def scoped(self, customer: int) -> Store:
        """A confined view; its faults are this one's."""
        return ScopedStore(self, customer, read=self.read, write=self.write)

    def wake(self, channels: Iterable[str]) -> None:
        """Hints are lost here: no work may depend on them."""

    def listen(self, channels: Iterable[str]) -> Waiter:
        """A waiter of the real store."""
        return self._inner.listen(channels)

    def migrate(self) -> list[str]:
        """Apply missing migrations."""
        return self._inner.migrate()

    def verify(self) -> list[str]:
        """Names of missing migrations."""
        return self._inner.verify()

    def before_close(self, call: Callable[[], None]) -> None:
        """Never: the real store outlives every process of the simulation."""

    def close(self) -> None:
        """The real store belongs to the simulation."""

    def _undone(self, body: Callable[[Tx], object], strike_at: int) -> None:
        """Run the body, undo it: it must be safe to run again."""
        try:
            self._inner.write(lambda real: _guarded(real, body, Fault.AGAIN, strike_at))
        except _Again:
            return
        raise AssertionError("the undone transaction committed")


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
