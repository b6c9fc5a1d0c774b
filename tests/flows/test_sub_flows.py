"""Sub-flows: a run waits for a flow without a worker, and resumes with how it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.client import Client
from penstock.core.errors import Conflict, RunSuspended, StaleToken
from penstock.core.ids import decode
from penstock.db.store import Store
from penstock.flows.orchestrator import Orchestrator
from penstock.flows.records import FlowRequest
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.partition import text
from penstock.runs.action_records import RunTrigger
from penstock.runs.admitter import Admitter
from penstock.runs.external.client.work import ExternalWorker
from penstock.runs.external.records import RunCompletion, RunStart, RunWaitRequest
from penstock.runs.sweeper import Sweeper
from penstock.testing.clock import VirtualClock
from penstock.testing.flow import FlowTest
from penstock.worker.context import RunContext
from penstock.worker.options import WorkerOptions
from penstock.worker.worker_core import WorkerCore
from tests.worker.kit import no_jitter

Body = Callable[[Any], Any]
ROUNDS = 60


def nothing(run: RunContext) -> None:
    """Do nothing."""


def phased(name: str, body: Body, **terms: Any) -> Pipeline:
    """Return a pipeline with a processor, and one after it."""
    made = Pipeline(name, partition=text("key"))
    first = made.phase("first")
    first.processor("work", **terms)(body)
    made.phase("last", after=first).processor("end")(nothing)
    return made


def outside(name: str) -> Pipeline:
    """Return a pipeline that begins with an external processor."""
    made = Pipeline(name, partition=text("key"))
    first = made.phase("first")
    first.external("work")
    made.phase("last", after=first).processor("end")(nothing)
    return made


class Scene:
    """Services over a store that are stepped in one thread."""

    def __init__(self, store: Store, clock: VirtualClock, *pipelines: Pipeline) -> None:
        self.client, self.clock = Client(store), clock
        self.client.register(pipelines)
        self._orchestrator = Orchestrator(store, lambda _: [], holder="test")
        self._admitter = Admitter(store)
        self.worker = WorkerCore(
            store, pipelines, WorkerOptions(concurrency=4), clock=clock, jitter=no_jitter
        )
        self.worker.open()

    def step(self, n: int = ROUNDS) -> None:
        """Let every service do what is due, `n` times."""
        for _ in range(n):
            self._admitter.run_once()
            self._orchestrator.run_once()
            if not self.worker.run_once().ended and n > 1:
                self.worker.heartbeat_once()

    def trigger(self, pipeline: str, partition: str = "a") -> str:
        """Open a flow for a customer."""
        wanted = FlowRequest(pipeline=pipeline, partition=partition, customer="acme")
        return self.client.flows.trigger(wanted).flow.flow_id

    def state(self, flow_id: str) -> str:
        """Return the state of a flow."""
        return str(self.client.flows.get(flow_id).flow.state)

    def run_of(self, pipeline: str) -> Any:
        """Return the detail of the newest attempt of a pipeline's processor `work`."""
        found = self.client.runs.list(pipeline=pipeline, processor="work").items
        return self.client.runs.detail(max(found, key=lambda run: run.attempt).run_id)


def test_a_run_waits_without_a_worker(store: Store, clock: VirtualClock) -> None:
    """It is suspended, called again when the flow has ended, and no attempt is counted."""
    seen: list[Any] = []

    def parent(run: RunContext) -> dict[str, Any]:
        seen.append(run.attempt)
        run.state["passes"] = run.state.get("passes", 0) + 1
        child = run.trigger("child", "x", wait=True)
        return {"child": child.state, "passes": run.state["passes"]}

    scene = Scene(store, clock, phased("parent", parent), phased("child", nothing))
    flow_id = scene.trigger("parent")
    scene.step(1)
    waiting = scene.run_of("parent")
    assert (waiting.run.state, waiting.run.waits, waiting.run.attempt) == (
        "PENDING",
        "suspended",
        1,
    )
    (sub,) = waiting.sub_flows
    assert (sub.state, sub.pipeline, sub.partition, sub.resumed_at) == ("OPEN", "child", "x", None)
    why = scene.client.diagnostics.why_run(waiting.run.run_id)
    assert sub.flow_id in str(why)
    child = scene.client.flows.get(sub.flow_id).flow
    assert child.correlation_id == scene.client.flows.get(flow_id).flow.correlation_id
    assert child.opened_by == waiting.run.run_id
    assert not scene.worker.held
    scene.step()
    done = scene.run_of("parent")
    assert done.run.result == {"child": "COMPLETE", "passes": 2}
    assert seen == [1, 1]
    assert done.run.attempt == 1
    assert [e.action for e in done.journal if e.action in ("suspended", "resumed")] == [
        "suspended", "resumed",
    ]  # fmt: skip
    assert {scene.state(flow_id), scene.state(sub.flow_id)} == {"COMPLETE"}
    assert len(scene.client.flows.list(pipeline="child").items) == 1


def test_a_flow_that_ended_badly_is_opened_again(store: Store, clock: VirtualClock) -> None:
    """The processor decides; its next attempt opens another generation, but uses what is done."""
    good: list[bool] = []

    def child(_: RunContext) -> None:
        if not good:
            raise ValueError("bad data")

    def parent(run: RunContext) -> dict[str, str]:
        first = run.trigger("fine", "x", wait=True)
        second = run.trigger("child", "x", wait=True)
        if not second.is_complete:
            raise ConnectionError(second.state)
        return {"first": first.flow_id, "second": second.flow_id}

    retry = {"max_attempts": 2, "base_delay_minutes": 1}
    scene = Scene(
        store, clock, phased("parent", parent, retry=retry), phased("fine", nothing),
        phased("child", child, retry={"max_attempts": 1}),
    )  # fmt: skip
    scene.trigger("parent")
    scene.step(24)
    (failed,) = scene.client.flows.list(pipeline="child").items
    assert scene.client.flows.get(failed.flow_id).phases[0].state == "FAILED"
    scene.client.flows.cancel(failed.flow_id, "cannot be repaired")
    scene.step(4)
    good.append(True)
    for _ in range(8):
        clock.advance(seconds=15)
        scene.step(2)
    scene.step(24)
    done = scene.run_of("parent")
    assert (done.run.state, done.run.attempt) == ("COMPLETED", 2)
    generations = [flow.generation for flow in scene.client.flows.list(pipeline="child").items]
    assert generations == [2, 1]
    assert len(scene.client.flows.list(pipeline="fine").items) == 1


def test_a_cancelled_run_cancels_what_it_opened(store: Store, clock: VirtualClock) -> None:
    """Through two levels."""

    def parent(run: RunContext) -> None:
        run.trigger("middle", "x", wait=True)

    def middle(run: RunContext) -> None:
        run.trigger("far", "x", wait=True)

    scene = Scene(store, clock, phased("parent", parent), phased("middle", middle), outside("far"))
    flow_id = scene.trigger("parent")
    scene.step(4)
    assert scene.run_of("middle").run.waits == "suspended"
    scene.client.flows.cancel(flow_id, "not needed")
    states = {f.pipeline: f.state for f in scene.client.flows.list().items}
    assert states == {"parent": "CANCELLED", "middle": "CANCELLED", "far": "CANCELLED"}
    assert not [run for run in scene.client.runs.list().items if run.finished_at is None]


def test_a_flow_that_existed_outlives_the_cancelled_run(store: Store, clock: VirtualClock) -> None:
    """Cancelling the run cancels only what the run opened itself."""

    def parent(run: RunContext) -> None:
        run.trigger("far", "x", wait=True)

    scene = Scene(store, clock, phased("parent", parent), outside("far"))
    existing = scene.trigger("far", "x")
    scene.trigger("parent")
    scene.step(2)
    scene.client.runs.cancel(scene.run_of("parent").run.run_id)
    assert scene.state(existing) == "OPEN"


def test_an_operator_cancels_the_flow(store: Store, clock: VirtualClock) -> None:
    """The run resumes with CANCELLED."""
    seen: list[str] = []

    def parent(run: RunContext) -> None:
        seen.append(run.trigger("far", "x", wait=True).state)

    scene = Scene(store, clock, phased("parent", parent), outside("far"))
    scene.trigger("parent")
    scene.step(2)
    (flow,) = scene.client.flows.list(pipeline="far").items
    scene.client.flows.cancel(flow.flow_id)
    scene.step(4)
    assert seen == ["CANCELLED"]


def test_a_flow_that_has_ended_is_returned_at_once(store: Store, clock: VirtualClock) -> None:
    """Without `force` an earlier flow of the partition counts; with it, a new one is opened."""
    seen: list[int] = []

    def parent(run: RunContext) -> None:
        seen.append(run.trigger("child", "x", wait=True).generation)
        seen.append(run.trigger("child", "x", wait=True, force=True).generation)

    scene = Scene(store, clock, phased("parent", parent), phased("child", nothing))
    scene.trigger("child", "x")
    scene.step(3)
    scene.trigger("parent")
    scene.step(20)
    assert scene.run_of("parent").run.state == "COMPLETED"
    assert seen[-1] == 2


@pytest.mark.parametrize("force", [False, True])
def test_deadlocks_are_refused(store: Store, clock: VirtualClock, force: bool) -> None:
    """A run may not wait for its own flow, nor for one that waits for it."""
    errors: list[str] = []

    def parent(run: RunContext) -> None:
        run.trigger("child", "x", wait=True)

    def child(run: RunContext) -> None:
        for pipeline, partition in (("child", "x"), ("parent", "a")):
            try:
                run.trigger(pipeline, partition, wait=True, force=force)
            except Conflict as error:
                errors.append(str(error))

    scene = Scene(store, clock, phased("parent", parent), phased("child", child))
    flow_id = scene.trigger("parent")
    scene.step(20)
    assert "own flow" in errors[0]
    assert "waits for this run's flow" in errors[1]
    assert scene.state(flow_id) == "COMPLETE"


def test_the_depth_is_bounded(store: Store, clock: VirtualClock) -> None:
    """A chain that would never end ends with an error that names the bound."""
    errors: list[str] = []

    def body(run: RunContext) -> None:
        try:
            run.trigger("chain", str(int(run.partition) + 1), wait=True)
        except Conflict as error:
            errors.append(str(error))

    scene = Scene(store, clock, phased("chain", body))
    flow_id = scene.trigger("chain", "0")
    scene.step()
    assert len(errors) == 1
    assert "8 deep" in errors[0]
    assert scene.state(flow_id) == "COMPLETE"
    assert len(scene.client.flows.list(pipeline="chain").items) == 9


def test_a_caught_suspension_fails_the_run(store: Store, clock: VirtualClock) -> None:
    """A processor that catches everything gets an error that says what to change."""

    def parent(run: RunContext) -> None:
        try:
            run.trigger("child", "x", wait=True)
        except RunSuspended:
            run.log.info("caught")

    scene = Scene(store, clock, phased("parent", parent), phased("child", nothing))
    scene.trigger("parent")
    scene.step(1)
    failed = scene.run_of("parent").run
    assert failed.state == "FAILED"
    assert "do not catch RunSuspended" in failed.error_details["message"]
    assert not scene.client.flows.list(pipeline="child").items


def test_a_worker_that_lost_the_run_suspends_nothing(store: Store, clock: VirtualClock) -> None:
    """Its wait is dropped, and no flow is opened by it."""

    def parent(run: RunContext) -> None:
        if run.attempt == 1:
            clock.advance(seconds=61)
            Sweeper(store, jitter=no_jitter).run_once()
            run.signal = None
            run.started_at_s = clock.monotonic()
            run.trigger("child", "x", wait=True)

    scene = Scene(store, clock, phased("parent", parent), phased("child", nothing))
    scene.trigger("parent")
    scene.step(1)
    assert not scene.client.flows.list(pipeline="child").items


def test_an_external_worker_waits(store: Store, clock: VirtualClock) -> None:
    """The same request returns how the flow ended once the run is claimed again."""
    scene = Scene(store, clock, outside("parent"), phased("child", nothing))
    flow_id = scene.trigger("parent")
    scene.step(1)
    run_id = scene.run_of("parent").run.run_id
    workers, who = scene.client.workers, ExternalWorker("w", "")
    wanted = RunTrigger(pipeline="child", partition="x")
    for is_suspended in (True, False):
        held = scene.client.work.claim_by_id(who, decode("run", run_id))
        token = held.run.token
        workers.start(run_id, RunStart(fencing_token=token))
        reply = workers.wait(run_id, RunWaitRequest(fencing_token=token, trigger=wanted))
        assert reply.is_suspended is is_suspended
        if is_suspended:
            with pytest.raises(StaleToken):
                workers.wait(run_id, RunWaitRequest(fencing_token=token, trigger=wanted))
            scene.step(6)
    assert reply.flow is not None
    assert reply.flow.state == "COMPLETE"
    workers.complete(run_id, RunCompletion(fencing_token=token))
    scene.step(4)
    assert scene.state(flow_id) == "COMPLETE"


def test_flow_test_drives_sub_flows_and_shows_actions() -> None:
    """The kit runs the pipelines that a flow triggers, and lists what runs did."""

    def parent(run: RunContext) -> None:
        run.trigger("child", "x", wait=True)
        run.submit("single", partition="2025-01-01")

    single = Pipeline("single")
    single.processor("work")(nothing)
    with FlowTest(
        [phased("parent", parent), phased("child", nothing), single], partition="a", call=True
    ) as test:
        test.run()
        assert test.flow.state == "COMPLETE"
        assert [one.target for one in test.actions("submit")] == ["single/main/work"]
        assert test.elapsed >= 3 * 60_000_000
