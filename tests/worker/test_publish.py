"""`run.publish`: a message of a run is published only while the run is held."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.bus.message import Delivery, NewMessage, SubscriptionSpec, TopicSpec
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.client import Client
from penstock.core.errors import Conflict, InvalidInput, LeaseLost, NotFound, StaleToken
from penstock.core.ids import encode
from penstock.db.store import Store
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.external.client.work import ExternalWorker
from penstock.runs.records import Submission
from penstock.runs.sweeper import Sweeper
from penstock.testing.clock import VirtualClock
from tests.kits.client_harness import Harness
from tests.worker.kit import lose_sessions, steps_of


def reader(store: Store) -> EmbeddedBus:
    """Declare the topic `events` with a subscription `reader`."""
    bus = EmbeddedBus(store)
    bus.declare([TopicSpec(name="events")], [SubscriptionSpec(name="reader", topic="events")])
    return bus


def worker(store: Store, clock: VirtualClock, body: Any) -> Any:
    """Return the steps of a worker with one processor, for which a run waits."""
    pipeline = Pipeline("p")
    pipeline.processor("work")(body)
    steps = steps_of(store, pipeline, clock)
    Client(store).runs.submit(Submission(pipeline="p", customer="acme", correlation_id="cause"))
    return steps


def pulled(bus: EmbeddedBus) -> list[Delivery]:
    """Return the messages of the subscription."""
    return bus.pull("reader")


def test_a_held_run_publishes(store: Store, clock: VirtualClock) -> None:
    """The message has the run's ids; a repeated dedupe id returns the first message."""
    bus = reader(store)
    ids = []

    def body(run: Any) -> None:
        for _ in range(2):
            ids.append(run.publish("events", {"n": 1}, dedupe_id=run.idempotency_key))
        with pytest.raises(NotFound):
            run.publish("unknown")

    worker(store, clock, body).run_once()
    (one,) = pulled(bus)
    assert ids == [one.message_id, one.message_id]
    assert json.loads(one.data) == {"n": 1}
    assert one.attributes["correlation_id"] == "cause"
    assert one.attributes["run_id"].startswith("run_")


def test_a_zombie_publishes_nothing(store: Store, clock: VirtualClock) -> None:
    """A worker that lost its run is refused, also without a dedupe id."""
    bus = reader(store)
    errors: list[Exception] = []

    def body(run: Any) -> None:
        run.publish("events", "before")
        lose_sessions(store, clock, 61)
        Sweeper(store, jitter=lambda: 0.0).run_once()
        try:
            run.publish("events", "after")
        except LeaseLost as error:
            errors.append(error)
            raise

    worker(store, clock, body).run_once()
    assert [one.data for one in pulled(bus)] == [b"before"]
    assert len(errors) == 1


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


def test_not_in_a_child_process(store: Store, clock: VirtualClock) -> None:
    """A processor in a process of its own has no store; the error says what to do."""

    def body(run: Any) -> None:
        run.publish_message = None
        with pytest.raises(Conflict, match="child process"):
            run.publish("events", "x")

    assert worker(store, clock, body).run_once() is not None
