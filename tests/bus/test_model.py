"""Random histories of the bus agree with a model on both engines, and the invariants hold."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.bus.message import ErrorKind
from penstock.bus.store.deliveries import LeasedDelivery, delivery_extend, delivery_release
from penstock.bus.store.replay import delivery_purge
from penstock.core.clock import SECOND
from penstock.core.errors import Conflict
from penstock.db.store import Store
from penstock.testing.clock import VirtualClock
from penstock.testing.memory import memory_store
from tests.bus.world import BusWorld
from tests.conftest import CLOCK_START
from tests.kits.effort import effort

Step = tuple[str, int]
NAMES = (
    "publish", "publish", "publish", "pull", "pull", "pull", "ack", "ack", "nack", "poison",
    "extend", "release", "stale", "advance", "advance", "replay", "seek", "purge",
)  # fmt: skip
steps: st.SearchStrategy[Step] = st.tuples(st.sampled_from(NAMES), st.integers(0, 9))
histories = st.lists(steps, min_size=15, max_size=60)
quiet = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


@dataclass
class Expected:
    """One delivery in the model: what a simple program would keep in a dictionary."""

    key: str | None
    state: str = "ready"
    attempt: int = 0
    epoch: int = 0
    generation: int = 1
    replays: int = 0
    at: int = 0
    due: int = 0
    held: LeasedDelivery | None = None


@dataclass
class Model:
    """The expected state of one subscription; ordered by key if `is_ordered`."""

    is_ordered: bool
    now: int
    rows: dict[int, Expected] = field(default_factory=dict)

    def open(self) -> list[int]:
        """Return the messages that are not settled, in order."""
        return [m for m in sorted(self.rows) if self.rows[m].state in LIVE]

    def settle(self, message: int, state: str) -> None:
        """End a generation and make the next delivery of its key ready."""
        row = self.rows[message]
        row.state, row.held = state, None
        self.promote(row.key)

    def promote(self, key: str | None) -> None:
        """Make the first delivery behind a key ready if none precedes it."""
        if key is None:
            return
        same_key = [m for m in self.open() if self.rows[m].key == key]
        if not same_key or any(self.rows[m].state not in WAITING for m in same_key):
            return
        head = self.rows[same_key[0]]
        if head.state == "following":
            head.state, head.at = "leased", max(head.at, self.now + 60 * SECOND)
        elif head.due > self.now:
            head.state, head.at = "delayed", head.due
        else:
            head.state = "ready"

    def run(self, heads: list[int], n: int) -> list[int]:
        """Return up to `n` messages that follow the heads, every key in turn."""
        keyed = [m for m in heads if self.rows[m].key is not None]
        found: list[tuple[int, int]] = []
        for head in keyed:
            key = self.rows[head].key
            behind = [m for m in self.open() if self.rows[m].key == key and m != head]
            for place, m in enumerate(behind[: -(-4 * n // len(keyed))]):
                if m < head or self.rows[m].state != "behind" or self.rows[m].due > self.now:
                    break
                found.append((place, m))
        return [m for _, m in sorted(found)[:n]]

    def give_back(self, message: int) -> None:
        """Return the deliveries of a run that follow a message; no attempt is counted."""
        key = self.rows[message].key
        for m in self.open():
            row = self.rows[m]
            if m > message and row.key == key and row.state == "following":
                row.state, row.held = "behind", None
                row.attempt -= 1

    def enter(self, message: int, row: Expected) -> None:
        """Add a delivery: behind its key, or ready."""
        taken = row.key is not None and any(self.rows[m].key == row.key for m in self.open())
        row.state = "behind" if taken else "ready"
        self.rows[message] = row
        self.give_back(message)
        for m in self.open():
            other = self.rows[m]
            waits = other.state == "ready" and other.attempt == 0
            if row.key is not None and other.key == row.key and m > message and waits:
                other.state = "behind"
                self.promote(row.key)

    def fail(self, message: int, *, poison: bool) -> None:
        """Fail a delivery that was nacked or lapsed."""
        row = self.rows[message]
        if poison or row.attempt >= 5:
            self.settle(message, "dead_lettered")
            return
        self.give_back(message)
        row.held = None
        row.at = row.due = self.now + min(10 * 2 ** (row.attempt - 1), 600) * SECOND
        row.state = "behind" if row.state == "following" else "delayed"

    def advance(self, seconds: int) -> None:
        """Advance the time: lapsed deliveries are returned, then due ones become ready."""
        self.now += seconds * SECOND
        for m in self.open():
            row = self.rows[m]
            if row.state == "leased" and row.at <= self.now:
                self.give_back(m)
                self.fail(m, poison=False)
        self.due()

    def due(self) -> None:
        """Make due deliveries ready."""
        for m in self.open():
            row = self.rows[m]
            if row.state == "delayed" and row.at <= self.now:
                row.state = "ready"


WAITING = ("behind", "following")
LIVE = ("ready", "leased", "delayed", *WAITING)


class Play:
    """One history on a real store, compared with the model."""

    def __init__(self, world: BusWorld, name: str, *, is_ordered: bool) -> None:
        self.world = world
        self.topic = f"{name}-topic"
        world.topic(self.topic)
        self.sub = world.subscribe(
            name, topic=self.topic, dead_letter_topic="work.dlq", is_ordered=is_ordered
        )
        self.model = Model(is_ordered, world.clock.now())
        self.held: list[LeasedDelivery] = []

    def step(self, name: str, n: int) -> None:
        """Run one step on both, then compare everything."""
        getattr(self, f"do_{name}")(n)
        self.compare()

    def do_publish(self, n: int) -> None:
        """Publish some messages, some with keys."""
        for k in range(n % 3 + 1):
            key = (None, "a", "b", "c")[(n + k) % 4]
            (message,) = self.world.publish(f"{n}", topic=self.topic, ordering_key=key)
            self.model.enter(message, Expected(key if self.model.is_ordered else None))

    def do_pull(self, n: int) -> None:
        """Pull a batch, oldest first, and runs of its keys if it has capacity left.

        Delayed ones become ready only if nothing else is; then there are no runs.
        """
        got = self.world.pull(self.sub, n + 1)
        ready = [m for m in self.model.open() if self.model.rows[m].state == "ready"]
        following: list[int] = []
        if not ready:
            self.model.due()
            ready = [m for m in self.model.open() if self.model.rows[m].state == "ready"]
        elif len(ready) < n + 1:
            following = self.model.run(ready, n + 1 - len(ready))
        assert [h.message_id for h in got] == sorted(ready[: n + 1] + following)
        for leased in got:
            row = self.model.rows[leased.message_id]
            row.at = self.model.now + 60 * SECOND
            row.state = "following" if leased.message_id in following else "leased"
            row.attempt += 1
            row.epoch += 1
            assert (leased.attempt, leased.epoch) == (row.attempt, row.epoch)
            assert (leased.generation, leased.replays) == (row.generation, row.replays)
            row.held = leased
        self.held += got

    def _one(self, n: int) -> LeasedDelivery | None:
        return self.held[n % len(self.held)] if self.held else None

    def _is_current(self, leased: LeasedDelivery) -> bool:
        return self.model.rows[leased.message_id].held is leased

    def do_ack(self, n: int) -> None:
        """Ack a delivery that was leased once, current or not."""
        if (leased := self._one(n)) is None:
            return
        is_current = self._is_current(leased)
        assert self.world.ack(self.sub, leased) == int(is_current)
        if is_current:
            self.model.settle(leased.message_id, "acked")

    def do_nack(self, n: int, *, poison: bool = False) -> None:
        """Nack a delivery."""
        if (leased := self._one(n)) is None:
            return
        is_current = self._is_current(leased)
        kind = ErrorKind.POISON if poison else ErrorKind.TRANSIENT
        refused = self.world.nack(self.sub, leased, kind=kind)
        assert len(refused.tickets) == int(is_current)
        if is_current:
            self.model.fail(leased.message_id, poison=poison)

    def do_poison(self, n: int) -> None:
        """Nack a delivery as poison."""
        self.do_nack(n, poison=True)

    def do_extend(self, n: int) -> None:
        """Extend a deadline."""
        if (leased := self._one(n)) is None:
            return
        ticket, extend = (leased.message_id, leased.epoch), (n + 1) * 20 * SECOND
        done = self.world.write(lambda tx: delivery_extend(tx, self.sub, [ticket], extend))
        assert done == ({ticket} if self._is_current(leased) else set())
        if done:
            self.model.rows[leased.message_id].at = self.model.now + extend

    def do_release(self, n: int) -> None:
        """Release an untried delivery: no attempt is counted, and it does not wait."""
        if (leased := self._one(n)) is None:
            return
        ticket = (leased.message_id, leased.epoch)
        done = self.world.write(lambda tx: delivery_release(tx, self.sub, [ticket]))
        assert done == ({ticket} if self._is_current(leased) else set())
        if done:
            row = self.model.rows[leased.message_id]
            row.state, row.held = "behind" if row.state == "following" else "ready", None
            row.attempt -= 1
            self.model.give_back(leased.message_id)

    def do_stale(self, n: int) -> None:
        """Use an epoch from the future or the past, which changes nothing."""
        if (leased := self._one(n)) is None:
            return
        for epoch in (leased.epoch - 1, leased.epoch + 1 + n):
            if self.model.rows[leased.message_id].epoch != epoch:
                assert self.world.ack(self.sub, leased._replace(epoch=epoch)) == 0

    def do_advance(self, n: int) -> None:
        """Advance by seconds or minutes."""
        seconds = (1, 9, 10, 20, 61)[n % 5]
        self.world.pass_seconds(seconds)
        self.model.advance(seconds)

    def do_replay(self, n: int) -> None:
        """Replay any message: a new generation if it is settled, else a conflict."""
        if not self.model.rows:
            return
        message = sorted(self.model.rows)[n % len(self.model.rows)]
        row = self.model.rows[message]
        if row.state in LIVE or row.replays >= 3:
            with pytest.raises(Conflict):
                self.world.replay(self.sub, message)
            return
        self.world.replay(self.sub, message)
        again = Expected(
            row.key, epoch=row.epoch, generation=row.generation + 1, replays=row.replays + 1
        )
        self.model.enter(message, again)

    def do_seek(self, n: int) -> None:
        """Seek to the beginning: everything settled is delivered again."""
        self.world.seek(self.sub, 0, n + 1)
        for message in sorted(self.model.rows):
            row = self.model.rows[message]
            if row.state not in LIVE:
                again = Expected(
                    row.key, epoch=row.epoch, generation=row.generation + 1, replays=row.replays
                )
                self.model.enter(message, again)

    def do_purge(self, n: int) -> None:
        """Purge the oldest few, leased or not."""
        count = self.world.write(lambda tx: delivery_purge(tx, self.sub, n=n % 3))
        gone = self.model.open()[: n % 3]
        assert count == len(gone)
        for message in gone:
            self.model.settle(message, "purged")

    def compare(self) -> None:
        """Compare the rows with the model, and check the invariants."""
        self.world.checked()
        found = {
            row[0]: (("ready", "leased", "delayed", "behind", "following")[row[1]], row[2], row[3])
            for row in self.world.sql(
                "SELECT message_id, CASE WHEN state = 3 AND until_at IS NOT NULL THEN 4 "
                "ELSE state END, attempt, until_at FROM deliveries "
                f"WHERE subscription = {self.sub.subscription_key}"
            )
        }
        rows = {m: self.model.rows[m] for m in self.model.open()}
        assert found == {
            m: (row.state, row.attempt, row.at if row.state in ("leased", "following") else None)
            for m, row in rows.items()
        }


@contextlib.contextmanager
def memory_world() -> Iterator[BusWorld]:
    """Yield a fresh world in memory."""
    clock = VirtualClock(CLOCK_START)
    store = memory_store(clock)
    try:
        yield BusWorld(store, clock)
    finally:
        store.close()


@given(history=histories, is_ordered=st.booleans())
@settings(quiet, max_examples=effort(20, 40))
def test_agrees_with_the_model(history: list[Step], is_ordered: bool) -> None:
    """For every history, all results and rows equal the model's."""
    with memory_world() as world:
        play = Play(world, "played", is_ordered=is_ordered)
        for name, n in history:
            play.step(name, n)


@pytest.mark.parametrize("is_ordered", [False, True])
def test_on_both_engines(store: Store, clock: VirtualClock, is_ordered: bool) -> None:
    """Run three long histories on each engine."""
    world = BusWorld(store, clock)
    for seed in range(3):
        dice = random.Random(seed)
        play = Play(world, f"played-{seed}", is_ordered=is_ordered)
        for _ in range(50):
            play.step(dice.choice(NAMES), dice.randrange(10))
