"""Flows in the simulation: a pipeline with gates, orchestrators with seeded probes, and users.

Users trigger flows, report for processors, repeat requests, approve and cancel. The orchestrators
are the real service over a store that fails. Every probe draws a new result, until recovery: then
all data is available.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from penstock.access.store.names import NameResolver
from penstock.client import Client
from penstock.core.clock import HOUR, MINUTE, SECOND, to_datetime
from penstock.core.errors import PenstockError, StoreError
from penstock.db.store import Store
from penstock.detection.monitor import Monitor
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.probe_request import ProbeRequest
from penstock.flows.gates.records import OverrideRequest
from penstock.flows.items.records import ItemRetry
from penstock.flows.items.sources import ItemRequest
from penstock.flows.ladder.ladder import SchedulerFallback, SelfHeal
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.records import CompletionReport, FlowRequest
from penstock.pipelines.declare.needs import historical, optional, same_day
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.dependency import DependencyKind
from penstock.pipelines.modes import game_day_modes
from penstock.pipelines.partition import text
from penstock.recovery.backfiller import Backfiller
from penstock.recovery.records import BackfillRequest
from penstock.testing.simulate.actors import Actor, ServiceActor, Stage
from penstock.testing.simulate.faults import Fault
from penstock.worker.context import RunContext

CASCADE = "cascade"
STATUSES: tuple[Literal["success", "partial", "failed"], ...] = (
    "success",
    "success",
    "partial",
    "failed",
)
PARTITIONS = ("2026-01-01", "2026-01-02")
PROCESSORS = ("left", "right", "mid", "end", "soon", "item")


def cascade(*, recovers: bool = False) -> Pipeline:
    """Two entry processors, a gate with needs, gates of single processors, and a last phase."""
    made = Pipeline(
        CASCADE,
        partition=text("day"),
        warehouse="w",
        modes=game_day_modes(),
        customer_column="shop",
    )
    raw = made.phase("raw", stragglers="20m")
    raw.processor("left", timeout="8m")(_work)
    quick = {"max_attempts": 2, "base_delay_minutes": 1}
    raw.processor("right", timeout="8m", retry=quick)(_work)
    middle = made.phase("middle", after=raw, on_late_data="rerun")
    needs = [same_day("t.rows", expect=5), optional("t.odds")]
    middle.processor("mid", timeout="8m", retry=quick, needs=needs)(_work)
    each = made.phase("each", after=raw, on="each")
    each.processor("soon", timeout="8m", retry=quick)(_work)
    each.processor("past", timeout="8m", needs=[historical("t.days", days=3)])(_work)
    last = made.phase("last", after=[middle], fallback="01:00" if recovers else {})
    last.processor("end", timeout="8m", retry=quick)(_work)
    fan = made.phase("fan", after=raw, stragglers="30m")
    query = "SELECT id FROM t.items WHERE shop = :customer"
    fan.processor("item", timeout="8m", retry=quick, each=query, min_items=0.5)(_work)
    made.phase("gather", after=fan).processor("gathered", timeout="8m", retry=quick)(_work)
    return made


def _work(run: object) -> None:
    """Processor body; the simulation decides its outcome."""


def act(run: RunContext) -> None:
    """Create a run with the result of one processor, and keep a checkpoint."""
    if (run.pipeline, run.processor) == (CASCADE, "right"):
        run.submit("single", partition="made by a run")
        run.state["attempt"] = run.attempt


class ProbingActor(ServiceActor):
    """A service whose probe results come from the seed."""

    def __init__(
        self, stage: Stage, name: str, every: int, make: Callable[[Store, ProbingActor], Any]
    ) -> None:
        kind = name.rpartition("-")[0]
        super().__init__(stage, name, every, kind, lambda store: make(store, self))

    def probe(self, request: ProbeRequest) -> list[Observation]:
        """Return complete, partial or no data, or an error; complete data after recovery."""
        return [self._observe(d.key, d.kind) for d in request.dependencies]

    def query(self, _: ItemRequest) -> list[int]:
        """List no to nine items, or fail; some lists name an item twice."""
        rng = self.stage.rng
        if self.is_recovering:
            return list(range(5))
        if rng.random() < 0.2:
            raise ConnectionError("the warehouse is unreachable")
        if rng.random() < 0.05:
            return [1, 1]
        return list(range(rng.choice((0, 1, 3, 6, 9))))

    def _observe(self, key: str, kind: DependencyKind) -> Observation:
        rng, now = self.stage.rng, self.stage.clock.now()
        found = 9 if self.is_recovering else rng.choice((0, 0, 1, 3, 5, 9))
        if not self.is_recovering and rng.random() < 0.1:
            return Observation(key=key, looked_at=now, error="the warehouse is unreachable")
        if kind is DependencyKind.HISTORICAL:
            return Observation(key=key, looked_at=now, days_present=found)
        return Observation(key=key, looked_at=now, rows=found)


class FlowUsers(Actor):
    """Users and programs that start flows, report for processors, approve and cancel."""

    kind = "operator"

    def __init__(
        self, stage: Stage, name: str, customers: Sequence[str], *, recovers: bool
    ) -> None:
        super().__init__(stage, name, 60 * SECOND)
        self._recovers = recovers
        self._customers = list(customers)
        self._sent: list[CompletionReport] = []
        self._count = 0
        self.client = Client(self.store, actor=name, names=NameResolver(self.store, stage.clock))

    def step(self) -> None:
        """Perform one action chosen by the seed; refusals are expected."""
        actions: list[tuple[int, Callable[[], object]]] = [
            (5, self._trigger), (4, self._report), (2, self._repeat), (1, self._approve),
            (1, self._cancel), (1, self._retry_items),
        ]  # fmt: skip
        if self._recovers:
            actions.append((2, self._backfill))
        if self.is_recovering:
            return
        action = self.stage.rng.choices([a for _, a in actions], [w for w, _ in actions])[0]
        try:
            action()
        except StoreError:
            raise
        except PenstockError:
            return

    def _trigger(self) -> None:
        rng = self.stage.rng
        start: list[str] = rng.choice(([], [], [], ["middle"]))
        wanted = FlowRequest(
            pipeline=CASCADE,
            customer=rng.choice(self._customers),
            partition=rng.choice(PARTITIONS),
            mode=rng.choice(("same_day", "same_day", "tomorrow", "manual")),
            force=rng.random() < 0.3,
            phases=start,
            correlation_id=f"{self.name}-{self.stage.clock.now()}",
        )
        opened = self.client.flows.trigger(wanted)
        if self.stage.fault_occurs(Fault.DUPLICATE, 0.2) and not wanted.force and not start:
            again = self.client.flows.trigger(wanted)
            assert not again.is_new or opened.flow.state != "OPEN", (
                "a repeated trigger opened twice"
            )

    def _report(self) -> None:
        rng = self.stage.rng
        self._count += 1
        report = CompletionReport(
            pipeline=CASCADE,
            processor=rng.choice((*PROCESSORS, "unknown")),
            partition=rng.choice(PARTITIONS),
            customer=rng.choice(self._customers),
            mode="same_day",
            status=rng.choice(STATUSES),
            execution_id=f"{self.name}-{self._count}",
            correlation_id=f"{self.name}-{self._count}",
        )
        self._sent = [*self._sent[-5:], report]
        self.client.flows.complete(report)

    def _repeat(self) -> None:
        if self._sent:
            self.client.flows.complete(self.stage.rng.choice(self._sent))

    def _approve(self) -> None:
        rng = self.stage.rng
        approval = OverrideRequest(
            pipeline=CASCADE,
            partition=rng.choice(PARTITIONS),
            customer=rng.choice(self._customers),
            reason="simulated",
            expires_at=to_datetime(self.stage.clock.now() + rng.choice((10 * MINUTE, HOUR))),
        )
        self.client.overrides.grant(approval)

    def _cancel(self) -> None:
        found = self.client.flows.list(state="OPEN", limit=10).items
        if found:
            self.client.flows.cancel(self.stage.rng.choice(found).flow_id, reason="simulated")

    def _backfill(self) -> None:
        rng = self.stage.rng
        wanted = BackfillRequest(
            pipeline=CASCADE,
            customer=rng.choice(self._customers),
            partitions=list(PARTITIONS),
            parallelism=rng.choice((1, 2)),
            existing=rng.choice(("incomplete", "missing", "all")),
        )
        self.client.backfills.start(wanted)

    def _retry_items(self) -> None:
        found = self.client.flows.list(limit=10).items
        if found:
            flow = self.stage.rng.choice(found).flow_id
            self.client.items.retry(flow, ItemRetry(processor="item"))


def flow_actors(
    stage: Stage, customers: Sequence[str], batch: int, *, recovers: bool
) -> list[Actor]:
    """Return what drives flows: orchestrators, the users and, if the history has them, recovery."""

    def orchestrator(store: Store, actor: ProbingActor) -> Orchestrator:
        size = batch if actor.name.endswith("0") else 3 * batch
        return Orchestrator(store, actor.probe, query=actor.query, holder=actor.name, batch=size)

    cast: list[Actor] = [
        ProbingActor(stage, "orchestrator-0", 25 * SECOND, orchestrator),
        ProbingActor(stage, "orchestrator-1", 25 * SECOND, orchestrator),
        FlowUsers(stage, "people", customers, recovers=recovers),
    ]
    return cast + recovery_actors(stage) if recovers else cast


def recovery_actors(stage: Stage) -> list[Actor]:
    """Return the services below the cascade: the ladder, the monitor and the backfiller."""
    return [
        ProbingActor(stage, "fallback-0", 4 * MINUTE,
                     lambda s, one: SchedulerFallback(s, one.probe, holder=one.name)),
        ProbingActor(stage, "self_heal-0", 5 * MINUTE,
                     lambda s, one: SelfHeal(s, one.probe, holder=one.name)),
        ServiceActor(stage, "monitor-0", 6 * MINUTE, "monitor", Monitor),
        ServiceActor(stage, "backfiller-0", 2 * MINUTE, "backfiller", Backfiller),
    ]  # fmt: skip
