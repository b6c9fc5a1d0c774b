"""Isolation of items in services: one bad row, message or customer does not stop the others.

A service works on batches of rows that many customers wrote. `IsolatedBatches` finds the row that
makes a transaction fail: it halves the batch until only that row is left, passes it to the service
to be recorded, skips it for a while, and increases the batch size again. A good batch has no
overhead; a bad row costs a few transactions. `write_isolated` processes items that are already
loaded. `interleaved` puts the first item of every owner before the second item of any owner.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, Generic, TypeVar

from penstock.core.clock import MINUTE, Micros
from penstock.core.errors import StoreError
from penstock.db.store import Transactions, Tx

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

ASIDE_US: Final = MINUTE
ASIDE_MAX: Final = 1_000

log = logging.getLogger(__name__)


class IsolatedBatches(Generic[K]):
    """Transactions over batches of items, each of which may fail; used from one thread."""

    def __init__(
        self, store: Transactions, most: int, on_bad: Callable[[Tx, K, Exception], None]
    ) -> None:
        """`on_bad` records an item that failed by itself; the item is then skipped for a minute."""
        self._store = store
        self._most = most
        self._on_bad = on_bad
        self._items: list[K] = []
        self._aside: dict[K, Micros] = {}
        self.rows = most
        """Number of rows that the next transaction takes."""

    def trying(self, items: Iterable[K]) -> None:
        """Record the items of the transaction before they are processed."""
        self._items = list(items)

    @property
    def has_aside(self) -> bool:
        """Whether any items are set aside; `aside` drops those whose time has passed."""
        return bool(self._aside)

    def aside(self, tx: Tx) -> frozenset[K]:
        """Return the items to skip now; the clock is read only if there are any."""
        if self._aside:
            now = tx.now()
            self._aside = {item: until for item, until in self._aside.items() if until > now}
        return frozenset(self._aside)

    def write(self, body: Callable[[Tx], T]) -> T | None:
        """Run a transaction; return None if it failed. The next one is then smaller or skips the
        item.

        Errors of the database are raised: they are not the fault of an item.
        """
        self._items = []
        try:
            value = self._store.write(body)
        except StoreError:
            raise
        except Exception as error:
            if not self._items:
                raise
            if len(self._items) == 1 or self.rows == 1:
                self._set_aside(self._items, error)
            self.rows = max(1, self.rows // 2)
            return None
        self.rows = min(self._most, self.rows * 2)
        return value

    def _set_aside(self, items: Sequence[K], error: Exception) -> None:
        log.error("%s failed by itself and is skipped for a minute", items, exc_info=error)

        def body(tx: Tx) -> Micros:
            for item in items:
                self._on_bad(tx, item, error)
            return tx.now()

        until = self._store.write(body) + ASIDE_US
        self._aside |= dict.fromkeys(items, until)
        while len(self._aside) > ASIDE_MAX:
            del self._aside[next(iter(self._aside))]


def write_isolated(
    store: Transactions,
    items: Sequence[T],
    act: Callable[[Tx, T], int],
    on_bad: Callable[[T, Exception], None],
) -> int:
    """Process items in order, in one transaction if none fails; return the sum of the results.

    An item that fails as the first of a transaction is passed to `on_bad`; its writes are rolled
    back. Items before a failed one are committed without it.
    """
    done, start, end = 0, 0, len(items)
    while start < len(items):
        tried = -1

        def body(tx: Tx) -> int:
            nonlocal tried
            total = 0
            for tried in range(start, end):  # noqa: B023
                total += act(tx, items[tried])
            return total

        try:
            done += store.write(body)
            start, end = end, len(items)
        except Exception as error:
            if end == start + 1 or tried == start:
                on_bad(items[start], error)
                start, end = start + 1, len(items)
            else:
                end = max(tried, start + 1)
    return done


def interleaved(items: Iterable[T], owner: Callable[[T], Hashable]) -> list[T]:
    """Return the items round-robin: the first of every owner, then the second, and so on."""
    taken: dict[Hashable, int] = {}
    ranked: list[tuple[int, int, T]] = []
    for position, item in enumerate(items):
        name = owner(item)
        rank = taken[name] = taken.get(name, -1) + 1
        ranked.append((rank, position, item))
    return [item for _, _, item in sorted(ranked, key=lambda one: one[:2])]


def shares(items: Iterable[T], owner: Callable[[T], Hashable], most: int, number: int) -> list[T]:
    """Return at most `most` items of each owner, round-robin; `number` rotates which ones.

    This bounds a pass, however many items one owner has.
    """
    own: dict[Hashable, list[T]] = {}
    for item in items:
        own.setdefault(owner(item), []).append(item)
    chosen: list[T] = []
    for mine in own.values():
        start = number * most % len(mine) if len(mine) > most else 0
        chosen += (mine[start:] + mine[:start])[:most]
    return interleaved(chosen, owner)
