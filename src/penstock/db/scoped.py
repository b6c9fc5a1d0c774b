"""A view of a store that is confined to one customer: same connections, same wake-ups.

Drivers build it in their `scoped` with their own way to confine a transaction (PostgreSQL changes
role, which row-level security then judges; SQLite has nothing of the kind and only remembers the
customer). The view owns nothing: closing it does nothing, and it neither migrates nor widens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from penstock.db.store import Capabilities, Store, Tx, Waiter

T = TypeVar("T")


class Run(Protocol):
    """How a driver runs a transaction body, confined or not."""

    def __call__(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in a transaction."""
        ...


class ScopedStore:
    """A store as one customer may use it."""

    def __init__(self, store: Store, customer: int, *, read: Run, write: Run) -> None:
        """A view of `store`; `read` and `write` run confined transactions."""
        self._store = store
        self._read = read
        self._write = write
        self.customer = customer

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do."""
        return self._store.capabilities

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in a read-only transaction that sees one customer."""
        return self._read(body)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in one durable transaction that can touch one customer."""
        return self._write(body)

    def scoped(self, customer: int) -> Store:
        """The same view; never another customer's."""
        assert customer == self.customer, "a confined store stays confined"
        return self

    def reserved(self) -> Store:
        """A view with a connection of its own."""
        return self._store.reserved().scoped(self.customer)

    def wake(self, channels: Iterable[str]) -> None:
        """Tell waiters, in this process and others, that there may be work."""
        self._store.wake(channels)

    def listen(self, channels: Iterable[str]) -> Waiter:
        """A waiter for wake-ups on the channels."""
        return self._store.listen(channels)

    def migrate(self) -> list[str]:
        """Never through here."""
        raise AssertionError("a confined store does not migrate")

    def verify(self) -> list[str]:
        """Names of missing migrations."""
        return self._store.verify()

    def before_close(self, call: Callable[[], None]) -> None:
        """Call before the store itself is closed."""
        self._store.before_close(call)

    def close(self) -> None:
        """The store outlives its views."""


def confining(customer: Any) -> tuple[str, ...]:
    """What follows BEGIN on PostgreSQL; the number is checked, because it becomes text."""
    if isinstance(customer, bool) or not isinstance(customer, int) or customer <= 0:
        raise ValueError(f"a customer's number is a whole number from 1, not {customer!r:.40}")
    return "SET LOCAL ROLE penstock_tenant", f"SET LOCAL penstock.customer = '{customer}'"
