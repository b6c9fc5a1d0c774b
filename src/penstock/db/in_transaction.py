"""Use cases inside an open transaction: their changes commit together with it.

client.over(Within(store, tx)).runs.submit(...)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from penstock.core.naming import CustomerKey
from penstock.db.store import Capabilities, Store, Tx, Waiter

T = TypeVar("T")


class InTransaction:
    """A store whose reads and writes all join a transaction that is already open."""

    def __init__(self, store: Store, tx: Tx) -> None:
        self._store = store
        self._tx = tx

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the underlying engine."""
        return self._store.capabilities

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in the open transaction."""
        return body(self._tx)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in the open transaction; it is durable when that commits."""
        return body(self._tx)

    def reserved(self) -> Store:
        """Not supported inside a transaction."""
        raise AssertionError("a transaction uses one connection")

    def scoped(self, customer_key: CustomerKey) -> Store:
        """Not supported inside a transaction."""
        raise AssertionError(f"scope the store before the transaction (customer {customer_key})")

    def wake(self, channels: Iterable[str]) -> None:
        """Wake waiters on the channels after the transaction commits."""
        names = list(channels)
        self._tx.after_commit(lambda: self._store.wake(names))

    def listen(self, channels: Iterable[str]) -> Waiter:
        """Not supported inside a transaction."""
        raise AssertionError(f"cannot wait inside a transaction ({list(channels)})")

    def migrate(self) -> list[str]:
        """Not supported inside a transaction."""
        raise AssertionError("cannot migrate inside a transaction")

    def verify(self) -> list[str]:
        """Return the names of missing migrations."""
        return self._store.verify()

    def before_close(self, call: Callable[[], None]) -> None:
        """Not supported inside a transaction."""
        raise AssertionError(f"cannot register a close hook inside a transaction ({call})")

    def close(self) -> None:
        """Do nothing: the underlying store outlives the transaction."""
