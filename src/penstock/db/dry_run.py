"""Dry runs (`--dry-run`): make a change in a transaction, then roll it back.

A dry run returns the same result, or raises the same error, as the change itself would: it runs the
same code and the same checks against the same rows. It stores and sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from penstock.db.store import Transactions, Tx

T = TypeVar("T")


class _Finished(Exception):
    """Ends the transaction of a dry run, which rolls it back."""

    def __init__(self, value: Any) -> None:
        self.value = value
        super().__init__("a dry run is rolled back")


def is_dry_run(store: Transactions) -> bool:
    """Whether writes are rolled back; use cases with several writes then only count changes."""
    return isinstance(store, DryRunStore)


class DryRunStore:
    """Rolls back every write transaction."""

    def __init__(self, store: Transactions) -> None:
        self._store = store

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in a read-only transaction."""
        return self._store.read(body)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in a transaction, roll it back and return what `body` returned."""

        def dry_run(tx: Tx) -> T:
            raise _Finished(body(tx))

        try:
            return self._store.write(dry_run)
        except _Finished as end:
            value: T = end.value
            return value

    def wake(self, channels: Iterable[str]) -> None:
        """Do nothing: there is no new work."""
