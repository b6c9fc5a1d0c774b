"""Simulated publishers, consumers and operators of the bus, on virtual time.

Publishers repeat requests without a response under the same dedupe ids. Consumers ack, nack,
extend, release, drop messages, die while holding them, and ack messages they no longer hold.
Operators replay, seek, purge, pause and change subscriptions in the meantime.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol

from penstock.bus.message import ErrorKind, NewMessage, SubscriptionSpec, TopicSpec
from penstock.bus.store import deliveries, messages, replay, topics
from penstock.bus.store.deliveries import DeliveryNack, LeasedDelivery
from penstock.bus.store.topics import SubscriptionRow
from penstock.core.clock import HOUR, SECOND
from penstock.core.errors import Conflict, NotFound, StoreError
from penstock.db.store import Tx
from penstock.testing.simulate.actors import Actor, Stage
from penstock.testing.simulate.faults import Fault
from penstock.testing.simulate.violation import Violation
from tests.harness.invariants_bus import BusChecks

TOPIC: Final = "events"
DEAD: Final = "events.dlq"
SPECS: Final = (
    SubscriptionSpec(name="plain", topic=TOPIC, dead_letter_topic=DEAD),
    SubscriptionSpec(name="ordered", topic=TOPIC, dead_letter_topic=DEAD, is_ordered=True),
    SubscriptionSpec(name="endless", topic=TOPIC, max_backoff_us=60 * SECOND),
    SubscriptionSpec(name="dead-letters", topic=DEAD),
)


class BusStage(Stage, Protocol):
    """What an actor can access of a history of the bus."""

    checks: BusChecks


def declare(tx: Tx) -> list[SubscriptionRow]:
    """Declare the topics and subscriptions of a history."""
    for name in (TOPIC, DEAD):
        topics.topic_declare(tx, TopicSpec(name=name))
    return [topics.subscription_declare(tx, spec) for spec in SPECS]


class Publisher(Actor):
    """Publishes small batches; repeats a batch without a response under the same ids."""

    kind = "publisher"

    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(stage, name, 60 * SECOND)
        self._count = 0
        self._pending: list[NewMessage] = []

    def step(self) -> None:
        """Publish the next batch, or the last one again."""
        rng = self.stage.rng
        if self.is_recovering and not self._pending:
            return
        if not self._pending:
            for _ in range(rng.randint(1, 3)):
                self._count += 1
                mark = f"{self.name}-{self._count}"
                self._pending.append(
                    NewMessage(
                        data=mark.encode(),
                        attributes={"once": mark},
                        ordering_key=rng.choice((None, "a", "a", "b", "c")),
                        dedupe_id=mark,
                    )
                )
        batch = self._pending
        done = self.store.write(lambda tx: messages.message_publish(tx, TOPIC, batch))
        self.stage.accepted += done.message_ids
        if self.stage.fault_occurs(Fault.DUPLICATE, 0.1):
            again = self.store.write(lambda tx: messages.message_publish(tx, TOPIC, batch))
            if again.message_ids != done.message_ids or again.new:
                raise Violation("I11", f"{again} is not {done}")
        self._pending = []


class Consumer(Actor):
    """Pulls messages and performs random actions on the ones it holds."""

    kind = "consumer"

    def __init__(self, stage: BusStage, name: str, subscription: str) -> None:
        super().__init__(stage, name, 20 * SECOND)
        self._subscription = subscription
        self._checks = stage.checks
        self.start()

    def start(self) -> None:
        """Start a new process without messages; the leases of the old one expire."""
        self.held: list[LeasedDelivery] = []
        self.spent: list[LeasedDelivery] = []

    def step(self) -> None:
        """Perform one action; during recovery, pull and ack."""
        sub = self.store.read(lambda tx: topics.subscription_get(tx, self._subscription))
        if self.is_recovering:
            self._settle(sub, self._pull(sub))
            return
        rng = self.stage.rng
        action = rng.choice(
            ("pull", "pull", "ack", "ack", "nack", "nack", "nack", "extend", "release", "forget",
             "late")
        )  # fmt: skip
        if action == "pull":
            self.held += self._pull(sub)
        elif action == "late" and self.spent:
            late = [rng.choice(self.spent)]
            rng.choice((self._settle, self._refuse, self._release))(sub, late)
        elif self.held:
            some = [self.held.pop(rng.randrange(len(self.held)))]
            self.spent = [*self.spent[-5:], *some]
            if action == "ack":
                self._settle(sub, some)
            elif action == "nack":
                self._refuse(sub, some)
            elif action == "extend":
                self._extend(sub, some)
            elif action == "release":
                self._release(sub, some)

    def _pull(self, sub: SubscriptionRow) -> list[LeasedDelivery]:
        n = self.stage.rng.randint(1, 6)
        got = self.store.write(lambda tx: deliveries.delivery_pull(tx, sub, n, self.name))
        ids = [one.message_id for one in got]
        if len(ids) > n or ids != sorted(set(ids)):
            raise Violation("I9", f"a pull of {n} is not in publish order: {ids}")
        return got

    def _settle(self, sub: SubscriptionRow, some: list[LeasedDelivery]) -> None:
        tickets = [(one.message_id, one.epoch) for one in some]
        self._checks.acks |= {(sub.subscription_key, *ticket) for ticket in tickets}
        done = self.store.write(lambda tx: deliveries.delivery_ack(tx, sub, tickets))
        if not done <= set(tickets):
            raise Violation("I4", f"{tickets} settled {done}")

    def _refuse(self, sub: SubscriptionRow, some: list[LeasedDelivery]) -> None:
        rng = self.stage.rng
        kind = rng.choice((ErrorKind.TRANSIENT, ErrorKind.POISON))
        refusals = [
            DeliveryNack(one.message_id, one.epoch, kind, "Boom", "simulated") for one in some
        ]
        self._checks.nacks |= {(sub.subscription_key, one.message_id, one.epoch) for one in some}
        self.store.write(lambda tx: deliveries.delivery_nack(tx, sub, refusals, rng.random))

    def _release(self, sub: SubscriptionRow, some: list[LeasedDelivery]) -> None:
        """Release messages as if they had not been pulled."""
        tickets = [(one.message_id, one.epoch) for one in some]
        self._checks.releases |= {(sub.subscription_key, *ticket) for ticket in tickets}
        self.store.write(lambda tx: deliveries.delivery_release(tx, sub, tickets))

    def _extend(self, sub: SubscriptionRow, some: list[LeasedDelivery]) -> None:
        tickets = [(one.message_id, one.epoch) for one in some]
        length = self.stage.rng.choice((1, 30, 600)) * SECOND
        self.store.write(lambda tx: deliveries.delivery_extend(tx, sub, tickets, length))
        self.held += some


class BusOperator(Actor):
    """Replays, seeks, purges, pauses and changes subscriptions."""

    kind = "operator"

    def __init__(self, stage: Stage, name: str) -> None:
        super().__init__(stage, name, 90 * SECOND)

    def step(self) -> None:
        """Perform one action."""
        rng = self.stage.rng
        sub = self.store.read(
            lambda tx: topics.subscription_get(tx, rng.choice(("plain", "ordered")))
        )
        if self.is_recovering:
            for spec in SPECS:
                self._pause(spec.name, is_paused=False)
            return
        action = rng.choice(("replay", "replay", "replay", "seek", "purge", "pause", "change"))
        if action == "replay" and self.stage.accepted:
            self._replay(sub, rng.choice(self.stage.accepted))
        elif action == "seek":
            self._seek(sub)
        elif action == "purge":
            self.store.write(lambda tx: replay.delivery_purge(tx, sub, n=2, actor=self.name))
        elif action == "pause":
            self._pause(sub.name, is_paused=rng.random() < 0.4)
        elif action == "change":
            spec = next(spec for spec in SPECS if spec.name == sub.name)
            wanted = replace(spec, ack_deadline_us=rng.choice((10, 60, 300)) * SECOND)
            self.store.write(lambda tx: topics.subscription_declare(tx, wanted))

    def _replay(self, sub: SubscriptionRow, message_id: int) -> None:
        try:
            self.store.write(lambda tx: replay.delivery_replay(tx, sub, message_id, self.name))
        except (Conflict, NotFound):
            return

    def _seek(self, sub: SubscriptionRow) -> None:
        to = self.stage.clock.now() - self.stage.rng.randrange(HOUR)
        seek = self.store.write(lambda tx: replay.seek_begin(tx, sub, to, self.name))
        while not seek.is_done:
            try:
                seek = self.store.write(lambda tx, s=seek: replay.seek_step(tx, sub, s, 3))  # type: ignore[misc]
            except StoreError:
                return  # abandoned halfway: completed steps remain

    def _pause(self, name: str, *, is_paused: bool) -> None:
        self.store.write(lambda tx: topics.subscription_pause(tx, name, is_paused=is_paused))
