"""Ends, the advance of their flows and the next claim in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import PermanentError, Pipeline, text
from penstock.audit.telemetry import Events, ServiceError
from penstock.client import Client
from penstock.core.errors import StoreUnavailable
from penstock.db.store import Store
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.records import FlowRequest
from penstock.recovery.backfiller import Backfiller
from penstock.recovery.records import BackfillRequest
from penstock.testing.clock import VirtualClock
from penstock.worker.context import RunContext
from penstock.worker.options import WorkerOptions
from penstock.worker.worker_core import WorkerCore
from tests.worker.kit import EventRecorder, no_jitter


class Scene:
    """Three phases, a worker that follows up, and what it executed."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.store, self.client = store, Client(store)
        self.seen: list[tuple[str, str | None]] = []
        self.fails: set[str] = set()
        self.pipeline, before = Pipeline("steps", partition=text("day")), None
        for name in ("raw", "analytics", "publish"):
            before = self.pipeline.phase(name, after=before)
            before.processor(f"{name}_it")(self._body(name))
        self.client.register([self.pipeline])
        events = Events()
        self.recorder = EventRecorder(events)
        options = WorkerOptions(concurrency=10, advances=True)
        self.worker = WorkerCore(
            store, [self.pipeline], options, clock=clock, jitter=no_jitter, events=events
        )
        self.worker.open()

    def _body(self, phase: str) -> Callable[[RunContext], None]:
        def body(run: RunContext) -> None:
            self.seen.append((phase, run.partition))
            if phase in self.fails:
                raise PermanentError("bad data")

        return body

    def trigger(self, partition: str) -> str:
        wanted = FlowRequest(pipeline="steps", partition=partition)
        return self.client.flows.trigger(wanted).flow.flow_id

    def hop(self, runs: list[Any]) -> list[Any]:
        """Execute runs, store their ends; return what was claimed with them."""
        for held in runs:
            end = self.worker.execute(held)
            assert end is not None
            self.worker.ends.add([end])
        return self.worker.flush_and_claim(10)

    def events_left(self) -> int:
        query = "SELECT count(*) FROM nudges"
        return int(self.store.read(lambda tx: tx._connection.execute(query).fetchone())[0])  # type: ignore[attr-defined]

    def state(self, flow_id: str) -> str:
        return self.client.flows.get(flow_id).flow.state


@pytest.fixture
def scene(store: Store, clock: VirtualClock) -> Scene:
    return Scene(store, clock)


def test_a_flow_needs_no_orchestrator(scene: Scene) -> None:
    """Each flush ends a phase, starts the next one and claims its run; the last ends the flow."""
    flow_id = scene.trigger("monday")
    runs = scene.worker.claim_once(10)
    hops = 0
    while runs:
        runs, hops = scene.hop(runs), hops + 1
    assert (hops, scene.state(flow_id), scene.events_left()) == (3, "COMPLETE", 0)
    assert scene.seen == [(p, "monday") for p in ("raw", "analytics", "publish")]


def test_a_backfill_continues_in_the_same_transaction(scene: Scene) -> None:
    """The transaction that ends flows opens those of the next partitions, each once."""
    days = [f"day-{n}" for n in range(7)]
    request = BackfillRequest(pipeline="steps", partitions=days, parallelism=2)
    made = scene.client.backfills.start(request).backfill
    assert made is not None
    Backfiller(scene.store).run_once()
    runs, most = scene.worker.claim_once(10), 0
    while runs:
        most, runs = max(most, len(runs)), scene.hop(runs)
    done = scene.client.backfills.get(made.backfill_id)
    assert (done.state, done.counts, most) == ("COMPLETE", {"COMPLETE": 7}, 2)
    assert sorted(scene.seen) == sorted(
        (p, day) for p in ("raw", "analytics", "publish") for day in days
    )


def test_a_failure_is_left_to_the_orchestrator(scene: Scene) -> None:
    """A dead run counts against a breaker: the flow event is stored, nothing else happens."""
    scene.fails = {"raw"}
    flow_id = scene.trigger("monday")
    assert scene.hop(scene.worker.claim_once(10)) == []
    assert (scene.events_left(), scene.state(flow_id)) == (1, "OPEN")
    Orchestrator(scene.store, lambda _: []).run_once()
    assert scene.client.flows.get(flow_id).phases[0].state == "FAILED"


def test_an_end_is_stored_though_its_flow_cannot_advance(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the advance is reported; the end is stored, and the orchestrator continues."""
    flow_id = scene.trigger("monday")

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no plan")

    monkeypatch.setattr("penstock.flows.advance.store.advance", fail)
    assert scene.hop(scene.worker.claim_once(10)) == []
    assert scene.worker.is_idle
    assert [one.error for one in scene.recorder.of(ServiceError)] == ["no plan"]
    Orchestrator(scene.store, lambda _: []).run_once()
    monkeypatch.undo()
    runs = scene.worker.claim_once(10)
    while runs:
        runs = scene.hop(runs)
    assert scene.state(flow_id) == "COMPLETE"


def test_an_unknown_outcome_is_read_back(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The response of a flush is lost after its commit: its claims are found, its ends stale."""
    flow_id = scene.trigger("monday")
    runs = scene.worker.claim_once(10)
    write = scene.store.write

    def commit_and_fail(body: Any) -> Any:
        write(body)
        monkeypatch.undo()
        raise StoreUnavailable("the response is lost")

    monkeypatch.setattr(scene.store, "write", commit_and_fail)
    with pytest.raises(StoreUnavailable):
        scene.hop(runs)
    assert scene.worker.flush_once().refused == 1
    runs = scene.worker.claim_once(10)
    assert [run.attempt for run in runs] == [1]
    while runs:
        runs = scene.hop(runs)
    assert scene.state(flow_id) == "COMPLETE"
    assert scene.seen == [(p, "monday") for p in ("raw", "analytics", "publish")]
