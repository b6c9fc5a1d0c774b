"""Rehearsals (`--dry-run`): a change is made in its transaction and rolled back.

What a rehearsal returns, or the error that it raises, is what the change would have: the same code
runs, with the same checks against the same rows. Nothing is stored, sent or woken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from penstock.db.store import Transactions, Tx

T = TypeVar("T")


class _Finished(Exception):
    """Ends a rehearsed transaction, which rolls it back."""

    def __init__(self, value: Any) -> None:
        self.value = value
        super().__init__("a rehearsal is rolled back")


class RehearsalStore:
    """Transactions whose writes are rolled back."""

    def __init__(self, store: Transactions) -> None:
        self._store = store

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in a read-only transaction."""
        return self._store.read(body)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in a transaction, roll it back and return what `body` returned."""

        def rehearse(tx: Tx) -> T:
            raise _Finished(body(tx))

        try:
            return self._store.write(rehearse)
        except _Finished as end:
            value: T = end.value
            return value

    def wake(self, channels: Iterable[str]) -> None:
        """Do nothing: there is no new work."""
