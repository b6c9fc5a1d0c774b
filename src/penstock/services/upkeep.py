"""Background upkeep: outbox publisher, journal sealer, pruner of old rows, vacuum of hot tables.

Each is a service with `run_once`; none is on the critical path of a run, and any number of replicas
may run at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, Protocol

from penstock.audit.rows import NewAlert, OutboxMessage
from penstock.audit.store.alerts import alert_open
from penstock.audit.store.journal import (
    outbox_remove,
    outbox_take,
    seal_list,
    seal_read,
    seal_write,
)
from penstock.bus.store.outbox_publisher import outbox_publish
from penstock.core.clock import SECOND, Micros
from penstock.db.isolation import IsolatedBatches
from penstock.db.store import StoreView, Transactions, Tx
from penstock.monitoring.verify.from_rows import seal_record
from penstock.monitoring.verify.records import SealedBlock
from penstock.services.public_messages import public_messages
from penstock.services.store import (
    CHUNK,
    PRUNE_STEPS,
    DeadRows,
    Retention,
    aggregate,
    dead_rows,
    partitions_ensure,
    prune,
)

SEAL_SOON: Final = SECOND
"""Pause of the sealer after a step that sealed a whole block."""
CHUNKS_MAX = 50
DEAD_ROWS_MIN = 20_000
FRUITLESS_PASSES = 60
"""Passes for which the vacuum pauses at most."""
Subscriber = Callable[[Tx, Sequence[OutboxMessage]], None]


class OutboxPublisher:
    """Service that publishes outbox rows on topics and calls subscribers.

    Both happen in the transaction that removes the rows. Subscribers are functions of this process;
    bus subscriptions are rows in the store.
    """

    name = "outbox-publisher"

    def __init__(self, store: Transactions, *, batch: int = 500) -> None:
        self._store = store
        self._batches = IsolatedBatches(store, batch, _unpublishable)
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        """Add a subscriber; its writes commit with the removal, an exception rolls both back."""
        self._subscribers.append(subscriber)

    def run_once(self) -> int:
        """Publish all waiting messages; return their number."""
        total = 0
        while True:
            rows = self._batches.rows
            step = self._batches.write(self._step)
            if step is None:
                continue
            count, wake = step
            total += count
            if wake:
                self._store.wake(sorted(wake))
            if count < rows:
                return total

    def _step(self, tx: Tx) -> tuple[int, set[str]]:
        taken = outbox_take(tx, self._batches.rows)
        ids = [message.outbox_id for message in taken]
        self._batches.trying(ids)
        messages = public_messages(tx, taken)
        self._batches.trying([])  # a subscriber's error is not caused by a message
        for subscriber in self._subscribers if messages else ():
            subscriber(tx, messages)
        self._batches.trying(ids)
        return len(taken), outbox_publish(tx, messages)


def _unpublishable(tx: Tx, outbox_id: int, error: Exception) -> None:
    """Remove an unpublishable message from the outbox; the alert keeps its content."""
    message = outbox_remove(tx, outbox_id)
    if message is None:
        return
    alert_open(
        tx,
        NewAlert(
            rule="outbox_unpublishable",
            dedupe_key=f"outbox_unpublishable:{outbox_id}",
            severity="HIGH",
            subject_kind="outbox",
            subject=outbox_id,
            message=f"A message for topic {message.topic} cannot be published: "
            f"{type(error).__name__}. Its content is in the details of this alert.",
            detail={
                "fix": "penstock topics list",
                "topic": message.topic,
                "payload": message.payload,
                "attributes": message.attributes,
                "error": f"{type(error).__name__}: {error}",
            },
        ),
    )


class HeadsSink(Protocol):
    """Storage outside the database for the heads of sealed blocks."""

    def last_block(self) -> int:
        """Return the number of the last block that it has; 0 if it has none."""
        ...

    def append(self, blocks: Iterable[SealedBlock]) -> int:
        """Store the heads of blocks durably. Return their number."""
        ...


def seal_block(store: Transactions, n: int) -> int:
    """Seal up to `n` further entries as one block. Return how many; 0 also if another process seals
    at the same time.
    """
    while (block := store.read(lambda tx: seal_read(tx, n))) is not None:
        found = block
        sealed = store.write(lambda tx: seal_write(tx, found))  # noqa: B023 - called at once
        if sealed is not None:
            return sealed
    return 0


class SealedEntries(NamedTuple):
    """Number of entries sealed; `next_at` asks for the next step, counted from `now`."""

    entries: int
    next_at: Micros | None = None
    now: Micros = 0


class Sealer:
    """Service that seals the journal in blocks, up to the oldest open transaction.

    While whole blocks accumulate, it seals every SEAL_SOON: hashing a block takes CPU time, and a
    step that seals many of them would slow down workers for seconds.

    heads: sink to which the head of every block is published.
    """

    name = "sealer"

    def __init__(
        self, store: Transactions, *, block: int = 5_000, heads: HeadsSink | None = None
    ) -> None:
        self._store = store
        self._block = block
        self._heads = heads

    def run_once(self) -> SealedEntries:
        """Seal everything that can be sealed."""
        total = 0
        while True:
            count = seal_block(self._store, self._block)
            total += count
            if count < self._block:
                break
        if self._heads is not None:
            self._publish(self._heads)
        return SealedEntries(total, next_at=SEAL_SOON if total >= self._block else None)

    def _publish(self, heads: HeadsSink) -> None:
        """Publish the heads that the sink does not have, including those of other processes."""
        last = heads.last_block()
        while seals := self._store.read(lambda tx, after=last: seal_list(tx, after)):  # type: ignore[misc]
            heads.append([seal_record(seal) for seal in seals])
            last = seals[-1].block


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneCounts:
    """Counts of one pruner pass."""

    partitions: int = 0
    removed: dict[str, int] = field(default_factory=dict)
    folded_us: int = 0


class Pruner:
    """Service that keeps hot tables small: future partitions, aggregated sums, retention."""

    name = "pruner"

    def __init__(self, store: Transactions, *, retention: Retention | None = None) -> None:
        self._store = store
        self._retention = retention or Retention()

    def run_once(self) -> PruneCounts:
        """Make one bounded pass; every chunk is a transaction, repeated until little is left."""
        partitions = self._store.write(partitions_ensure)
        folded_us = self._store.write(aggregate)
        removed: dict[str, int] = {}
        for _ in range(CHUNKS_MAX):
            part: dict[str, int] = {}
            for step in PRUNE_STEPS:
                part |= self._store.write(partial(prune, retention=self._retention, steps=(step,)))
            for table, count in part.items():
                removed[table] = removed.get(table, 0) + count
            if max(part.values()) < CHUNK:
                break
        return PruneCounts(partitions=partitions, removed=removed, folded_us=folded_us)


class Vacuum:
    """Service that vacuums tables as soon as they have many dead rows that can be removed.

    A queue table turns over within seconds, and PostgreSQL's autovacuum checks it once a minute.
    While a session, a standby or a prepared transaction holds a snapshot, a second vacuum would
    remove nothing, so the service waits until the horizon moves. If it cannot see what holds it, it
    detects this from vacuums that removed few rows although the horizon moved, and pauses longer
    after each. A single one proves nothing: a query of a second that was running holds back as much
    under full load.
    """

    name = "vacuum"

    def __init__(self, store: StoreView, *, dead_min: int = DEAD_ROWS_MIN) -> None:
        self._store = store
        self._dead_min = dead_min
        self._horizon: int | None = None
        self._pauses = 0
        self._fruitless = 0

    def run_once(self) -> int:
        """Vacuum the tables that need it; return their number."""
        if self._pauses:
            self._pauses -= 1
            return 0
        found = self._store.read(lambda tx: dead_rows(tx, self._dead_min))
        if not found or (found[0].horizon is not None and found[0].horizon == self._horizon):
            return 0
        self._horizon = found[0].horizon
        self._store.vacuum([row.table for row in found])
        left = {row.table: row for row in self._store.read(lambda tx: dead_rows(tx, 0))}
        is_held = any(row.horizon is not None and row.horizon == self._horizon
                      for row in left.values())  # fmt: skip
        if is_held or any(_has_removed(row, left.get(row.table)) for row in found):
            self._fruitless = 0
        else:
            self._fruitless += 1
            self._pauses = min(2 ** (self._fruitless - 1) - 1, FRUITLESS_PASSES)
        return len(found)


def _has_removed(before: DeadRows, after: DeadRows | None) -> bool:
    """Whether half of the dead rows went; a busy table has new ones by the end of its vacuum."""
    if after is None:
        return True
    removed = before.dead + (after.changed - before.changed) - after.dead
    return removed >= before.dead / 2
