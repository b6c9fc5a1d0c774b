"""Gates of single runs: what is submitted or bound asks the processor's gate, on every path."""

from __future__ import annotations

import json
from typing import Any

import pytest

import penstock.flows.run_gates as run_gates
from penstock.bus.message import NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.client import Client
from penstock.core.errors import InvalidInput
from penstock.core.ids import decode, encode
from penstock.core.records.validation import convert_input
from penstock.flows.gates import gate
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.probe_request import ProbeRequest
from penstock.flows.gates.records import OverrideRequest
from penstock.flows.orchestrator import Orchestrator
from penstock.pipelines.declare.needs import historical, optional, same_day
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.dependency import DependencyKind
from penstock.runs.records import Run, Submission
from penstock.services.binder import Binder
from tests.kits.client_harness import Harness

DAY = "2025-11-17"
WAITING = {"mode": "daily"}
"""A mode that waits for absent data."""


class Scene:
    """A harness with a gated pipeline and tables that the test fills."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.rows: dict[str, int] = {}
        self.days: dict[str, int] = {}
        self.healed = True
        self.client = Client(harness.store, actor="tester", probe=self.probe)
        self.client.register([pipeline()])
        self.orchestrator = Orchestrator(harness.store, self.probe)
        self.binder = Binder(harness.store, jitter=lambda: 0.0)

    def probe(self, request: ProbeRequest) -> list[Observation]:
        """Return the rows and days that the test has set."""
        now = self.harness.clock.now()
        return [
            Observation(key=d.key, looked_at=now, days_present=self.days.get(d.table, 0))
            if d.kind is DependencyKind.HISTORICAL
            else Observation(key=d.key, looked_at=now, rows=self.rows.get(d.table, 0))
            for d in request.dependencies
        ]

    def submit(self, processor: str, **fields: Any) -> str:
        """Submit a run; its id."""
        made = Submission(pipeline="shop", processor=processor, partition=DAY, **fields)
        return self.client.runs.submit(made).run_id

    def step(self, minutes: float = 0) -> None:
        """Let time pass, then let the services work."""
        self.harness.clock.advance(seconds=minutes * 60)
        self.orchestrator.run_once()
        self.harness.admitter.run_once()

    def run(self, run_id: str) -> Run:
        """Return a run."""
        return self.client.runs.get(run_id)

    def waits(self, run_id: str) -> str | None:
        """Return why a run is pending."""
        return self.run(run_id).waits

    def bind(self, processor: str) -> None:
        """Bind the topic `feed` to a processor."""
        self.client.topics.create(Topic(name="feed"))
        binding = {"to": "runs", "pipeline": "shop", "processor": processor}
        body = {"name": "to-it", "topic": "feed", "kind": "bound", "binding": binding}
        self.client.subscriptions.declare(convert_input(body, Subscription))

    def publish(self, **attributes: str) -> str:
        """Publish one message on `feed` and let the binder serve it; its run."""
        given = {"partition": DAY, **attributes}
        messages = [NewMessage(data=b"{}", attributes=given)]
        (message,) = self.client.topics.publish("feed", messages).message_ids
        self.binder.run_once()
        (run,) = self.client.runs.list(message_id=message).items
        return run.run_id


def pipeline() -> Pipeline:
    """Return a pipeline with gates of every kind, and one processor that has none."""

    def work(run: Any) -> None:
        """Never called here."""

    made = Pipeline("shop", partition="day", warehouse="w", customer_column="customer")
    load = made.phase("load")
    load.processor("critical", needs=[same_day("t.rows"), optional("t.extra")])(work)
    load.processor("required", needs=[same_day("t.rows", fail_if_missing=True)])(work)
    load.processor("learned", needs=[historical("t.days", days=3)])(work)
    load.processor("free")(work)
    return made


@pytest.fixture
def scene(harness: Harness) -> Scene:
    """The scene on the store under test."""
    return Scene(harness)


def test_a_submitted_run_waits_for_a_critical_table(scene: Scene) -> None:
    """It is not claimable before its gate has seen the table, and starts degraded or complete."""
    run_id = scene.submit("critical", **WAITING)
    assert scene.waits(run_id) == "gated"
    assert scene.harness.claim(10) == []
    scene.step()
    assert scene.waits(run_id) == "gated"
    scene.rows |= {"t.rows": 10}
    scene.step(minutes=10)
    held = scene.harness.take()
    assert json.loads(held.gate_context or "{}")["missing"] == ["t.extra"]
    run = scene.run(run_id)
    assert (run.mode, run.partition) == ("daily", DAY)
    decisions = scene.client.gates.decisions("shop").items
    assert [one.verdict for one in decisions] == ["PROCEED_DEGRADED", "WAIT"]
    assert {one.run_id for one in decisions} == {run_id}
    assert {one.flow_id for one in decisions} == {None}


def test_a_message_bound_to_a_gated_processor_waits(scene: Scene) -> None:
    """The run exists from the ack of the message on, and starts once the table has arrived."""
    scene.bind("critical")
    run_id = scene.publish(processing_mode="daily", correlation_id="cause")
    scene.step()
    assert scene.waits(run_id) == "gated"
    assert scene.harness.claim(10) == []
    scene.rows |= {"t.rows": 10, "t.extra": 1}
    scene.step(minutes=10)
    held = scene.harness.take()
    assert held.gate_context is None
    assert held.trigger_message_id is not None
    assert scene.run(run_id).correlation_id == "cause"


@pytest.mark.parametrize("is_bound", [True, False])
def test_a_required_table_that_is_absent_fails_the_run(scene: Scene, is_bound: bool) -> None:
    """The run is a dead letter with the reason; a replay asks the gate again."""
    if is_bound:
        scene.bind("required")
        run_id = scene.publish(processing_mode="daily")
    else:
        run_id = scene.submit("required")
    scene.step()
    run = scene.run(run_id)
    assert (run.state, run.error_type, run.is_dead) == ("FAILED", "DEPENDENCY_MISSING", True)
    assert "t.rows" in run.error_details["message"]
    assert run.error_details["missing"] == ["t.rows"]
    (alert,) = scene.client.alerts.list(state="open").items
    assert alert.rule == "gate_fail"
    again = scene.client.runs.retry(run_id).run_id
    assert scene.client.alerts.list(state="open").items == []
    assert scene.waits(again) == "gated"
    scene.rows |= {"t.rows": 10}
    scene.step()
    assert scene.harness.take().run_id is not None


def test_waiting_ends_at_max_wait(scene: Scene) -> None:
    """A table that never arrives fails the run when the mode no longer waits."""
    run_id = scene.submit("critical", **WAITING)
    for _ in range(45):
        scene.step(minutes=10)
    assert scene.run(run_id).state == "FAILED"
    assert scene.harness.column("SELECT count(*) FROM run_gates WHERE probe_at IS NOT NULL") == [0]


def test_missing_history_asks_a_person(scene: Scene) -> None:
    """Three counted tries, then an intervention; resolving it evaluates the gate again."""
    run_id = scene.submit("learned", **WAITING)
    for _ in range(6):
        scene.step(minutes=30)
    (item,) = scene.client.interventions.list().items
    assert (item.run_id, item.tries, item.missing) == (run_id, 3, ["t.days"])
    assert scene.waits(run_id) == "gated"
    tree = scene.client.diagnostics.why_run(run_id)
    assert "the gate of learned has returned FAIL" in str(tree)
    scene.days |= {"t.days": 3}
    scene.client.interventions.resolve(item.intervention_id, "backfilled")
    scene.step()
    assert scene.harness.take() is not None
    assert scene.client.interventions.list().items == []


def test_an_override_lets_it_start(scene: Scene) -> None:
    """Granting an override evaluates the gates of waiting runs of the partition at once."""
    run_id = scene.submit("critical", **WAITING)
    scene.step()
    request = OverrideRequest(pipeline="shop", partition=DAY, reason="known", expires="1h")
    scene.client.overrides.grant(request)
    scene.step()
    held = scene.harness.take()
    assert json.loads(held.gate_context or "{}")["override_reason"] == "known"
    assert scene.run(run_id).run_id == run_id


def test_a_person_may_force_it_on_record(scene: Scene) -> None:
    """`force` starts immediately; journal and audit say who did it and why."""
    run_id = scene.submit("required", force=True, force_reason="a drill")
    assert scene.waits(run_id) == "ready"
    journal = scene.client.runs.detail(run_id).journal
    assert [(one.actor, one.why) for one in journal if one.action == "gate_forced"] == [
        ("tester", "a drill")
    ]
    assert scene.harness.column("SELECT action FROM audit") == ["GATE_FORCED"]
    free = scene.submit("free", force=True)
    assert [one.action for one in scene.client.runs.detail(free).journal] == ["created"]
    with pytest.raises(InvalidInput, match="force_reason"):
        scene.submit("required", force_reason="a drill")


def test_other_processors_and_batches_are_not_held_up(scene: Scene) -> None:
    """Ids keep the order of the batch; a processor without needs is ready at once."""
    made = [
        Submission(pipeline="shop", processor=name, partition=DAY)
        for name in ("free", "required", "free", "critical")
    ]
    ids = scene.client.runs.submit_many(made)
    assert [scene.run(one).processor for one in ids] == ["free", "required", "free", "critical"]
    assert [scene.waits(one) for one in ids] == ["ready", "gated", "ready", "gated"]


def test_order_holds_behind_a_gate(scene: Scene) -> None:
    """Runs of one ordering key start in the order of submission, whatever gates decide first."""
    first = scene.submit("critical", ordering_key="k", **WAITING)
    second = scene.submit("free", ordering_key="k")
    third = scene.submit("learned", ordering_key="k", **WAITING)
    scene.days |= {"t.days": 3}
    scene.step()
    assert [scene.waits(one) for one in (first, second, third)] == ["gated", "blocked", "blocked"]
    scene.rows |= {"t.rows": 10, "t.extra": 1}
    scene.step(minutes=10)
    for wanted in (first, second, third):
        held = scene.harness.take()
        assert scene.run(wanted).state == "RUNNING"
        scene.harness.complete(held)
        scene.step()


def test_a_retry_keeps_its_place(scene: Scene) -> None:
    """A run of a key whose gate passes later waits for the retry of the run before it."""
    scene.rows |= {"t.rows": 10, "t.extra": 1}
    first = scene.submit("critical", ordering_key="k", **WAITING)
    scene.step()
    held = scene.harness.take()
    scene.rows.clear()
    second = scene.submit("critical", ordering_key="k", **WAITING)
    scene.step()
    scene.rows |= {"t.rows": 10, "t.extra": 1}
    (failed,) = scene.harness.fail(held, error_type="TRANSIENT_NETWORK")
    for _ in range(2):
        scene.step(minutes=10)
        assert scene.waits(second) == "blocked"
    (retry,) = scene.harness.claim()
    assert (retry.run_id, retry.root_run_id) == (failed.retry_run_id, decode("run", first))
    ahead = scene.client.diagnostics.why_run(second)
    assert encode("run", retry.run_id) in str(ahead)
    scene.harness.complete(retry)
    scene.step()
    assert [encode("run", one.run_id) for one in scene.harness.claim()] == [second]


def test_a_gate_holds_no_run_before_it(scene: Scene) -> None:
    """A blocked run starts once it is the first, although a later one still waits for its gate."""
    scene.rows |= {"t.rows": 10, "t.extra": 1}
    scene.days |= {"t.days": 3}
    scene.submit("critical", ordering_key="k", **WAITING)
    scene.step()
    held = scene.harness.take()
    second = scene.submit("learned", ordering_key="k", **WAITING)
    scene.step(minutes=10)
    scene.rows.clear()
    third = scene.submit("critical", ordering_key="k", **WAITING)
    scene.step(minutes=10)
    assert [scene.waits(one) for one in (second, third)] == ["blocked", "gated"]
    scene.harness.complete(held)
    scene.step()
    assert [scene.waits(one) for one in (second, third)] == ["ready", "gated"]


def test_a_cancelled_run_needs_no_decision(scene: Scene) -> None:
    """The gate of a run that ended while it waited is closed."""
    run_id = scene.submit("critical", **WAITING)
    scene.client.runs.cancel(run_id)
    scene.step(minutes=10)
    assert scene.run(run_id).state == "CANCELLED"
    assert scene.harness.column("SELECT count(*) FROM run_gates WHERE probe_at IS NOT NULL") == [0]


def test_a_retry_keeps_what_the_gate_said(scene: Scene) -> None:
    """An automatic retry is not gated again and is given the same context."""
    scene.rows |= {"t.rows": 10}
    scene.submit("critical", **WAITING)
    scene.step()
    held = scene.harness.take()
    scene.harness.fail(held, error_type="TRANSIENT_NETWORK")
    scene.step(minutes=10)
    again = scene.harness.take()
    assert again.attempt == 2
    assert again.gate_context == held.gate_context is not None


def test_a_result_under_a_lost_lease_is_dropped(scene: Scene) -> None:
    """A probe that returns after its gate was decided elsewhere changes nothing."""
    scene.submit("critical", **WAITING)
    slow = Orchestrator(scene.harness.store, scene.probe, holder="slow")
    gates = slow._run_gates
    _, (order,) = scene.harness.store.write(lambda tx: gates._step(tx, []))
    gates._start_probe(order)
    scene.rows |= {"t.rows": 10, "t.extra": 1}
    scene.step(minutes=3)
    scene.harness.take()
    counts = gates.run_once()
    assert counts.decisions == 0


def test_a_caller_bound_to_a_customer(scene: Scene) -> None:
    """It may submit, force, approve and cancel runs behind gates of its own."""
    for customer in ("acme", "other"):
        scene.submit("free", customer=customer)
    bound = scene.client.scoped("acme", actor="bound")
    made = Submission(pipeline="shop", processor="critical", partition=DAY, mode="daily")
    waiting, cancelled = bound.runs.submit_many([made, made])
    forced = Submission(pipeline="shop", processor="required", partition=DAY, force=True)
    assert bound.runs.get(bound.runs.submit(forced).run_id).waits == "ready"
    assert bound.runs.cancel(cancelled).outcome == "cancelled"
    scene.step()
    request = OverrideRequest(pipeline="shop", partition=DAY, reason="known", expires="1h")
    bound.overrides.grant(request)
    assert "has returned WAIT" in str(bound.diagnostics.why_run(waiting))
    scene.step()
    assert bound.runs.get(waiting).waits == "ready"
    other = scene.client.scoped("other", actor="bound")
    assert other.gates.decisions("shop").items == []
    assert len(bound.gates.decisions("shop").items) == 2


def test_a_gate_that_fails_stops_no_other(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of one gate leaves its run waiting; the gates of others are decided."""
    broken = scene.submit("critical", customer="acme", **WAITING)
    fine = scene.submit("critical", customer="other", **WAITING)
    scene.rows |= {"t.rows": 10, "t.extra": 1}
    decide = gate.decide

    def failing(given: Any) -> Any:
        if not scene.healed and given.partition == "broken":
            raise RuntimeError("cannot decide")
        return decide(given)

    scene.healed = False
    scene.harness.sql("UPDATE run_gates SET partition = 'broken' WHERE run_id = 1")
    monkeypatch.setattr(run_gates, "decide", failing)
    scene.step()
    assert [scene.waits(one) for one in (broken, fine)] == ["gated", "ready"]
    scene.healed = True
    scene.step(minutes=3)
    assert scene.waits(broken) == "ready"
