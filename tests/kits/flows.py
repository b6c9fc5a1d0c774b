"""A stage for flows: a client, an orchestrator that sees what the test says, runs ended by hand.

`Stage.rows` is the warehouse: rows by table; a table that is not in it cannot be looked at.
`Stage.days` is history: how many of the newest days before the partition a table has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from penstock import Pipeline, day, game_day_modes
from penstock.access.store import registry
from penstock.access.store.names import NameResolver
from penstock.client import Client
from penstock.db.store import Row, Store, Tx
from penstock.flows.client.opening import TriggerResult, flow_trigger
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.probe_request import ProbeRequest
from penstock.flows.gates.rows import DecisionFilter, DecisionRow, Trigger
from penstock.flows.gates.store.gates import decision_list, triggers_of
from penstock.flows.orchestrator import Orchestrator, StepCounts
from penstock.flows.records import FlowRequest
from penstock.flows.rows import CompletionRow, FlowRow, PhaseRow
from penstock.flows.store.completions import completions_of
from penstock.flows.store.flows import flow_get, phases_of
from penstock.pipelines.dependency import Dependency, DependencyKind
from penstock.probes.timestamps import days_before
from penstock.runs import attempt_result
from penstock.runs.admitter import Admitter
from penstock.runs.attempt_result import AttemptFailure
from penstock.runs.rows import HeldRun
from penstock.runs.states import RunStatus
from penstock.runs.store import runs
from penstock.runs.store.finish import run_end_many
from penstock.testing.clock import VirtualClock

T = TypeVar("T")
DAY = "2025-11-16"


def work(run: Any) -> None:
    """Never called here: tests end runs themselves."""


def chain(*phases: str, name: str = "nba", **options: Any) -> Pipeline:
    """Phases one after another with one processor each, which is called as its phase.

    It has the modes of the game-day preset unless the test declares others.
    """
    until = "precompute" if "precompute" in phases else None
    given = {"modes": game_day_modes(overnight_until=until), **options}
    made = Pipeline(name, partition=day("day", repeats=True), warehouse="w", **given)
    before = None
    for phase in phases:
        declared = made.phase(phase, after=before)
        declared.processor(f"{phase}_job")(work)
        before = declared
    return made


class FlowRows(NamedTuple):
    """A flow with the rows of its phases, completions, triggers and decisions."""

    flow: FlowRow
    phases: Sequence[PhaseRow]
    completions: Sequence[CompletionRow]
    triggers: Sequence[Trigger]
    decisions: Sequence[DecisionRow]


class Stage:
    """One store with flows on it."""

    def __init__(self, store: Store, clock: VirtualClock, *pipelines: Pipeline) -> None:
        self.store = store
        self.clock = clock
        self.rows: dict[str, int] = {}
        self.days: dict[str, int] = {}
        self.probes: list[ProbeRequest] = []
        self.client = Client(store, actor="tester", probe=self.probe)
        self.client.register(pipelines)
        self.orchestrator = Orchestrator(store, self.probe, holder="o1")
        self.admitter = Admitter(store)

    def probe(self, request: ProbeRequest) -> list[Observation]:
        """Return what the test stored."""
        self.probes.append(request)
        return [self._see(d, request.partition) for d in request.dependencies]

    def _see(self, need: Dependency, partition: str) -> Observation:
        now, table = self.clock.now(), need.table
        if need.kind is DependencyKind.HISTORICAL:
            there = self.days.get(table, 0)
            days = sorted(days_before(partition, need.lookback_days or 0), reverse=True)
            return Observation(
                key=need.key, looked_at=now, days_present=there, days_missing=tuple(days[there:])
            )
        if table not in self.rows:
            return Observation(key=need.key, looked_at=now, error="no such table")
        return Observation(key=need.key, looked_at=now, rows=self.rows[table], newest_us=now)

    def write(self, body: Callable[[Tx], T]) -> T:
        """One transaction."""
        return self.store.write(body)

    def sql(self, text: str) -> list[Row]:
        """Run raw SQL in a transaction of its own."""

        def body(tx: Any) -> list[Row]:
            cursor = tx._connection.execute(text)
            return list(cursor.fetchall()) if cursor.description else []

        return self.store.write(body)

    def open(self, pipeline: str = "nba", **fields: Any) -> TriggerResult:
        """Trigger a flow of acme."""
        given: dict[str, Any] = {"customer": "acme", "partition": DAY, "mode": "same_day", **fields}
        more = {name: given.pop(name) for name in ("source", "generation") if name in given}
        wanted = FlowRequest(pipeline=pipeline, **given)
        names = NameResolver(self.store)
        return self.write(lambda tx: flow_trigger(tx, self.store, names, wanted, "tester", **more))

    def step(self) -> StepCounts:
        """Let the orchestrator act."""
        return self.orchestrator.run_once()

    def claim(self, *names: str, start: bool = True) -> dict[str, HeldRun]:
        """Claim ready runs by processor; only these, or all of them."""
        self.admitter.run_once()
        rows = {row.processor_key: row for row in self.store.read(registry.processor_list)}
        wanted = [n for n, row in rows.items() if not names or row.name in names]
        found: dict[str, HeldRun] = {}
        for pool in sorted({rows[n].pool_key for n in wanted}):
            claim = runs.Claim(
                pool_key=pool, processors=wanted, n=1000, start=start, claimed_by="t"
            )
            for held in self.write(lambda tx, c=claim: runs.run_claim(tx, c)):  # type: ignore[misc]
                found[rows[held.processor_key].name] = held
        return found

    def complete(self, *names: str, status: RunStatus = RunStatus.SUCCESS, **fields: Any) -> int:
        """Claim ready runs and complete them; returns how many."""
        ends = [
            attempt_result.completed_result(h, status=status, **fields)
            for h in self.claim(*names).values()
        ]
        return len(self.write(lambda tx: run_end_many(tx, ends)))

    def end(self, held: HeldRun) -> None:
        """Complete one claimed run."""
        result = attempt_result.completed_result(held, status=RunStatus.SUCCESS)
        self.write(lambda tx: run_end_many(tx, [result]))

    def kill(self, *names: str) -> int:
        """Claim ready runs and fail them permanently."""
        failure = AttemptFailure(error_type="VALIDATION_ERROR")
        ends = [attempt_result.failed(h, failure, jitter=0.0) for h in self.claim(*names).values()]
        return len(self.write(lambda tx: run_end_many(tx, ends)))

    def run_off(self, rounds: int = 20) -> None:
        """Complete whatever becomes ready until nothing does."""
        for _ in range(rounds):
            self.step()
            if not self.complete():
                return

    def detail(self, flow: FlowRow | TriggerResult) -> FlowRows:
        """Everything about a flow."""
        found = flow.flow if isinstance(flow, TriggerResult) else flow
        return self.rows_of(found.flow_id)

    def rows_of(self, flow_id: int) -> FlowRows:
        """Everything about the flow of an id."""

        def body(tx: Tx) -> FlowRows:
            row = flow_get(tx, flow_id)
            assert row is not None
            wanted = DecisionFilter(pipeline=row.pipeline_key, flow_id=flow_id, limit=200)
            return FlowRows(
                flow=row,
                phases=phases_of(tx, [flow_id])[flow_id],
                completions=completions_of(tx, [flow_id])[flow_id],
                triggers=triggers_of(tx, [flow_id]),
                decisions=decision_list(tx, wanted),
            )

        return self.store.read(body)

    def states(self, flow: FlowRow | TriggerResult) -> dict[str, str]:
        """The states of a flow's phases."""
        return {row.phase: row.state for row in self.detail(flow).phases if not row.processor}

    def state(self, flow: FlowRow | TriggerResult) -> str:
        """Where a flow stands."""
        return self.detail(flow).flow.state

    def triggers(self) -> Sequence[Row]:
        """(flow, phase, processor, runs) of everything that was started."""
        return self.sql("SELECT flow_id, phase, processor, runs FROM triggers ORDER BY 1, 2, 3")
