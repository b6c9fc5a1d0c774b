"""Deterministic simulation of the bridge: two processes carry messages, and everything fails.

One thread. The seed decides which process runs next, where it dies, which transaction fails and
which call to the broker fails or loses its reply. Then faults end, and each side must have every
message of the other exactly once, in the order of its key.

    python -m tests.harness.bridge_simulation --seed 42
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.bus.delivery_sweeper import DeliverySweeper
from penstock.bus.message import NewMessage, SubscriptionSpec, TopicSpec
from penstock.bus.transports.bridges import parse_bridges
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.core.clock import SECOND
from penstock.core.errors import StoreError, TransportUnavailable
from penstock.services.bridge import Bridge
from penstock.testing.clock import VirtualClock
from penstock.testing.memory import memory_store
from penstock.testing.simulate.faults import OF_TRANSACTIONS, Crash, Fault, FaultyStore

START = 1_767_225_600 * SECOND
KEYS = "abc"
HEAL_ROUNDS = 60
NEST_ODDS = 0.1
SETTINGS = parse_bridges({"main": {"url": "nats://x", "send": ["out"], "receive": ["back"]}})[0]


class BridgeSimulationFailed(AssertionError):
    """A seed lost, repeated or reordered a message."""


@dataclass(slots=True)
class BridgeReport:
    """Counts of one history."""

    seed: int
    messages: int = 0
    crashes: int = 0
    faults: Counter[str] = field(default_factory=Counter)


class FaultyBroker:
    """The broker as one process sees it: calls fail before they are made, or lose their reply."""

    def __init__(self, inner: EmbeddedBus, simulation: BridgeSimulation) -> None:
        self._inner = inner
        self._simulation = simulation

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in ("publish", "pull", "ack", "declare"):
            return found

        def call(*args: Any, **more: Any) -> Any:
            if self._simulation.strikes("broker_down"):
                raise TransportUnavailable("the broker is down")
            done = found(*args, **more)
            if self._simulation.strikes("reply_of_broker_lost"):
                raise TransportUnavailable("the reply was lost")
            return done

        return call


class BridgeSimulation:
    """One history."""

    def __init__(self, seed: int, fault_odds: float) -> None:
        self.report = BridgeReport(seed)
        self.rng = random.Random(seed)
        self.clock = VirtualClock(START)
        self._odds = fault_odds
        self._here, self._there = memory_store(self.clock), memory_store(self.clock)
        self._sides = [EmbeddedBus(self._here), EmbeddedBus(self._there)]
        self._published: list[list[str]] = [[], []]
        self._depth = 0
        self._busy: set[int] = set()
        self._bridges = [self._started(n) for n in range(2)]
        self._declare()

    def _declare(self) -> None:
        """Create topics with a reader on the far side, before any fault."""
        here, there = self._sides
        here.declare([TopicSpec(name="out"), TopicSpec(name="back")], [])
        there.declare([TopicSpec(name="out"), TopicSpec(name="back")], [])
        odds, self._odds = self._odds, 0.0
        self._bridges[0].run_once()
        self._odds = odds
        there.declare([], [SubscriptionSpec(name="reader", topic="out", is_ordered=True)])
        here.declare([], [SubscriptionSpec(name="reader", topic="back", is_ordered=True)])

    def _started(self, number: int) -> Bridge:
        store = FaultyStore(self._here, f"bridge-{number}", self)
        broker: Any = FaultyBroker(self._sides[1], self)
        return Bridge(store, SETTINGS, lambda: broker, clock=self.clock)

    # Called by FaultyStore (Director)

    def between(self, actor: str) -> None:
        """Let the other process run before this transaction."""
        del actor
        if self._depth < 2 and self.rng.random() < NEST_ODDS:
            self._step(self.rng.randrange(2))

    def draw(self, actor: str) -> tuple[Fault | None, int]:
        """Draw the fault of the next transaction."""
        del actor
        if self.rng.random() >= self._odds:
            return None, 0
        fault = self.rng.choice(OF_TRANSACTIONS)
        self.report.faults[fault] += 1
        return fault, self.rng.randrange(6)

    def committed(self, actor: str, statements: Sequence[str]) -> None:
        """Nothing is checked between commits."""

    def strikes(self, fault: str) -> bool:
        """Whether a call to the broker fails now."""
        if self.rng.random() >= self._odds:
            return False
        self.report.faults[fault] += 1
        return True

    # Main loop

    def run(self, steps: int) -> BridgeReport:
        """Run with faults, then without, then compare both sides."""
        for _ in range(steps):
            if self.rng.random() < 0.5:
                self._publish()
            self._step(self.rng.randrange(2))
            self._pass(self.rng.choice((1, 5, 70)))
        self._odds = 0.0
        for number in range(HEAL_ROUNDS):
            self._step(number % 2)
            self._pass(70)
        for side, name in ((1, "out"), (0, "back")):
            self._check(side, name)
        self._here.close()
        self._there.close()
        return self.report

    def _publish(self) -> None:
        side, key = self.rng.randrange(2), self.rng.choice(KEYS)
        texts = [f"{key}{len(self._published[side]) + n}" for n in range(self.rng.randint(1, 4))]
        messages = [NewMessage(data=text.encode(), ordering_key=key) for text in texts]
        self._sides[side].publish(("out", "back")[side], messages)
        self._published[side] += texts
        self.report.messages += len(texts)

    def _step(self, number: int) -> None:
        if number in self._busy:
            return
        self._busy.add(number)
        self._depth += 1
        try:
            self._bridges[number].run_once()
        except Crash:
            self.report.crashes += 1
            self._bridges[number] = self._started(number)
        except (StoreError, TransportUnavailable):
            pass
        finally:
            self._depth -= 1
            self._busy.discard(number)

    def _pass(self, seconds: int) -> None:
        self.clock.advance(seconds * SECOND)
        for store in (self._here, self._there):
            DeliverySweeper(store, jitter=lambda: 0.0).run_once()

    def _check(self, side: int, topic: str) -> None:
        """Compare what a reader gets with what the other side published."""
        bus, found = self._sides[side], []
        while more := bus.pull("reader"):
            bus.ack("reader", [one.ack_id for one in more])
            found += [one.data.decode() for one in more]
        sent = self._published[1 - side]
        for key in KEYS:
            wanted = [text for text in sent if text[0] == key]
            there = [text for text in found if text[0] == key]
            if there != wanted:
                raise BridgeSimulationFailed(
                    f"bridge seed {self.report.seed}, topic {topic}, key {key}: expected {wanted}, "
                    f"got {there}\nreproduce: python -m tests.harness.bridge_simulation "
                    f"--seed {self.report.seed}"
                )


def run_bridge_seed(seed: int, steps: int = 60, fault_odds: float = 0.05) -> BridgeReport:
    """Run one history; BridgeSimulationFailed says how to reproduce a failure."""
    return BridgeSimulation(seed, fault_odds).run(steps)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one seed and print its report."""
    parser = argparse.ArgumentParser(description="Run one simulated history of the bridge.")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seeds", type=int, default=1, help="Number of seeds from there.")
    given = parser.parse_args(arguments)
    for seed in range(given.seed, given.seed + given.seeds):
        report = run_bridge_seed(seed)
    sys.stdout.write(f"{report}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
