"""Use cases inside a transaction that is under way: what they do commits with the rest of it.

client.over(Within(store, tx)).runs.submit(...)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from penstock.db.store import Capabilities, Store, Tx, Waiter

T = TypeVar("T")


class Within:
    """A store whose every transaction is part of one that has begun elsewhere."""

    def __init__(self, store: Store, tx: Tx) -> None:
        self._store = store
        self._tx = tx

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do."""
        return self._store.capabilities

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in the transaction."""
        return body(self._tx)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in the transaction; it is durable when that is."""
        return body(self._tx)

    def reserved(self) -> Store:
        """Not through here."""
        raise AssertionError("inside a transaction there is one connection")

    def scoped(self, customer: int) -> Store:
        """Not through here."""
        raise AssertionError(f"a transaction is confined when it begins ({customer})")

    def wake(self, channels: Iterable[str]) -> None:
        """Tell waiters once the transaction is durable."""
        names = list(channels)
        self._tx.after_commit(lambda: self._store.wake(names))

    def listen(self, channels: Iterable[str]) -> Waiter:
        """Not through here."""
        raise AssertionError(f"nobody waits inside a transaction ({list(channels)})")

    def migrate(self) -> list[str]:
        """Not through here."""
        raise AssertionError("inside a transaction")

    def verify(self) -> list[str]:
        """Names of missing migrations."""
        return self._store.verify()

    def before_close(self, call: Callable[[], None]) -> None:
        """Not through here."""
        raise AssertionError(f"inside a transaction ({call})")

    def close(self) -> None:
        """The store outlives the transaction."""
