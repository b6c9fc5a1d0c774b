"""Background upkeep: the relay of the outbox, the sealer of the journal, the pruner of the old.

Each is a service with `run_once`; none is on the path of a run, and any number of replicas may go
on at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.audit.store.journal import Message, outbox_take, seal_next
from penstock.bus.store.outbox_publisher import outbox_publish
from penstock.db.store import Store, Tx
from penstock.services.store import CHUNK, Retention, fold, partitions_ensure, prune

CHUNKS_MAX = 50
Subscriber = Callable[[Tx, Sequence[Message]], None]


class Relay:
    """Publishes outbox rows on topics, and tells subscribers, in the transaction that removes them.

    Subscribers are functions of this process; subscriptions of the bus are rows in the store.
    """

    name = "relay"

    def __init__(self, store: Store, *, batch: int = 500) -> None:
        self._store = store
        self._batch = batch
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        """Add a subscriber; what it writes commits with the removal, what it raises undoes it."""
        self._subscribers.append(subscriber)

    def run_once(self) -> int:
        """Relay everything that waits; returns how many messages."""
        total = 0
        while True:
            count, wake = self._store.write(self._step)
            total += count
            if wake:
                self._store.wake(sorted(wake))
            if count < self._batch:
                return total

    def _step(self, tx: Tx) -> tuple[int, set[str]]:
        messages = outbox_take(tx, self._batch)
        for subscriber in self._subscribers if messages else ():
            subscriber(tx, messages)
        return len(messages), outbox_publish(tx, messages)


class Sealer:
    """Seals the journal in blocks, behind every open transaction."""

    name = "sealer"

    def __init__(self, store: Store, *, block: int = 5_000) -> None:
        self._store = store
        self._block = block

    def run_once(self) -> int:
        """Seal everything that can be sealed; returns how many entries."""
        total = 0
        while True:
            count = self._store.write(lambda tx: seal_next(tx, self._block))
            total += count
            if count < self._block:
                return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What a pass of the pruner did."""

    partitions: int = 0
    removed: dict[str, int] = field(default_factory=dict)
    folded_us: int = 0


class Pruner:
    """Keeps hot tables small: partitions ahead, folded sums, retention."""

    name = "pruner"

    def __init__(self, store: Store, *, retention: Retention | None = None) -> None:
        self._store = store
        self._retention = retention or Retention()

    def run_once(self) -> Pruned:
        """One bounded pass: chunks in transactions of their own, until little is left."""
        partitions = self._store.write(partitions_ensure)
        folded_us = self._store.write(fold)
        removed: dict[str, int] = {}
        for _ in range(CHUNKS_MAX):
            part = self._store.write(lambda tx: prune(tx, self._retention))
            for table, count in part.items():
                removed[table] = removed.get(table, 0) + count
            if max(part.values()) < CHUNK:
                break
        return Pruned(partitions=partitions, removed=removed, folded_us=folded_us)
