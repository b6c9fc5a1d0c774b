"""EVENT_DRIVEN configs on built-in topics: a phase or a processor completes, a config starts."""

from __future__ import annotations

import json

import pytest

from penstock.bus.message import NewMessage
from penstock.bus.records import Subscription
from penstock.core.errors import NotFound
from penstock.core.ids import encode
from penstock.core.records.validation import convert_input
from penstock.db.store import Store
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.attempt_result import AttemptFailure, completed_result, failed
from penstock.runs.records import Submission
from penstock.runs.states import RunStatus
from penstock.runs.store.finish import run_end_many
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


def test_a_topic_that_cannot_exist_blocks_no_other(store: Store, clock: VirtualClock) -> None:
    """A config of an earlier release waits for a topic with a reserved name; others start."""
    pipelines = [Pipeline(name) for name in ("google_ads", "nightly", "after")]
    for pipeline in pipelines:
        pipeline.processor("work")(work)
    stage = Stage(store, clock, *pipelines)
    fields = {"pipeline_template": "after", "event_topic": "nightly.main.complete"}
    for customer in ("acme", "globex"):
        create_config(stage.client, customer, fields)
    stage.sql(
        "UPDATE configs SET event_topic = 'google_ads.main.complete' WHERE customer = "
        "(SELECT customer FROM customers WHERE customer_id = 'globex')"
    )
    assert Binder(store, jitter=lambda: 0.0).run_once().bound == 1


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


def test_a_chain_of_single_processors(stage: Stage, binder: Binder) -> None:
    """Pipelines without flows announce the ends of their runs: attempts that are retried do not."""
    for name in ("first", "second"):
        made = Pipeline(name)
        made.processor("work")(work)
        stage.client.register([made])
    config = create_config(
        stage.client, "acme", {"pipeline_template": "first", "schedule_cron": "0 2 * * *"}
    )
    create_config(
        stage.client,
        "acme",
        {
            "pipeline_template": "second",
            "event_topic": "first.main.complete",
            "event_filter": 'attributes.status = "success"',
        },
    )
    body = {"name": "seen", "topic": "first.main.complete"}
    stage.client.subscriptions.declare(convert_input(body, Subscription))
    binder.run_once()
    statuses = []
    for ending in ("retried", "dead", "partial", "success"):
        (run_id,) = stage.client.configs.start(
            encode("cfg", config.config_id), trigger_source="scheduler"
        ).run_ids
        (held,) = stage.claim().values()
        if ending in ("retried", "dead"):
            kind = "VALIDATION_ERROR" if ending == "dead" else "TRANSIENT_NETWORK"
            end = failed(held, AttemptFailure(error_type=kind), jitter=0.0)
        else:
            status = RunStatus.SUCCESS if ending == "success" else RunStatus.PARTIAL_SUCCESS
            end = completed_result(held, status=status, records=7, result='{"total_expected": 14}')
        stage.write(lambda tx, one=end: run_end_many(tx, [one]))  # type: ignore[misc]
        if ending == "retried":
            assert stage.sql("SELECT count(*) FROM outbox")[0][0] == 0
            waiting = [run.run_id for run in stage.client.runs.list(state="PENDING").items]
            stage.client.runs.cancel(waiting[0])
        deliver(stage, binder)
        for one in stage.client.subscriptions.pull("seen"):
            statuses.append(json.loads(one.message.data))
    assert [one["status"] for one in statuses] == ["failed", "failed", "partial", "success"]
    last = statuses[-1]
    assert (last["execution_id"], last["correlation_id"]) == (run_id, run_id)
    assert last["completeness"] == {
        "total_expected": 14, "total_processed": 7, "completeness_pct": 50.0, "quality_score": None,
    }  # fmt: skip
    assert {name: last[name] for name in ("flow_id", "customer_id", "pipeline", "phase")} == {
        "flow_id": None, "customer_id": "acme", "pipeline": "first", "phase": "main",
    }  # fmt: skip
    assert (last["processor_name"], last["trigger_source"]) == ("work", "scheduler")
    assert started(stage) == [("second", "acme")]


def test_a_completion_that_an_old_publisher_sent(
    stage: Stage, binder: Binder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release before publishes the internal form; the binder reads the run."""
    first = Pipeline("first")
    first.processor("work")(work)
    stage.client.register([first])
    for customer in ("acme", "globex"):
        fields = {
            "pipeline_template": "after",
            "event_topic": "first.main.complete",
            "event_filter": 'attributes.status = "success"',
        }
        create_config(stage.client, customer, fields)
    binder.run_once()
    stage.client.runs.submit(Submission(pipeline="first", customer="acme"))
    (held,) = stage.claim().values()
    end = completed_result(held, status=RunStatus.SUCCESS)
    stage.write(lambda tx: run_end_many(tx, [end]))
    monkeypatch.setattr("penstock.services.upkeep.public_messages", lambda _, messages: messages)
    deliver(stage, binder)
    assert started(stage) == [("after", "acme")]


def test_no_trigger_without_a_flow(stage: Stage, binder: Binder) -> None:
    """Nothing would ever be sent: a subscription is refused, with the topic to use."""
    body = {"name": "never", "topic": "after.main.trigger"}
    with pytest.raises(NotFound, match=r"use \.complete"):
        stage.client.subscriptions.declare(convert_input(body, Subscription))
    fields = {"pipeline_template": "after", "event_topic": "after.main.trigger"}
    create_config(stage.client, "acme", fields)
    assert binder.run_once().bound == 0


def test_nothing_is_announced_without_the_topic(stage: Stage) -> None:
    """Other topics of the system do not make runs announce their ends."""
    create_config(
        stage.client, "acme", {"pipeline_template": "after", "schedule_cron": "0 2 * * *"}
    )
    body = {"name": "other", "topic": "nba.raw.complete"}
    stage.client.subscriptions.declare(convert_input(body, Subscription))
    (config,) = stage.client.configs.list().items
    stage.client.configs.start(config.config_id)
    assert stage.complete() == 1
    assert stage.sql("SELECT count(*) FROM outbox")[0][0] == 0
