"""Helpers of the slot tests: the stored state of a limit, and a store with injected failures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from penstock.core.errors import StoreUnavailable
from penstock.db.store import Capabilities, Store, Transactions, Tx, Waiter
from penstock.limits.store.limits import limit_get
from penstock.limits.store.reads import limit_history, limit_holders, limit_queue

T = TypeVar("T")
WAIT = 90.0


class StoredLimit:
    """The state of a limit as stored."""

    def __init__(self, store: Transactions, name: str) -> None:
        self.store = store
        self.name = name

    @property
    def limit_id(self) -> int:
        found = self.store.read(lambda tx: limit_get(tx, self.name))
        assert found is not None
        return found.limit_id

    @property
    def holders(self) -> list[str]:
        number = self.limit_id
        return [lease.holder for lease in self.store.read(lambda tx: limit_holders(tx, number))]

    @property
    def waiting(self) -> int:
        number = self.limit_id
        return len(self.store.read(lambda tx: limit_queue(tx, number)))

    @property
    def outcomes(self) -> list[str]:
        number = self.limit_id
        return [note.outcome for note in self.store.read(lambda tx: limit_history(tx, number))]

    @property
    def learned(self) -> float | None:
        found = self.store.read(lambda tx: limit_get(tx, self.name))
        assert found is not None
        return found.learned


def until(condition: Callable[[], bool]) -> None:
    """Poll until a condition on the store holds; the store does not notify of changes."""
    pause = threading.Event()
    for _ in range(int(WAIT / 0.01)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("the condition did not hold in time")


class FaultyStore:
    """A store whose writes can be delayed before they begin, fail, or lose their result."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()
        self.lost_results = 0
        self.failures = 0

    @property
    def capabilities(self) -> Capabilities:
        return self._store.capabilities

    def read(self, body: Callable[[Tx], T]) -> T:
        return self._store.read(body)

    def write(self, body: Callable[[Tx], T]) -> T:
        self.reached.set()
        assert self.gate.wait(WAIT)
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("failed by the test")
        value = self._store.write(body)
        if self.lost_results:
            self.lost_results -= 1
            raise StoreUnavailable("lost by the test", ambiguous=True)
        return value

    def wake(self, channels: Iterable[str]) -> None:
        self._store.wake(channels)

    def listen(self, channels: Iterable[str]) -> Waiter:
        return self._store.listen(channels)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
