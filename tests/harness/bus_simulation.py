"""Deterministic simulation of the bus: publishers, consumers, sweepers and operators with faults.

One thread. The seed decides which actor runs next, what fails and when. The invariants of the bus
are checked after every commit. Then everything recovers, and every accepted message must be
settled. The same seed produces the same history, which the hash of its trace proves.

    python -m tests.harness.bus_simulation --seed 42
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.bus.delivery_sweeper import DeliverySweeper
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND
from penstock.core.errors import StoreError
from penstock.testing.clock import VirtualClock
from penstock.testing.memory import memory_store
from penstock.testing.simulate.actors import Actor, ServiceActor
from penstock.testing.simulate.faults import OF_TRANSACTIONS, Crash, Fault, FaultyStore
from penstock.testing.simulate.violation import Violation
from tests.harness.invariants_bus import BusChecks
from tests.harness.sim_bus import SPECS, BusOperator, Consumer, Publisher, declare

START = 1_767_225_600 * SECOND
DEPTH_MAX = 3
HEAL_ROUNDS = 300
NEST_ODDS = 0.08


@dataclass(slots=True, kw_only=True)
class BusReport:
    """Counts and faults of one history."""

    seed: int
    steps: int = 0
    commits: int = 0
    checks: int = 0
    messages: int = 0
    ended: int = 0
    dead: int = 0
    digest: str = ""
    faults: Counter[str] = field(default_factory=Counter)


class BusSimulationFailed(AssertionError):
    """A seed broke an invariant, or the product raised; the message says how to reproduce it."""

    def __init__(self, report: BusReport, steps: int, invariant: str, detail: str) -> None:
        self.report = report
        self.invariant = invariant
        super().__init__(
            f"bus seed {report.seed}, step {report.steps}: {invariant}: {detail}\n"
            f"faults so far: {dict(report.faults)}\n"
            "reproduce: python -m tests.harness.bus_simulation "
            f"--seed {report.seed} --steps {steps}"
        )


class BusSimulation:
    """One history."""

    def __init__(self, seed: int, steps: int, fault_odds: float) -> None:
        self.report = BusReport(seed=seed)
        self.rng = random.Random(seed)
        self.clock = VirtualClock(START + self.rng.randrange(360) * DAY)
        self.delivered: list[int] = []
        self.accepted: list[int] = []
        self._steps = steps
        self._fault_odds = fault_odds
        self._store = memory_store(self.clock)
        self._trace = hashlib.sha256()
        self._stack: list[Actor] = []
        self._crashes: Counter[str] = Counter()
        self._is_healing = False
        subs = self._store.write(declare)
        self._taken = [sub.subscription_key for sub in subs if sub.name != "dead-letters"]
        self.checks = BusChecks(self._store, subs)
        self.actors = {actor.name: actor for actor in self._cast()}

    def _cast(self) -> list[Actor]:
        cast: list[Actor] = [Publisher(self, f"publisher-{n}") for n in range(2)]
        cast += [Consumer(self, f"{spec.name}-{n}", spec.name) for spec in SPECS for n in range(2)]
        cast += [BusOperator(self, "operator")]
        cast += [
            ServiceActor(
                self, f"courier-{n}", 30 * SECOND, "courier",
                lambda store: DeliverySweeper(store, jitter=self.rng.random, batch=3),
            )
            for n in range(2)
        ]  # fmt: skip
        return cast

    def run(self) -> BusReport:
        """Run with faults, then recover, then check the final state."""
        try:
            while self.report.steps < self._steps:
                self._surroundings()
                self._act(self._next())
            self._heal()
            self.checks.finish(self.accepted, self._taken)
        except Violation as error:
            raise self._failed(error.invariant, error.detail) from error
        except (Crash, Exception) as error:
            raise self._failed("unexpected", repr(error)) from error
        finally:
            self._store.close()
        self.report.checks = self.checks.checks
        self.report.messages = len(set(self.accepted))
        self.report.ended = len(self.checks.ended)
        self.report.dead = len(self.checks.dead_lettered)
        self.report.digest = self._trace.hexdigest()
        return self.report

    def _failed(self, invariant: str, detail: str) -> BusSimulationFailed:
        return BusSimulationFailed(self.report, self._steps, invariant, detail)

    # Called by actors and their stores (Stage, Director)

    def store_for(self, actor: str) -> FaultyStore:
        """Return an actor's view of the store, which injects faults."""
        return FaultyStore(self._store, actor, self)

    def fault_occurs(self, fault: Fault, odds: float) -> bool:
        """Whether an environment fault happens now."""
        hit = self.rng.random() < odds
        if self._is_healing or not self._fault_odds or not hit:
            return False
        self.report.faults[fault] += 1
        return True

    def between(self, actor: str) -> None:
        """Let other actors run before this transaction, or suspend the process for long."""
        if self._is_healing or len(self._stack) >= DEPTH_MAX or not self._stack:
            return
        crashes = self._crashes[actor]
        if self.fault_occurs(Fault.PAUSE, 0.01):
            until = self.clock.now() + self.rng.randrange(MINUTE, 12 * MINUTE)
            for _ in range(40):
                if self.clock.now() >= until:
                    break
                self._act(self._next())
            self.clock.advance_to(until)
        elif self.rng.random() < NEST_ODDS:
            for _ in range(self.rng.randint(1, 3)):
                self._act(self._next())
        if self._crashes[actor] != crashes:
            raise Crash

    def draw(self, actor: str) -> tuple[Fault | None, int]:
        """Draw the fault of the next transaction."""
        if self._is_healing or self.rng.random() >= self._fault_odds:
            return None, 0
        fault = self.rng.choice(OF_TRANSACTIONS)
        self.report.faults[fault] += 1
        self._note("fault", actor, fault)
        return fault, self.rng.randrange(6)

    def committed(self, actor: str, statements: Sequence[str]) -> None:
        """Check the invariants after a commit."""
        self._note("commit", actor, " ".join(statements))
        self.report.commits += 1
        self.checks.committed(self.clock.now(), statements)

    # Main loop

    def _next(self) -> Actor:
        idle = [actor for actor in self.actors.values() if actor not in self._stack]
        return min(idle, key=lambda actor: actor.next_at)

    def _act(self, actor: Actor) -> None:
        self.clock.advance_to(actor.next_at)
        self.report.steps += 1
        self._stack.append(actor)
        crashes = self._crashes[actor.name]
        try:
            actor.step()
            actor.schedule_next()
        except Crash:
            if crashes == self._crashes[actor.name]:
                self._crashes[actor.name] += 1
                self._note("crash", actor.name, "")
                actor.start()
                actor.next_at = self.clock.now() + self.rng.randrange(5 * MINUTE)
        except StoreError as error:
            self._note("error", actor.name, type(error).__name__)
            actor.schedule_next()
        finally:
            self._stack.pop()

    def _surroundings(self) -> None:
        if self.fault_occurs(Fault.CLOCK_JUMP, 0.005):
            self.clock.advance(self.rng.randrange(20 * MINUTE))
        if self.fault_occurs(Fault.DOWNTIME, 0.001):
            self.clock.advance(self.rng.randrange(2 * HOUR, 26 * HOUR))

    def _heal(self) -> None:
        """Stop all faults: every accepted message must be settled."""
        self._is_healing = True
        for _ in range(HEAL_ROUNDS):
            for actor in self.actors.values():
                actor.is_recovering = True
                actor.next_at = self.clock.now()
                self._act(actor)
            if not self.checks.open:
                self._note("quiet", "", str(len(self.checks.ended)))
                return
            self.clock.advance(MINUTE)
        raise Violation("liveness", f"still open: {list(self.checks.open.values())[:3]}")

    def _note(self, what: str, actor: str, detail: str) -> None:
        self._trace.update(f"{self.clock.now()}|{what}|{actor}|{detail}\n".encode())


def run_bus_seed(seed: int, steps: int = 300, fault_odds: float = 0.03) -> BusReport:
    """Run one history; BusSimulationFailed says how to reproduce a failure."""
    return BusSimulation(seed, steps, fault_odds).run()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one seed twice, compare the traces and print the report."""
    parser = argparse.ArgumentParser(description="Run one simulated history of the bus.")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, default=300)
    given = parser.parse_args(arguments)
    try:
        first = run_bus_seed(given.seed, given.steps)
        second = run_bus_seed(given.seed, given.steps)
    except BusSimulationFailed as error:
        sys.stdout.write(f"{error}\n")
        return 1
    assert first.digest == second.digest, "the same seed produced two histories"
    sys.stdout.write(f"{first}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
