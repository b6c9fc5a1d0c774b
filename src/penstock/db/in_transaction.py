"""Use cases inside an open transaction: their changes commit together with it.

client.with_store(InTransaction(store, tx)).runs.submit(...)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from penstock.db.store import Transactions, Tx

T = TypeVar("T")


class InTransaction:
    """Transactions that all join one that is already open."""

    def __init__(self, store: Transactions, tx: Tx) -> None:
        self._store = store
        self._tx = tx

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in the open transaction."""
        return body(self._tx)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in the open transaction; it is durable when that commits."""
        return body(self._tx)

    def wake(self, channels: Iterable[str]) -> None:
        """Wake waiters on the channels after the transaction commits."""
        names = list(channels)
        self._tx.after_commit(lambda: self._store.wake(names))
