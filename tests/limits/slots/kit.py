"""What the tests of slots share: looking at a limit, and a store whose answers can be held up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from penstock.core.errors import StoreUnavailable
from penstock.db.store import Capabilities, Store, Tx, Waiter
from penstock.limits.store.limits import limit_get
from penstock.limits.store.reads import limit_history, limit_holders, limit_queue

T = TypeVar("T")
WAIT = 30.0


class Sight:
    """A limit as the store has it."""

    def __init__(self, store: Store, name: str) -> None:
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
    """Wait until something holds in the store, which tells nobody when it changes."""
    pause = threading.Event()
    for _ in range(int(WAIT / 0.01)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("waited in vain")


class Troubled:
    """A store whose writes can be held up before they begin, or lose their answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()
        self.lost_answers = 0
        self.refusals = 0

    @property
    def capabilities(self) -> Capabilities:
        return self._store.capabilities

    def read(self, body: Callable[[Tx], T]) -> T:
        return self._store.read(body)

    def write(self, body: Callable[[Tx], T]) -> T:
        self.reached.set()
        assert self.gate.wait(WAIT)
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailable("refused by the test")
        value = self._store.write(body)
        if self.lost_answers:
            self.lost_answers -= 1
            raise StoreUnavailable("lost by the test", ambiguous=True)
        return value

    def wake(self, channels: Iterable[str]) -> None:
        self._store.wake(channels)

    def listen(self, channels: Iterable[str]) -> Waiter:
        return self._store.listen(channels)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
