"""Simulated histories of a user's own pipelines: the real cascade under seeded faults.

Replicas of orchestrators, workers, admitters and sweepers run over real SQLite in memory. The seed
decides which actor runs next, what is duplicated, reordered, late or lost, which probe fails and
when the clock jumps. Processor functions are not called: the seed decides their outcome. Afterwards
no more faults are injected, and everything must become idle.

    python -m penstock.testing.simulate.histories examples.nba --seeds 100
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from penstock.client import Client
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND
from penstock.core.errors import PenstockError, StoreError
from penstock.db.store import Store
from penstock.flows.items.sources import ItemRequest
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.store import plans
from penstock.flows.store.flows import cascade_next_at
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.loading import load_pipelines
from penstock.runs.admitter import Admitter
from penstock.runs.store.admission import run_next_due_at
from penstock.runs.sweeper import Sweeper
from penstock.testing.clock import VirtualClock
from penstock.testing.memory import memory_store
from penstock.testing.simulate.actors import Actor, ServiceActor
from penstock.testing.simulate.faults import OF_TRANSACTIONS, Crash, Fault, FaultyStore
from penstock.testing.simulate.invariants import FlowInvariants
from penstock.testing.simulate.surroundings import Opener, Reporter, Sources
from penstock.testing.simulate.violation import Violation
from penstock.testing.simulate.workers import SimHeartbeat, SimWorker

START = 1_767_225_600 * SECOND
DEPTH_MAX = 3
HEAL_ROUNDS = 1_500
FAULT_ODDS, NEST_ODDS, JUMP_ODDS, LATE_ODDS = 0.02, 0.05, 0.01, 0.15


@dataclass(slots=True, kw_only=True)
class Report:
    """Counts and faults of one history."""

    seed: int
    steps: int = 0
    commits: int = 0
    flows: int = 0
    digest: str = ""
    faults: Counter[str] = field(default_factory=Counter)
    decisions: Counter[str] = field(default_factory=Counter)


class SimulationFailed(AssertionError):
    """A seed broke an invariant, or the code under test raised."""

    def __init__(self, report: Report, invariant: str, detail: str) -> None:
        self.report = report
        self.invariant = invariant
        super().__init__(
            f"seed {report.seed}, step {report.steps}: {invariant}: {detail}\n"
            f"faults so far: {dict(report.faults)}"
        )


class FlowSimulation:
    """One history: `steps` with faults, then recovery."""

    def __init__(self, seed: int, pipelines: Sequence[Pipeline], *, steps: int = 300) -> None:
        self.report = Report(seed=seed)
        self.rng = random.Random(seed)  # noqa: S311 - seeded on purpose
        self.clock = VirtualClock(START + self.rng.randrange(300) * DAY)
        self.delivered: list[int] = []
        self.accepted: list[int] = []
        self._steps = steps
        self._store = memory_store(self.clock)
        self._trace = hashlib.sha256()
        self._stack: list[Actor] = []
        self._crashes: Counter[str] = Counter()
        self._groups: dict[str, tuple[Actor, ...]] = {}
        self._is_healing = True  # no faults during setup
        self._judge: FlowInvariants | None = None
        plans.clear_cache()  # plans cached by an earlier history would be missing from this trace
        Client(self._store, actor="setup").register(pipelines)
        self._sources = Sources(self._store, self.clock, self.rng, pipelines)
        self._sources.during_probe = self._slow_probe
        self._cast = self._create_actors(list(pipelines))
        self._judge = FlowInvariants(self._store, pipelines)
        self._is_healing = False

    def run(self) -> Report:
        """Run with faults, then recover, then check the final state."""
        assert self._judge is not None
        try:
            while self.report.steps < self._steps:
                if self.fault_occurs(Fault.CLOCK_JUMP, JUMP_ODDS):
                    self.clock.advance(self.rng.randrange(40 * MINUTE))
                self._act(self._next())
            self._heal()
            self._judge.finished()
        except Violation as error:
            raise SimulationFailed(self.report, error.invariant, error.detail) from error
        except (Crash, Exception) as error:
            raise SimulationFailed(self.report, "unexpected", repr(error)) from error
        finally:
            self.report.decisions = self._judge.decisions
            self.report.flows = len({place[0] for place in self._judge.started})
            self._store.close()
        self.report.digest = self._trace.hexdigest()
        return self.report

    # Called by actors and their stores (Stage, Director)

    def store_for(self, actor: str) -> FaultyStore:
        """Return an actor's view of the store, which injects faults."""
        return FaultyStore(self._store, actor, self)

    def fault_occurs(self, fault: Fault, odds: float) -> bool:
        """Whether an environment fault happens now."""
        hit = self.rng.random() < odds
        if self._is_healing or not hit:
            return False
        self.report.faults[fault] += 1
        return True

    def between(self, actor: str) -> None:
        """Let other actors run before this transaction.

        Raise Crash if the process died in the meantime.
        """
        if self._is_healing or len(self._stack) >= DEPTH_MAX or not self._stack:
            return
        crashes = self._crashes[actor]
        if self.rng.random() < NEST_ODDS:
            for _ in range(self.rng.randint(1, 3)):
                self._act(self._next())
        if self._crashes[actor] != crashes:
            raise Crash

    def draw(self, actor: str) -> tuple[Fault | None, int]:
        """Draw the fault of the next transaction."""
        if self._is_healing or self.rng.random() >= FAULT_ODDS:
            return None, 0
        fault = self.rng.choice(OF_TRANSACTIONS)
        self.report.faults[fault] += 1
        self._note("fault", actor, fault)
        return fault, self.rng.randrange(6)

    def committed(self, actor: str, statements: Sequence[str]) -> None:
        """Check the invariants after a commit."""
        self.report.commits += 1
        self._note("commit", actor, " ".join(statements))
        if self._judge is not None:
            self._judge.committed()

    # Setup

    def _create_actors(self, pipelines: list[Pipeline]) -> dict[str, Actor]:
        cast: list[Actor] = [Opener(self, pipelines, flows=5)]
        for n in range(2):
            cast += [
                self._orchestrator(f"orchestrator-{n}", pipelines),
                ServiceActor(self, f"admitter-{n}", 30 * SECOND, "admitter",
                             lambda store: Admitter(store, batch=5)),
                ServiceActor(self, f"sweeper-{n}", 60 * SECOND, "sweeper",
                             lambda store: Sweeper(store, jitter=self.rng.random)),
                Reporter(self, f"outside-{n}", pipelines),
            ]  # fmt: skip
        pools = {p.pool for each in pipelines for p in each.processors if p.runs != "external"}
        for pool in sorted(pools):
            for n in range(2):
                worker = SimWorker(self, f"worker-{pool}-{n}", pipelines, pool)
                heartbeat = SimHeartbeat(worker)
                cast += [worker, heartbeat]
                self._groups[worker.name] = self._groups[heartbeat.name] = (worker, heartbeat)
        return {actor.name: actor for actor in cast}

    def _orchestrator(self, name: str, pipelines: list[Pipeline]) -> Actor:
        def make(store: Store) -> Orchestrator:
            probe = self._sources.probe
            return Orchestrator(
                store, probe, query=self._items, holder=name, pipelines=pipelines, batch=3
            )

        return ServiceActor(self, name, 40 * SECOND, "orchestrator", make)

    def _items(self, _: ItemRequest) -> list[str]:
        """List the items of a query: a few, or none."""
        return [f"item-{n}" for n in range(self.rng.choice((0, 1, 3, 5)))]

    def _next(self) -> Actor:
        idle = [actor for actor in self._cast.values() if actor not in self._stack]
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
                self._crash(actor)
        except StoreError as error:
            self._note("error", actor.name, type(error).__name__)
            actor.schedule_next()
        finally:
            self._stack.pop()

    def _slow_probe(self) -> None:
        """Make a probe slow, sometimes slower than its lease, while other actors run."""
        if len(self._stack) >= DEPTH_MAX or not self.fault_occurs(Fault.LATE, LATE_ODDS):
            return
        until = self.clock.now() + self.rng.randrange(6 * MINUTE)
        for _ in range(20):
            if self.clock.now() >= until:
                break
            self._act(self._next())
        self.clock.advance_to(until)

    def _crash(self, actor: Actor) -> None:
        """Kill the whole process; it restarts after a while."""
        down_until = self.clock.now() + self.rng.randrange(5 * MINUTE)
        for member in self._groups.get(actor.name, (actor,)):
            self._crashes[member.name] += 1
            self._note("crash", member.name, "")
            member.start()
            member.next_at = down_until

    def _heal(self) -> None:
        """Stop all faults: every flow must end, at its deadline at the latest."""
        assert self._judge is not None
        self._is_healing = self._sources.is_healing = True
        actors = list(self._cast.values())
        for actor in actors:
            actor.is_recovering = True
        for _ in range(HEAL_ROUNDS):
            for actor in actors:
                actor.next_at = self.clock.now()
                if actor.kind != "operator":
                    self._act(actor)
            due = self._store.read(lambda tx: (cascade_next_at(tx)[0], run_next_due_at(tx)))
            if self._judge.is_quiet():
                return
            # Sessions of crashed workers expire within minutes; larger steps are not needed before.
            later = [at for at in due if at is not None and at > self.clock.now()]
            self.clock.advance(20 * SECOND)
            if len(later) == sum(at is not None for at in due):
                self.clock.advance_to(min([*later, self.clock.now() + HOUR]))
        raise Violation("I15", f"still active after {HEAL_ROUNDS:,} rounds of recovery")

    def _note(self, what: str, actor: str, detail: str) -> None:
        self._trace.update(f"{self.clock.now()}|{what}|{actor}|{detail}\n".encode())


def run_seed(seed: int, pipelines: Sequence[Pipeline], *, steps: int = 300) -> Report:
    """Run one history; SimulationFailed if an invariant does not hold."""
    return FlowSimulation(seed, pipelines, steps=steps).run()


@dataclass(slots=True, kw_only=True)
class Summary:
    """Totals over many histories."""

    pipelines: list[str]
    histories: int = 0
    steps: int = 0
    commits: int = 0
    flows: int = 0
    decisions: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)

    def add(self, report: Report) -> None:
        """Add one history."""
        self.histories += 1
        self.steps += report.steps
        self.commits += report.commits
        self.flows += report.flows
        self.decisions += report.decisions
        self.faults += report.faults

    def record(self) -> dict[str, Any]:
        """Return the summary as JSON-compatible data."""
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: dict(v) if isinstance(v, Counter) else v for name, v in given.items()}

    def text(self) -> str:
        """Return the summary as text."""
        return (
            f"{', '.join(self.pipelines)}: {self.histories:,} histories with {self.flows:,} flows, "
            f"{self.steps:,} steps, {self.commits:,} commits, each checked\n"
            f"  decisions: {_counts(self.decisions)}\n"
            f"  faults: {_counts(self.faults)}\n"
            f"  {len(self.failures):,} failed\n"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds over the pipelines of modules and print a summary; return 1 if one fails."""
    parser = argparse.ArgumentParser(description="Simulate pipelines under seeded faults.")
    parser.add_argument("targets", nargs="+", help="module, module:attribute or file.py")
    parser.add_argument("--seeds", type=int, default=50, help="number of histories")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--steps", type=int, default=300, help="steps with faults in each history")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    given = parser.parse_args(arguments)
    # The summary counts decisions and faults. Without a handler Python would print every warning.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        pipelines = load_pipelines(given.targets)
    except PenstockError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    summary = Summary(pipelines=[pipeline.name for pipeline in pipelines])
    for seed in range(given.first, given.first + given.seeds):
        try:
            summary.add(run_seed(seed, pipelines, steps=given.steps))
        except SimulationFailed as error:
            summary.add(error.report)
            where = " ".join(given.targets)
            again = f"penstock simulate {where} --seed {seed} --steps {given.steps}"
            summary.failures.append({"seed": seed, "error": str(error), "reproduce": again})
            if not given.json:
                sys.stdout.write(f"{error}\nreproduce: {again}\n")
    sys.stdout.write(f"{json.dumps(summary.record())}\n" if given.json else summary.text())
    return 1 if summary.failures else 0


def _counts(counted: Counter[str]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in sorted(counted.items())) or "none"


if __name__ == "__main__":
    sys.exit(main())
