"""Services over a store that tests step in one thread, and pipelines to recover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from penstock.client import Client
from penstock.core.clock import MINUTE
from penstock.db.store import Store
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.records import FlowRequest
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.partition import day
from penstock.recovery.backfiller import Backfiller
from penstock.runs.admitter import Admitter
from penstock.runs.sweeper import Sweeper
from penstock.testing.clock import VirtualClock
from penstock.worker.context import RunContext
from penstock.worker.options import WorkerOptions
from penstock.worker.worker_core import WorkerCore
from tests.worker.kit import no_jitter

PHASES = ("raw", "analytics", "publish")
STEPS_MAX = 2_000
IDLE_STEPS = 2
"""A worker reports the end of a run one step after it executed it."""


class Work:
    """A pipeline of three phases that counts its executions and fails where a test says so."""

    def __init__(self, name: str = "nba", **options: Any) -> None:
        self.seen: Counter[tuple[str, str]] = Counter()
        self.fails: Callable[[str, str], Exception | None] = lambda *_: None
        self.entities: dict[str, list[Any]] = {}
        self.pipeline = Pipeline(name, partition=day("game_date"), **options)
        before = None
        for phase in PHASES:
            made = self.pipeline.phase(phase, after=before)
            made.processor(f"{phase}_it", produces=[f"{phase}.games"])(self._body(phase))
            before = made

    def _body(self, phase: str) -> Callable[[RunContext], None]:
        def body(run: RunContext) -> None:
            assert run.partition is not None
            self.seen[phase, run.partition] += 1
            error = self.fails(phase, run.partition)
            if error is not None:
                raise error

        return body


class Services:
    """The services of a process; `restarted` ones replace those that were killed."""

    def __init__(self, store: Store, clock: VirtualClock, *pipelines: Pipeline) -> None:
        self.store, self.clock, self.pipelines = store, clock, pipelines
        self.client = Client(store)
        self.client.register(pipelines)
        self.start()

    def start(self) -> None:
        """Start new services; what others held is left to the sweeper."""
        store = self.store
        self.orchestrator = Orchestrator(store, lambda _: [], holder="test")
        self.backfiller = Backfiller(store)
        self.admitter, self.sweeper = Admitter(store), Sweeper(store, jitter=no_jitter)
        options = WorkerOptions(concurrency=100)
        self.worker = WorkerCore(store, self.pipelines, options, clock=self.clock, jitter=no_jitter)
        self.worker.open()

    def step(self) -> bool:
        """Let every service do what is due; return whether any did."""
        backfilled = self.backfiller.run_once()
        self.admitter.run_once()
        ended = self.worker.run_once().ended
        moved = self.orchestrator.run_once()
        return bool(backfilled.opened or backfilled.settled or backfilled.ended
                    or ended or moved.triggers)  # fmt: skip

    def work(self, until: Callable[[], bool] = lambda: False) -> None:
        """Step until nothing is left to do, or a condition holds."""
        idle = 0
        for _ in range(STEPS_MAX):
            idle = 0 if self.step() else idle + 1
            if idle == IDLE_STEPS or until():
                return
        raise AssertionError("the services never come to rest")

    def later(self, minutes: int = 30) -> None:
        """Let time pass: leases of killed processes expire, retries become due."""
        self.clock.advance(minutes * MINUTE)
        self.sweeper.run_once()

    def trigger(self, partition: str, pipeline: str = "nba", **more: Any) -> str:
        """Open a flow and return its id."""
        wanted = FlowRequest(pipeline=pipeline, partition=partition, **more)
        return self.client.flows.trigger(wanted).flow.flow_id

    def flows(self, **filters: Any) -> list[Any]:
        """Return flows, newest first."""
        found, cursor = [], None
        while True:
            page = self.client.flows.list(limit=1_000, cursor=cursor, **filters)
            found += page.items
            cursor = page.next_cursor
            if cursor is None or not page.items:
                return found
