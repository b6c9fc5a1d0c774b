"""The environment of simulated flows: late, partial or missing data; users; external processors.

`Sources` returns observations according to the seed: every table of a partition has its own arrival
time, some probes fail, some are slow. `Opener` triggers flows, sometimes twice. `Reporter`
simulates external processors and reports completions once, repeatedly and out of order. Used by
`histories`; nothing here checks invariants.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from penstock.access.store.names import NameResolver
from penstock.client import Client
from penstock.core.clock import HOUR, MINUTE, SECOND, iso
from penstock.core.ids import encode
from penstock.db.store import Store
from penstock.flows.client.opening import flow_trigger
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.probe_request import ProbeRequest
from penstock.flows.records import CompletionReport, FlowRequest
from penstock.flows.rows import FlowFilter, FlowRow
from penstock.flows.store.completions import completions_of
from penstock.flows.store.flows import flow_list, phases_of
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.dependency import Dependency, DependencyKind
from penstock.runs.client.listing import run_page
from penstock.runs.store.lists.pages import RunFilter
from penstock.testing.clock import VirtualClock
from penstock.testing.simulate.actors import Actor, Stage
from penstock.testing.tables import TableContent, Tables

FAILS, NEVER, PARTLY = 0.05, 0.06, 0.25


class Sources:
    """A warehouse whose tables arrive according to the seed; produced tables follow the processor's
    report.
    """

    def __init__(
        self, store: Store, clock: VirtualClock, rng: random.Random, pipelines: Sequence[Pipeline]
    ) -> None:
        self.is_healing = False
        self.during_probe: Callable[[], None] = lambda: None
        """Called during every probe: time may pass, and other actors may run."""
        self._store = store
        self._clock = clock
        self._rng = rng
        self._partitions: dict[str, Tables] = {}
        self._planned: set[tuple[str, str, bool]] = set()
        self._makers = {
            table: processor.name
            for pipeline in pipelines
            for processor in pipeline.processors
            for table in processor.terms.produces
        }

    def probe(self, request: ProbeRequest) -> list[Observation]:
        """Return one observation per dependency; the orchestrator's probe function."""
        tables = self._partitions.setdefault(request.partition, Tables(self._clock))
        for dependency in request.dependencies:
            self._plan(tables, dependency, request.partition)
        seen = tables.probe(request)
        self.during_probe()
        if not self.is_healing and self._rng.random() < FAILS:
            place = self._rng.randrange(len(seen))
            seen[place] = Observation(
                key=seen[place].key, looked_at=self._clock.now(), error="simulated: no connection"
            )
        return seen

    def _plan(self, tables: Tables, dependency: Dependency, partition: str) -> None:
        """Choose at random when a table arrives; called when it is first probed."""
        historical = dependency.kind is DependencyKind.HISTORICAL
        units = dependency.expect.table
        if units is not None and (partition, units, False) not in self._planned:
            self._planned.add((partition, units, False))
            tables.arrive(units, TableContent(at=0, rows=self._rng.randrange(12)))
        place, now, rng = (partition, dependency.table, historical), self._clock.now(), self._rng
        if dependency.table in self._makers and not historical:
            if place not in self._planned and self._is_made(dependency.table, partition):
                self._planned.add(place)
                tables.arrive(dependency.table, TableContent(at=now))
            return
        if place in self._planned:
            return
        self._planned.add(place)
        if historical:
            most = dependency.lookback_days or 1
            tables.arrive(dependency.table, TableContent(at=0, days=rng.randint(most // 2, most)))
        elif rng.random() >= NEVER:
            whole = TableContent(at=now + rng.choice((0, 0, rng.randrange(3 * HOUR))))
            if rng.random() < PARTLY:
                tables.arrive(
                    dependency.table, replace(whole, rows=rng.randrange(30), not_null_share=0.9)
                )
                whole = replace(whole, at=whole.at + rng.randrange(2 * HOUR))
            tables.arrive(dependency.table, whole)

    def _is_made(self, table: str, partition: str) -> bool:
        maker = self._makers[table]
        flows = self._store.read(lambda tx: flow_list(tx, FlowFilter(partition=partition)))
        seen = self._store.read(lambda tx: completions_of(tx, [flow.flow_id for flow in flows]))
        return any(
            one.processor == maker and one.status != "failed"
            for found in seen.values()
            for one in found
        )


class Opener(Actor):
    """A user who triggers flows: of new and known partitions, with and without force."""

    kind = "operator"

    def __init__(self, stage: Stage, pipelines: Sequence[Pipeline], flows: int) -> None:
        super().__init__(stage, "opener", 10 * MINUTE)
        self._pipelines = list(pipelines)
        self._left = flows
        self._asked: list[FlowRequest] = []
        self.start()

    def start(self) -> None:
        """Drop cached names."""
        self._names = NameResolver(self.store, self.stage.clock)

    def step(self) -> None:
        """Trigger a flow, or repeat an earlier request."""
        rng = self.stage.rng
        if self._asked and rng.random() < 0.3:
            again = msgspec.structs.replace(rng.choice(self._asked), force=rng.random() < 0.2)
            self._trigger(again)
        elif self._left and not self.is_recovering:
            self._left -= 1
            chosen = rng.choice(self._pipelines)
            request = FlowRequest(
                pipeline=chosen.name,
                partition=iso(self.stage.clock.now())[:10],
                mode=rng.choice(sorted(chosen.modes)),
            )
            self._asked.append(request)
            self._trigger(request)

    def _trigger(self, request: FlowRequest) -> None:
        self.store.write(
            lambda tx: flow_trigger(
                tx, self.store, self._names, request, self.name, source="scheduler"
            )
        )


class Reporter(Actor):
    """External processors that report completions, sometimes twice and in any order."""

    kind = "external"

    def __init__(self, stage: Stage, name: str, pipelines: Sequence[Pipeline]) -> None:
        super().__init__(stage, name, 90 * SECOND)
        self._external = {
            (pipeline.name, p.phase): [
                q.name for q in pipeline.processors if q.phase == p.phase and q.runs == "external"
            ]
            for pipeline in pipelines
            for p in pipeline.processors
            if p.runs == "external"
        }
        self._sent: list[CompletionReport] = []
        self.start()

    def start(self) -> None:
        """Create a new client; reports from before may be sent again."""
        names = NameResolver(self.store, self.stage.clock)
        self._client = Client(self.store, actor=self.name, names=names)

    def step(self) -> None:
        """Report completions of phases in progress, and repeat old ones."""
        rng = self.stage.rng
        if not self._external:
            return
        flows = self._open(50)
        phases = self.store.read(lambda tx: phases_of(tx, [flow.flow_id for flow in flows]))
        wanted = [
            CompletionReport(
                pipeline=flow.pipeline,
                processor=name,
                phase=row.phase,
                partition=flow.partition,
                mode=flow.mode,
                status="success" if self.is_recovering else rng.choice(("success", "partial")),
                execution_id=f"{flow.flow_id}/{name}",
            )
            for flow in flows
            for row in phases[flow.flow_id]
            if row.state == "IN_PROGRESS" and not row.processor
            for name in self._external.get((flow.pipeline, row.phase), ())
        ]
        if not self.is_recovering and self._sent:
            wanted += rng.sample(self._sent, min(len(self._sent), 2))
        rng.shuffle(wanted)
        for report in wanted if self.is_recovering else wanted[:3]:
            self._client.flows.complete(report)
            self._sent = [*self._sent[-20:], report]
        if self.is_recovering:
            self._clear()

    def _open(self, limit: int) -> list[FlowRow]:
        return self.store.read(lambda tx: flow_list(tx, FlowFilter(state="OPEN", limit=limit)))

    def _clear(self) -> None:
        """Cancel pending runs of external processors that belong to ended flows."""
        opened = {flow.flow_id for flow in self._open(50)}
        pending = RunFilter(state="PENDING", limit=500)
        for run in self._client.store.read(lambda tx: run_page(tx, pending).rows):
            names = self._external.get((run.pipeline, run.phase), ())
            if run.flow_id not in opened and run.processor in names:
                name = encode("run", run.run_id)
                self._client.runs.cancel(name, reason="no external worker claimed it")
