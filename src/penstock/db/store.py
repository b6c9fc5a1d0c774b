"""The seam between the product and its database: what a store and a transaction can do.

Topic modules (`runs`, `schedule`, `configs` ...) hold the domain verbs as functions over a `Tx`;
services and the client call `store.write(lambda tx: run_claim(tx, ...))`. A transaction body must
be safe to run again: the driver repeats it after a serialization failure, and SQLite may commit
several bodies together. Drivers live in `sqlite` and `postgres` and are named only by `assembly`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from penstock.db.statements import Engine

T = TypeVar("T")
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do that another cannot; tests and services ask this, never a type."""

    engine: Engine
    concurrent_writers: bool
    cross_process_wake: bool
    partitioned_history: bool
    row_level_security: bool


class Later(Protocol):
    """The answer to a statement that nobody waited for yet; looking at it waits."""

    def rows(self) -> list[Row]:
        """The rows of its last text."""
        ...

    def count(self) -> int:
        """How many rows its last text touched."""
        ...


class Tx(Protocol):
    """One transaction. Statements are called by name; `:now` is bound by the store."""

    @property
    def engine(self) -> Engine:
        """Which engine runs this transaction."""
        ...

    @property
    def sees_all(self) -> bool:
        """Whether it sees everybody's rows; one confined by its engine must not judge them."""
        ...

    def now(self) -> int:
        """The time this transaction judges by, in microseconds."""
        ...

    def rows(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> list[Row]:
        """Run a named statement and return the rows of its last text."""
        ...

    def run(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> int:
        """Run a named statement and return how many rows its last text touched."""
        ...

    def later(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        batch: Sequence[Sequence[Any]] | None = None,
    ) -> Later:
        """Run a named statement whose answer is not needed at once, or not at all.

        It is executed in its place, before every statement called after it, and at the latest
        with the commit; an engine may send it together with those. Its error is the same as ever
        and undoes the transaction, but may be raised by what is called next, or by the commit.
        """
        ...

    def after_commit(self, call: Callable[[], None]) -> None:
        """Call once the transaction is durable (wake-ups, cache fills); never on rollback."""
        ...

    def wake(self, channels: Iterable[str]) -> None:
        """Tell waiters, once the transaction is durable, that there may be work. Best effort."""
        ...


class Single(Generic[T]):
    """A transaction body that promises to run exactly one statement and to catch no error of it.

    `store.write(Single(body))` does what `store.write(body)` does; an engine may leave out the
    round trips of BEGIN and COMMIT, because one statement is a transaction of its own.
    """

    __slots__ = ("_body",)

    def __init__(self, body: Callable[[Tx], T]) -> None:
        self._body = body

    def __call__(self, tx: Tx) -> T:
        """Run the body."""
        return self._body(tx)


class Store(Protocol):
    """A database holding Penstock's state."""

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do."""
        ...

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in a read-only transaction."""
        ...

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in one durable transaction; it has committed when this returns."""
        ...

    def reserved(self) -> Store:
        """A view of this store with a connection of its own, for heartbeats."""
        ...

    def scoped(self, customer: int) -> Store:
        """A view of this store whose every transaction is confined to one customer's rows.

        By the engine itself where it has row-level security; elsewhere the caller's filters are
        all there is.
        """
        ...

    def wake(self, channels: Iterable[str]) -> None:
        """Tell waiters, in this process and others, that there may be work. Best effort."""
        ...

    def listen(self, channels: Iterable[str]) -> Waiter:
        """A waiter for wake-ups on the channels."""
        ...

    def migrate(self) -> list[str]:
        """Apply missing migrations; return their names."""
        ...

    def verify(self) -> list[str]:
        """Names of missing migrations; raises SchemaMismatch when the schema is not ours."""
        ...

    def before_close(self, call: Callable[[], None]) -> None:
        """Call when the store is about to be closed and still can be written to."""
        ...

    def close(self) -> None:
        """Release every connection; idempotent."""
        ...


class Waiter(Protocol):
    """Waits for a wake-up; a lost one costs latency, never work."""

    def wait(self, seconds: float) -> bool:
        """Wait until woken or until `seconds` passed; True when woken."""
        ...

    def interrupt(self) -> None:
        """Wake this waiter now, from any thread."""
        ...

    def close(self) -> None:
        """Stop listening; idempotent."""
        ...


def one(rows: list[Row]) -> Row:
    """The single row of an answer that must have exactly one."""
    assert len(rows) == 1, f"expected one row, got {len(rows)}"
    return rows[0]


def first(rows: list[Row]) -> Row | None:
    """The first row, or None."""
    return rows[0] if rows else None
