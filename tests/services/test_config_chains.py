"""EVENT_DRIVEN configs on built-in topics: a phase or a processor completes, a config starts."""

from __future__ import annotations

import pytest

from penstock.bus.message import NewMessage
from penstock.db.store import Store
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.services.binder import Binder
from penstock.services.upkeep import OutboxPublisher
from penstock.testing.clock import VirtualClock
from tests.kits.configs import config_of, create_config
from tests.kits.flows import Stage, chain, work


@pytest.fixture
def stage(store: Store, clock: VirtualClock) -> Stage:
    """A pipeline of two phases, and one of a single processor that follows it."""
    after = Pipeline("after")
    after.processor("work")(work)
    return Stage(store, clock, chain("raw", "analytics"), after)


@pytest.fixture
def binder(stage: Stage) -> Binder:
    """A binder over the store, without jitter."""
    return Binder(stage.store, jitter=lambda: 0.0)


def deliver(stage: Stage, binder: Binder) -> None:
    """Publish what waits in the outbox and let the binder serve it."""
    OutboxPublisher(stage.store).run_once()
    binder.run_once()


def started(stage: Stage) -> list[tuple[str, str | None]]:
    """(pipeline, customer) of the waiting runs that a message started."""
    runs = stage.client.runs.list().items
    return [(run.pipeline, run.customer) for run in runs if run.trigger_source == "event"]


def test_a_phase_completes_and_a_config_starts(stage: Stage, binder: Binder) -> None:
    """Without a subscription, the topic exists because a config names it."""
    for customer in ("acme", "globex"):
        create_config(
            stage.client,
            customer,
            {"pipeline_template": "after", "event_topic": "nba.raw.complete"},
        )
    assert (binder.run_once().bound, binder.run_once().bound) == (1, 0)
    stage.open()
    stage.complete("raw_job")
    stage.step()
    deliver(stage, binder)
    assert started(stage) == [("after", "acme")]


@pytest.mark.parametrize(
    "topic", ["nba.analytics.trigger", "penstock.alerts", "penstock.slo-violation"]
)
def test_every_built_in_topic(stage: Stage, binder: Binder, topic: str) -> None:
    """Each comes into being for the config that waits for it, also one that is enabled later."""
    fields = {"pipeline_template": "after", "event_topic": topic, "is_active": False}
    config = stage.client.configs.create("acme", config_of(fields))
    assert binder.run_once().bound == 0
    stage.client.configs.enable(config.config_id)
    assert binder.run_once().bound == 1
    message = NewMessage(data=b"{}", attributes={"customer_id": "acme"})
    stage.client.topics.publish(topic, [message])
    binder.run_once()
    assert started(stage) == [("after", "acme")]


@pytest.mark.parametrize("topic", ["nba.row.complete", "orders", "penstock.alert"])
def test_other_names_create_no_topic(stage: Stage, binder: Binder, topic: str) -> None:
    """A topic of the user is created by the user, so that a typo does not look like a topic."""
    create_config(stage.client, "acme", {"pipeline_template": "after", "event_topic": topic})
    assert binder.run_once().bound == 0
    assert stage.client.topics.list().items == []
