"""Deterministic simulation: the real services over the real SQL on virtual time, seed by seed.

One thread. The seed decides which actor runs next, what fails and when. Between any two
transactions of one process other actors may run, time may pass, or the process may die. Invariants
are checked after every commit. After the faults, everything recovers and must become idle. The same
seed produces the same history, which the hash of its trace proves.

    python -m tests.harness.simulation --seed 42
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from unittest.mock import patch

from penstock.access.store.registry import topic_ensure
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND
from penstock.core.errors import StoreError
from penstock.flows.items import item_list
from penstock.flows.store.plans import clear_cache
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.schedules.store.configs import config_list
from penstock.testing.clock import VirtualClock
from penstock.testing.memory import memory_store
from penstock.testing.simulate.actors import Actor
from penstock.testing.simulate.faults import OF_TRANSACTIONS, Crash, Fault, FaultyStore
from penstock.testing.simulate.violation import Violation
from penstock.testing.simulate.workers import SimHeartbeat, SimWorker
from tests.harness.observer import Observer
from tests.harness.sim_actors import Operator, new_config, services
from tests.harness.sim_flows import act, cascade, flow_actors
from tests.harness.sim_limits import declare_shared_limit, limited_pipelines
from tests.harness.sim_outside import SimExternalWorker
from tests.harness.sim_slots import SlotHolder, slot_actors
from tests.kits.configs import cfg, config_of

START = 1_767_225_600 * SECOND
DEPTH_MAX = 3
RECOVERY_ROUNDS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The size of a history and the faults that may occur in it."""

    steps: int = 400
    workers: int = 3
    externals: int = 2
    schedulers: int = 2
    sweepers: int = 2
    customers: int = 3
    configs: int = 6
    batch: int = 2
    fault_odds: float = 0.02
    nest_odds: float = 0.05
    faults: frozenset[Fault] = frozenset(Fault)
    recovers: bool = False
    """Whether the ladder, the monitor and the backfiller take part."""


@dataclass(slots=True, kw_only=True)
class Report:
    """Counts and faults of one history."""

    seed: int
    steps: int = 0
    commits: int = 0
    checks: int = 0
    runs: int = 0
    digest: str = ""
    faults: Counter[str] = field(default_factory=Counter)


class SimulationFailed(AssertionError):
    """A seed broke an invariant, or the product raised; the message says how to reproduce it."""

    def __init__(self, report: Report, planned: int, invariant: str, detail: str) -> None:
        self.report = report
        self.invariant = invariant
        super().__init__(
            f"seed {report.seed}, step {report.steps}: {invariant}: {detail}\n"
            f"faults so far: {dict(report.faults)}\n"
            f"reproduce: python -m tests.harness.simulation --seed {report.seed} "
            f"--steps {planned}\n"
            f"       or: PENSTOCK_SEED={report.seed} PENSTOCK_STEPS={planned} "
            ".venv/bin/python -m pytest "
            "tests/simulation -k one_seed"
        )


class Simulation:
    """One history."""

    def __init__(self, seed: int, options: Options | None = None) -> None:
        self.options = options or Options()
        self.report = Report(seed=seed)
        self.rng = random.Random(seed)
        self.clock = VirtualClock(START + self.rng.randrange(360) * DAY)
        self.delivered: list[int] = []
        self.accepted: list[int] = []
        clear_cache()
        self._store = memory_store(self.clock)
        self._trace = hashlib.sha256()
        self._stack: list[Actor] = []
        self._crashes: Counter[str] = Counter()
        self._healing = True  # no faults during setup
        self.actors: dict[str, Actor] = {}
        self._groups: dict[str, tuple[Actor, ...]] = {}
        self.observer: Observer | None = None
        self._pipelines = declared(recovers=self.options.recovers)
        self._build()

    def run(self) -> Report:
        """Run with faults, then recover, then check the final state."""
        assert self.observer is not None
        try:
            while self.report.steps < self.options.steps:
                self._surroundings()
                self._act(self._next())
            self._heal()
            self.observer.finish(self.delivered, self.accepted)
        except Violation as error:
            raise self._failed(error.invariant, error.detail) from error
        except (Crash, Exception) as error:
            raise self._failed("unexpected", repr(error)) from error
        finally:
            self.report.checks = self.observer.checks
            self.report.commits = self.observer.commits
            self.report.runs = self.observer.runs
            self._store.close()
        self.report.digest = self._trace.hexdigest()
        return self.report

    def _failed(self, invariant: str, detail: str) -> SimulationFailed:
        return SimulationFailed(self.report, self.options.steps, invariant, detail)

    # Called by actors and their stores (Stage, Director)

    def store_for(self, actor: str) -> FaultyStore:
        """Return an actor's view of the store, which injects faults."""
        return FaultyStore(self._store, actor, self)

    def fault_occurs(self, fault: Fault, odds: float) -> bool:
        """Whether an environment fault happens now."""
        hit = self.rng.random() < odds
        if self._healing or fault not in self.options.faults or not hit:
            return False
        self.report.faults[fault] += 1
        return True

    def between(self, actor: str) -> None:
        """Let other actors run before this transaction; the process may pause or die in the
        meantime.
        """
        if self._healing or len(self._stack) >= DEPTH_MAX or not self._stack:
            return
        crashes = self._crashes[actor]
        if self.fault_occurs(Fault.PAUSE, 0.004):
            self._pause(self._stack[-1])
        elif self.rng.random() < self.options.nest_odds:
            for _ in range(self.rng.randint(1, 3)):
                self._act(self._next())
        if self._crashes[actor] != crashes:
            raise Crash

    def draw(self, actor: str) -> tuple[Fault | None, int]:
        """Draw the fault of the next transaction."""
        if self._healing or self.rng.random() >= self.options.fault_odds:
            return None, 0
        fault = self.rng.choice(OF_TRANSACTIONS)
        if fault not in self.options.faults:
            return None, 0
        self.report.faults[fault] += 1
        self._note("fault", actor, fault)
        return fault, self.rng.randrange(6)

    def committed(self, actor: str, statements: Sequence[str]) -> None:
        """Check the invariants after a commit."""
        self._note("commit", actor, " ".join(statements))
        if self.observer is not None:
            self.observer.committed(self.actors[actor], statements)

    # Setup

    def _build(self) -> None:
        options = self.options
        names = [f"customer-{n}" for n in range(options.customers)]
        operator = Operator(self, "operator", names)
        operator.client.register(self._pipelines)
        operator.client.store.write(lambda tx: topic_ensure(tx, "penstock.runs"))
        operator.client.store.write(declare_shared_limit)
        for _ in range(options.configs):
            given = config_of(new_config(self.rng))
            operator.client.configs.create(self.rng.choice(names), given)
        cast: list[Actor] = [operator, Operator(self, "operator-2", names)]
        cast += services(self, options.schedulers, options.sweepers, options.batch)
        cast += flow_actors(self, names, options.batch, recovers=options.recovers)
        cast += slot_actors(self)
        for n in range(options.workers):
            worker = SimWorker(self, f"worker-{n}", self._pipelines)
            worker.acts = act
            heartbeat = SimHeartbeat(worker)
            cast += [worker, heartbeat]
            self._groups[worker.name] = self._groups[heartbeat.name] = (worker, heartbeat)
        cast += [SimExternalWorker(self, f"outside-{n}") for n in range(options.externals)]
        self.actors = {actor.name: actor for actor in cast}
        self.observer = Observer(self._store, self.clock)
        self._healing = False

    def _next(self) -> Actor:
        """Return the actor with the earliest next step that is not inside a step."""
        idle = [actor for actor in self.actors.values() if actor not in self._stack]
        return min(idle, key=lambda actor: actor.next_at)

    def _act(self, actor: Actor) -> None:
        self.clock.advance_to(actor.next_at)
        self.report.steps += 1
        self._stack.append(actor)
        crashes = self._crashes[actor.name]
        faults = self.report.faults.total()
        assert self.observer is not None
        mark = self.observer.before_step(actor)
        try:
            actor.step()
            actor.schedule_next()
            if faults == self.report.faults.total():
                self.observer.after_step(actor, mark)
        except Crash:
            if crashes == self._crashes[actor.name]:
                self._crash(actor)
        except StoreError as error:
            self._note("error", actor.name, type(error).__name__)
            self.observer.store_failed(actor)
            actor.schedule_next()
        finally:
            self._stack.pop()

    def _crash(self, actor: Actor) -> None:
        """Kill the whole process; it restarts after a while."""
        down_until = self.clock.now() + self.rng.randrange(5 * MINUTE)
        for member in self._groups.get(actor.name, (actor,)):
            self._crashes[member.name] += 1
            self._note("crash", member.name, "")
            member.start()
            member.next_at = down_until

    def _pause(self, actor: Actor) -> None:
        """Suspend a process for longer than its lease while the others continue."""
        until = self.clock.now() + self.rng.randrange(2 * MINUTE, 8 * MINUTE)
        members = self._groups.get(actor.name, (actor,))
        if self.rng.random() < 0.3:
            members = (actor,)  # only one thread hangs; heartbeats continue
        for member in members:
            member.next_at = max(member.next_at, until)
        budget = 60
        while self.clock.now() < until and budget:
            self._act(self._next())
            budget -= 1
        self.clock.advance_to(until)

    def _surroundings(self) -> None:
        """Clock jumps and downtimes."""
        if self.fault_occurs(Fault.CLOCK_JUMP, 0.004):
            self.clock.advance(self.rng.randrange(20 * MINUTE))
        if self.fault_occurs(Fault.DOWNTIME, 0.0015):
            self.clock.advance(self.rng.randrange(2 * HOUR, 26 * HOUR))
        if self.fault_occurs(Fault.NO_SCHEDULERS, 0.003):
            until = self.clock.now() + self.rng.randrange(10 * MINUTE, 40 * MINUTE)
            for actor in self.actors.values():
                if actor.kind == "scheduler":
                    actor.next_at = max(actor.next_at, until)

    def _heal(self) -> None:
        """Stop all faults and occurrences: everything must become idle."""
        assert self.observer is not None
        self._healing = True
        for actor in self.actors.values():
            actor.next_at = self.clock.now()
            actor.is_recovering = True
        operator = self.actors["operator"]
        assert isinstance(operator, Operator)
        for config in operator.client.store.read(lambda tx: config_list(tx, limit=500)):
            if config.is_active:
                operator.client.configs.disable(cfg(config))
        operator.resume_all()
        others = [actor for actor in self.actors.values() if actor.kind != "operator"]
        first = ["sweeper-0", "admitter-0", "relay-0", "orchestrator-0"]
        first += ["backfiller-0"] if self.options.recovers else []
        movers: list[Actor] = [actor for actor in others if isinstance(actor, SimHeartbeat)]
        movers += [self.actors[name] for name in first]
        movers += [a for a in others if isinstance(a, SimWorker | SimExternalWorker | SlotHolder)]
        self._all_act(others)
        workers = [actor for actor in others if isinstance(actor, SimWorker)]
        self.observer.live_sessions = lambda: {w.steps.session.session_id or 0 for w in workers}
        for _ in range(RECOVERY_ROUNDS):
            self._all_act(movers)
            if self.observer.is_idle():
                self._all_act(others)  # the last runs are folded here
                if self.options.recovers:
                    self._all_act([actor for actor in others if actor.kind == "sealer"])
                self._note("quiet", "", str(self.observer.state_digest()))
                return
            due = self.observer.next_due()
            self.clock.advance(20 * SECOND)
            if due is not None:
                self.clock.advance_to(due)
        raise Violation(
            "liveness", f"still active after recovery: {self.observer.remaining_work()}"
        )

    def _all_act(self, cast: Sequence[Actor]) -> None:
        for actor in cast:
            actor.next_at = self.clock.now()
            self._act(actor)

    def _note(self, what: str, actor: str, detail: str) -> None:
        self._trace.update(f"{self.clock.now()}|{what}|{actor}|{detail}\n".encode())


def declared(*, recovers: bool = False) -> list[Pipeline]:
    """Small pipelines: one processor, two in parallel, one external, and a cascade."""
    single = Pipeline("single")
    single.phase("main").processor("only", timeout="10m")(_work)
    double = Pipeline("double")
    pair = double.phase("main")
    pair.processor("left", timeout="8m")(_work)
    pair.processor("right", timeout="8m", retry={"max_attempts": 2, "base_delay_minutes": 1})(_work)
    outside = Pipeline("outside")
    outside.phase("main").external("far", timeout="20m")
    return [single, double, outside, cascade(recovers=recovers), *limited_pipelines()]


def _work(run: object) -> None:
    """Processor body; the simulation decides its outcome."""


def run_seed(seed: int, options: Options | None = None) -> Report:
    """Run one history; SimulationFailed says how to reproduce a failure.

    Lists of items are created in parts of two, so that short lists have several.
    """
    with patch.multiple(item_list, BATCH=2, FIRST_BATCH=1):
        return Simulation(seed, options).run()


def shrink(seed: int, options: Options | None = None) -> Options:
    """Drop kinds of faults, then steps, as long as the seed still fails."""
    smallest = options or Options()
    for fault in sorted(smallest.faults):
        tried = replace(smallest, faults=smallest.faults - {fault})
        if _fails(seed, tried):
            smallest = tried
    while smallest.steps > 20 and _fails(seed, replace(smallest, steps=smallest.steps // 2)):
        smallest = replace(smallest, steps=smallest.steps // 2)
    return smallest


def _fails(seed: int, options: Options) -> bool:
    try:
        run_seed(seed, options)
    except SimulationFailed:
        return True
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one seed twice, compare the traces and print the report."""
    parser = argparse.ArgumentParser(description="Run one simulated history.")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, default=Options().steps)
    parser.add_argument("--shrink", action="store_true", help="search for a smaller failure")
    given = parser.parse_args(arguments)
    options = Options(steps=given.steps)
    try:
        first, second = run_seed(given.seed, options), run_seed(given.seed, options)
    except SimulationFailed as error:
        sys.stdout.write(f"{error}\n")
        if given.shrink:
            small = shrink(given.seed, options)
            names = ", ".join(sorted(small.faults)) or "none"
            sys.stdout.write(f"still fails with steps={small.steps}, faults: {names}\n")
        return 1
    assert first.digest == second.digest, "the same seed produced two histories"
    sys.stdout.write(f"{first}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
