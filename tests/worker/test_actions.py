"""Actions of a run: performed once, in the transaction that completes it, and not otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.audit.telemetry import RunEnded
from penstock.bus.message import Delivery, NewMessage, SubscriptionSpec, TopicSpec
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.client import Client
from penstock.core.errors import Conflict, InvalidInput, LeaseLost, NotFound, StaleToken
from penstock.core.ids import encode
from penstock.db.store import Store
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.partition import day
from penstock.runs.action_records import RunActions, RunMessage, RunSubmission, RunTrigger
from penstock.runs.admitter import Admitter
from penstock.runs.external.client.work import CompletionResult, ExternalWorker
from penstock.runs.records import Submission
from penstock.runs.sweeper import Sweeper
from penstock.testing.clock import VirtualClock
from penstock.worker.context import RunContext
from penstock.worker.worker_core import WorkerCore
from tests.kits.client_harness import Harness
from tests.worker import process_bodies
from tests.worker.kit import Running, lose_sessions, steps_of, submit

Body = Callable[[Any], Any]


def nothing(run: RunContext) -> None:
    """Do nothing."""


def other_pipelines() -> list[Pipeline]:
    """Return a pipeline of one processor with a parameter, and one with two phases."""
    single = Pipeline(
        "other", parameters={"type": "object", "properties": {"n": {"type": "integer"}}}
    )
    single.processor("work")(nothing)
    phased = Pipeline("phased", partition=day())
    first = phased.phase("first")
    first.processor("a")(nothing)
    phased.phase("second", after=first).processor("b")(nothing)
    return [single, phased]


def reader(store: Store) -> EmbeddedBus:
    """Declare the topic `events` with a subscription `reader`."""
    bus = EmbeddedBus(store)
    bus.declare([TopicSpec(name="events")], [SubscriptionSpec(name="reader", topic="events")])
    return bus


def worker(store: Store, clock: VirtualClock, body: Body, n: int = 1, **terms: Any) -> WorkerCore:
    """Return the steps of a worker with one processor, for which `n` runs wait."""
    pipeline = Pipeline("p")
    pipeline.processor("work", **terms)(body)
    steps = steps_of(store, pipeline, clock)
    client = Client(store)
    client.register(other_pipelines())
    for _ in range(n):
        client.runs.submit(
            Submission(pipeline="p", customer="acme", correlation_id="cause", priority=7)
        )
    return steps


def pulled(bus: EmbeddedBus) -> list[Delivery]:
    """Return the messages of the subscription."""
    return bus.pull("reader", max_messages=100)


def act(run: Any) -> None:
    """Publish, submit and trigger."""
    run.publish("events", {"n": 1}, attributes={"kind": "done"})
    run.submit("other", parameters={"n": 3})
    run.trigger("phased", "2025-01-01")


def ended(store: Store) -> Any:
    """Return the detail of the newest ended run of pipeline `p`."""
    client = Client(store)
    found = [run for run in client.runs.list(pipeline="p").items if run.finished_at is not None]
    newest = max(found, key=lambda run: (run.finished_at, run.attempt, run.run_id))
    return client.runs.detail(newest.run_id)


def test_actions_are_performed_when_the_run_completes(store: Store, clock: VirtualClock) -> None:
    """Nothing happens before the end; then all of it, with the correlation and causation ids."""
    bus = reader(store)
    seen: list[int] = []

    def body(run: RunContext) -> None:
        act(run)
        seen.append(len(pulled(bus)))

    worker(store, clock, body).run_once()
    (message,) = pulled(bus)
    detail = ended(store)
    assert seen == [0]
    assert json.loads(message.data) == {"n": 1}
    shown = dict(message.attributes)
    assert shown.pop("traceparent").startswith("00-")  # what the message starts is in its trace
    assert shown == {
        "kind": "done", "run_id": detail.run.run_id, "correlation_id": "cause",
        "causation_id": detail.run.run_id,
    }  # fmt: skip
    client = Client(store)
    (made,) = client.runs.list(pipeline="other").items
    assert (made.customer, made.correlation_id, made.priority) == ("acme", "cause", 7)
    assert (made.trigger_source, made.parameters) == ("run", {"n": 3})
    assert client.runs.detail(made.run_id).caused_by == detail.run.run_id
    (flow,) = client.flows.list(pipeline="phased").items
    assert (flow.customer, flow.correlation_id, flow.partition) == ("acme", "cause", "2025-01-01")
    assert (flow.opened_by, flow.trigger_source) == (detail.run.run_id, "run")
    kept = [(one.kind, one.target, one.partition, one.subject) for one in detail.actions]
    assert kept == [
        ("publish", "events", None, message.message_id),
        ("submit", "other/main/work", None, made.run_id),
        ("trigger", "phased", "2025-01-01", flow.flow_id),
    ]


def test_a_failed_attempt_performs_nothing(store: Store, clock: VirtualClock) -> None:
    """The next attempt states its actions again, so they are performed once."""
    bus = reader(store)

    def body(run: RunContext) -> None:
        act(run)
        if run.attempt == 1:
            raise ConnectionError("once")

    steps = worker(store, clock, body, retry={"max_attempts": 2, "base_delay_minutes": 0})
    steps.run_once()
    assert not pulled(bus)
    assert not ended(store).actions
    clock.advance(seconds=9)
    Admitter(store).run_once()
    steps.run_once()
    client = Client(store)
    assert len(pulled(bus)) == 1
    assert len(client.runs.list(pipeline="other").items) == 1
    assert len(client.flows.list(pipeline="phased").items) == 1


@pytest.mark.parametrize("n", [1, 3])
def test_a_key_is_performed_once(store: Store, clock: VirtualClock, n: int) -> None:
    """Runs that state the same key: the first performs it, the others keep a repeat."""
    bus = reader(store)

    def body(run: RunContext) -> None:
        run.publish("events", "x", key="daily")
        run.submit("other", parameters={"n": 1}, key="daily")
        run.trigger("phased", "2025-01-01", key="daily")
        run.publish("events", "y", key="daily")

    worker(store, clock, body, n).run_once()
    client = Client(store)
    assert [one.data for one in pulled(bus)] == [b"x"]
    assert len(client.runs.list(pipeline="other").items) == 1
    details = [client.runs.detail(r.run_id) for r in client.runs.list(pipeline="p").items]
    actions = [one for detail in details for one in detail.actions]
    assert len(actions) == 4 * n
    assert sum(not one.is_repeat for one in actions) == 3
    for kind in ("publish", "submit", "trigger"):
        subjects = {one.subject for one in actions if one.kind == kind}
        assert len(subjects) == 1
        assert None not in subjects


def test_calls_are_checked_where_they_are_made(store: Store, clock: VirtualClock) -> None:
    """An unknown topic or pipeline, bad parameters or a bad partition raise in the processor."""
    reader(store)
    checked: list[str] = []

    def body(run: RunContext) -> None:
        with pytest.raises(NotFound, match="unknown"):
            run.publish("unknown", "x")
        with pytest.raises(InvalidInput, match="pipeline: expected a registered pipeline"):
            run.submit("othr")
        with pytest.raises(InvalidInput, match="n"):
            run.submit("other", parameters={"n": "text"})
        with pytest.raises(InvalidInput, match="processor"):
            run.submit("phased", "c")
        with pytest.raises(InvalidInput, match="partition"):
            run.trigger("phased", "2026-13-40")
        with pytest.raises(InvalidInput, match="phases"):
            run.trigger("phased", "2025-01-01", phases=["third"])
        with pytest.raises(InvalidInput, match="a pipeline that has flows"):
            run.trigger("other")
        with pytest.raises(InvalidInput, match="priority"):
            run.submit("other", parameters={"n": 1}, priority=11)
        checked.append("all")

    worker(store, clock, body).run_once()
    assert checked == ["all"], ended(store).run.error_details
    assert not ended(store).actions


def test_actions_are_bounded(store: Store, clock: VirtualClock) -> None:
    """Too many actions, or too much data, raise where the processor states them."""
    reader(store)
    checked: list[str] = []

    def body(run: RunContext) -> None:
        with pytest.raises(InvalidInput, match="at most 1,000 per run"):
            run.port.act(RunActions(publish=[RunMessage(topic="events", data=b"x")] * 1_001))
        run.publish("events", b"x" * 700_000)
        with pytest.raises(InvalidInput, match="1,048,576 bytes"):
            run.publish("events", b"x" * 700_000)
        for n in range(100):
            run.artifact(f"a{n}", "gs://x")
        with pytest.raises(InvalidInput, match="at most 100 per run"):
            run.artifact("one more", "gs://x")
        checked.append("all")

    worker(store, clock, body).run_once()
    assert checked == ["all"]
    assert len(ended(store).actions) == 1


def test_an_action_that_became_impossible_fails_its_run_alone(
    store: Store, clock: VirtualClock
) -> None:
    """A topic that is deleted before the end fails the run with the reason; others complete."""
    reader(store)

    def body(run: RunContext) -> None:
        if run.held.run_id == 1:
            run.publish("events", "x")
            Client(store).topics.delete("events")

    worker(store, clock, body, 2).run_once()
    client = Client(store)
    by_state = {str(run.state): client.runs.get(run.run_id) for run in client.runs.list().items}
    assert set(by_state) == {"FAILED", "COMPLETED"}
    assert "events" in by_state["FAILED"].error_details["message"]


def test_publishing_at_once(store: Store, clock: VirtualClock) -> None:
    """`at_once` publishes whatever the end, with an id; a repeated dedupe id returns the first."""
    bus = reader(store)
    ids = []

    def body(run: RunContext) -> None:
        for _ in range(2):
            ids.append(run.publish("events", "x", dedupe_id=run.idempotency_key, at_once=True))
        raise ValueError("fails")

    worker(store, clock, body).run_once()
    (one,) = pulled(bus)
    assert ids == [one.message_id, one.message_id]


def test_a_zombie_performs_nothing(store: Store, clock: VirtualClock) -> None:
    """A worker that lost its run is refused immediately, and its actions are dropped."""
    bus = reader(store)
    errors: list[Exception] = []

    def body(run: RunContext) -> None:
        run.publish("events", "at the end")
        lose_sessions(store, clock, 61)
        Sweeper(store, jitter=lambda: 0.0).run_once()
        with pytest.raises(LeaseLost):
            run.state.save(page=1)
        try:
            run.publish("events", "now", at_once=True)
        except LeaseLost as error:
            errors.append(error)

    worker(store, clock, body).run_once()
    assert not pulled(bus)
    assert len(errors) == 1


def test_a_context_without_a_worker_cannot_act(store: Store, clock: VirtualClock) -> None:
    """The error says why."""

    def body(run: RunContext) -> None:
        run.make_port = None
        with pytest.raises(Conflict, match="no worker"):
            run.publish("events", "x")

    worker(store, clock, body).run_once()
    assert ended(store).run.state == "COMPLETED"


def test_artifacts_are_kept_also_if_the_run_fails(store: Store, clock: VirtualClock) -> None:
    """The last one of a name counts; credentials in the address are masked."""

    def body(run: RunContext) -> None:
        run.artifact("log", "gs://first")
        run.artifact("log", "https://user:hunter2@host/log", size=7, checksum="sha256:ab")
        with pytest.raises(InvalidInput, match="size"):
            run.artifact("bad", "gs://x", size=-1)
        raise ValueError("fails")

    worker(store, clock, body).run_once()
    (kept,) = ended(store).artifacts
    assert (kept.name, kept.size, kept.checksum) == ("log", 7, "sha256:ab")
    assert "hunter2" not in kept.uri


def test_the_next_attempt_reads_the_state(store: Store, clock: VirtualClock) -> None:
    """A changed state is stored with the failure; a completed run leaves none for a retry."""
    seen: list[dict[str, Any]] = []

    def body(run: RunContext) -> None:
        seen.append(dict(run.state))
        run.state["page"] = run.state.get("page", 0) + 1
        if run.state["page"] < 3:
            raise ConnectionError("again")

    steps = worker(store, clock, body, retry={"max_attempts": 2, "base_delay_minutes": 0})
    client = Client(store)
    for _ in range(2):
        steps.run_once()
        clock.advance(seconds=9)
        Admitter(store).run_once()
    detail = ended(store)
    assert detail.run.is_dead
    assert detail.checkpoint.state == {"page": 2}
    client.runs.retry(detail.run.run_id)
    steps.run_once()
    assert seen == [{}, {"page": 1}, {"page": 2}]
    client.runs.retry(ended(store).run.run_id)
    steps.run_once()
    assert seen[-1] == {}


def test_a_heartbeat_stores_the_state(store: Store, clock: VirtualClock) -> None:
    """A worker that dies loses at most the changes since its last heartbeat."""
    shown: list[Any] = []

    def body(run: RunContext) -> None:
        run.state.update(page=1, next_page_token="abc")
        steps.heartbeat_once()
        shown.append(Client(store).runs.detail(run.run_id).checkpoint.state)  # type: ignore[union-attr]
        shown.append(Client(store).workers.load_state(run.run_id).state)
        with pytest.raises(InvalidInput, match="65,536 bytes"):
            run.state["big"] = "x" * 70_000
        with pytest.raises(InvalidInput, match="state"):
            run.state["bad"] = object()
        assert set(run.state) == {"page", "next_page_token"}
        del run.state["page"]

    steps = worker(store, clock, body)
    steps.run_once()
    assert shown[0]["page"] == 1
    assert shown[1] == {"page": 1, "next_page_token": "abc"}


def test_an_external_worker_publishes_under_its_token(harness: Harness) -> None:
    """`topics.publish` takes the run and its token; a stale one is refused with 409."""
    bus = reader(harness.store)
    run_id = harness.submit(pipeline="outside", customer="acme")
    claimed = harness.client.work.claim_by_id(ExternalWorker("w", "k"), run_id)
    client, name, token = harness.client, encode("run", run_id), claimed.run.token
    message = [NewMessage(data=b"x")]
    client.topics.publish("events", message, run_id=name, fencing_token=token)
    with pytest.raises(StaleToken):
        client.topics.publish("events", message, run_id=name, fencing_token=token - 1)
    with pytest.raises(InvalidInput, match="fencing_token"):
        client.topics.publish("events", message, run_id=name)
    harness.client.work.start(run_id, ExternalWorker("w", "k"))
    harness.client.work.complete(run_id, ExternalWorker("w", "k"))
    with pytest.raises(StaleToken):
        client.topics.publish("events", message, run_id=name, fencing_token=token)
    assert len(pulled(bus)) == 1


def test_an_external_worker_acts_with_its_completion(harness: Harness) -> None:
    """A repeat of the report does nothing more; an action that is refused leaves the run held."""
    bus, client = reader(harness.store), harness.client
    client.register(other_pipelines())
    run_id = harness.submit(pipeline="outside", customer="acme")
    who = ExternalWorker("w", "k")
    token = client.work.claim_by_id(who, run_id).run.token
    client.work.start(run_id, who)
    wrong = RunActions(submit=[RunSubmission(pipeline="othr")])
    with pytest.raises(InvalidInput, match="othr"):
        client.work.complete(run_id, who, token=token, completion=CompletionResult(actions=wrong))
    right = RunActions(
        publish=[RunMessage(topic="events", data=b"x")],
        submit=[RunSubmission(pipeline="other", parameters={"n": 1})],
        trigger=[RunTrigger(pipeline="phased", partition="2025-01-01")],
    )
    for _ in range(2):
        done = CompletionResult(actions=right)
        assert client.work.complete(run_id, who, token=token, completion=done).state == "COMPLETED"
    assert len(pulled(bus)) == 1
    assert len(client.runs.list(pipeline="other").items) == 1
    kinds = [one.kind for one in client.runs.detail(encode("run", run_id)).actions]
    assert kinds == ["publish", "submit", "trigger"]


def test_a_child_process_acts(store: Store) -> None:
    """Actions, artifacts and the state of a child go over its pipe; errors come back."""
    bus = reader(store)
    (first,) = submit(store, process_bodies.pipeline, 1, parameters='{"do":"act"}')
    with Running(store, [process_bodies.pipeline], concurrency=1) as running:
        running.events.until(RunEnded, 1)
        client = Client(store)
        failed = client.runs.detail(encode("run", first))
        assert not failed.actions
        assert failed.checkpoint is not None
        assert failed.checkpoint.state == {"page": 1}
        (live,) = client.runs.list(state="PENDING").items
        client.runs.cancel(live.run_id)
        second = client.runs.retry(live.run_id)
        running.events.until(RunEnded, 2)
    done = client.runs.detail(second.run_id)
    assert [one.kind for one in done.actions] == ["publish"]
    assert [one.name for one in done.artifacts] == ["made"]
    (message,) = bus.pull("reader")
    assert json.loads(message.data) == {"page": 1}
    entries = [one.message for one in client.runs.logs(second.run_id).entries]
    assert any("refused: pipeline" in text for text in entries)
