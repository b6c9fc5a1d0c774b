"""Bound messages of any content: each is refused on its own, and other customers' are served."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.bus.delivery_sweeper import DeliverySweeper
from penstock.bus.message import NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.core.records.validation import convert_input
from penstock.flows.client import start_config
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.client import submission
from penstock.services import binder as binder_module
from penstock.services import config_starts
from penstock.services.binder import Binder
from tests.kits.client_harness import Harness

VALUES: list[Any] = [
    "abc", "", "\x00", "\ud800", "x" * 3_000, -1, 2**70, 1e308, True, [], [1], [[{}]], {},
    {"a": 1}, {"": {"a": []}}, "2025-12-31",
]  # fmt: skip
COMPLETION_FIELDS = (
    "pipeline_template", "customer_id", "processor_name", "phase", "partition", "game_date",
    "status", "correlation_id", "execution_id", "processing_mode", "trigger_source",
    "completeness", "dependencies_met", "dependency_checks", "entities_changed",
    "records_processed", "metadata",
)  # fmt: skip
GOOD = {"processor_name": "box", "phase": "raw", "partition": "2025-12-31"}
NESTED: list[dict[str, Any]] = [
    {"completeness": {"total_processed": "abc"}},
    {"completeness": {"quality_score": []}},
    {"completeness": {"quality_score": 7}},
    {"dependency_checks": [1, None, {"table": 3}]},
    {"entities_changed": {"players": "all"}},
    {"entities_changed": {"players": [{"id": 1}]}},
    {"records_processed": 1.5},
    {"metadata": {"deep": {"nul": "\x00"}}},
]
BODIES = [b"", b"no json", b"[]", b"[1]", b'"text"', b"null", b"1", b"{", b'{"a":1,"a":2}',
          b"\xff\xfe", b"{}" + b" " * 10, b"[" * 5_000]  # fmt: skip


@pytest.fixture
def binder(harness: Harness) -> Binder:
    """A binder over the store under test, without jitter."""
    return Binder(harness.store, jitter=lambda: 0.0, batch=1_000)


def bind(harness: Harness, binding: dict[str, Any], customer: str | None = None) -> None:
    """Create a topic `feed` with a bound subscription."""
    harness.client.topics.create(Topic(name="feed"), customer=customer)
    body = {"name": "to-it", "topic": "feed", "kind": "bound", "binding": binding}
    harness.client.subscriptions.declare(convert_input(body, Subscription), customer=customer)


def publish(harness: Harness, data: bytes, customer: str | None = None, **more: str) -> None:
    """Publish one message on `feed`."""
    attributes = {"from": "corpus", **more}
    harness.client.topics.publish(
        "feed", [NewMessage(data=data, attributes=attributes)], customer=customer
    )


def completion_corpus() -> list[bytes]:
    """Return completion messages with wrong types in every field, and bodies of any form."""
    typed = [{**GOOD, name: value} for name in COMPLETION_FIELDS for value in VALUES]
    nested = [{**GOOD, **more} for more in NESTED]
    return [json.dumps(one).encode() for one in typed + nested] + BODIES


def daily(harness: Harness) -> None:
    """Register a pipeline that external processors report on."""
    pipeline = Pipeline("daily", partition="day")
    raw = pipeline.phase("raw")
    raw.external("box")
    pipeline.phase("next", after=raw).external("sum")
    harness.client.register([pipeline])


def test_completions_of_any_type(harness: Harness, binder: Binder) -> None:
    """One pass settles the whole corpus; the other customer's report in it is recorded."""
    daily(harness)
    bind(harness, {"to": "completions", "pipeline": "daily"})
    bind(harness, {"to": "completions", "pipeline": "daily"}, customer="zenith")
    corpus = completion_corpus()
    for data in corpus:
        publish(harness, data)
    publish(harness, json.dumps({**GOOD, "customer_id": "other", "execution_id": "e1"}).encode())
    publish(harness, json.dumps(GOOD).encode(), customer="zenith")
    counts = binder.run_once()
    assert counts.done + counts.nacked == len(corpus) + 2
    assert counts.nacked > len(corpus) // 2
    assert harness.column("SELECT count(*) FROM deliveries") == [0]
    flows = harness.client.flows.list().items
    assert {"other", "zenith"} <= {flow.customer for flow in flows}
    dead = harness.client.dead_letters.list(limit=1_000).items
    refused = [one for one in dead if one.message_id is not None]
    assert len(refused) == counts.nacked
    assert {one.error_kind for one in refused} == {"poison"}
    assert all(one.error_details for one in refused)


def test_runs_of_any_type(harness: Harness, binder: Binder) -> None:
    """A message that cannot become a run is a dead letter; the others of the batch are runs."""
    bind(harness, {"to": "runs", "pipeline": "nightly"})
    corpus = [json.dumps({"days": value}).encode() for value in VALUES] + BODIES
    for data in corpus:
        publish(harness, data, customer_id="acme")
    for name, value in (("customer_id", "no name!"), ("partition", ""), ("partition", "\u2028"),
                        ("correlation_id", "x" * 1_000)):  # fmt: skip
        publish(harness, b"{}", **{name: value})
    publish(harness, b'{"days": 3}', customer_id="other")
    counts = binder.run_once()
    assert counts.done + counts.nacked == len(corpus) + 5
    assert harness.column("SELECT count(*) FROM deliveries") == [0]
    runs = harness.client.runs.list(limit=500).items
    assert [run.parameters for run in runs if run.customer == "other"] == [{"days": 3}]


def test_an_insert_that_fails_is_one_messages_failure(
    harness: Harness, binder: Binder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that the checks did not foresee fails its own message, not the batch."""
    bind(harness, {"to": "runs", "pipeline": "nightly"})
    for number in (1, 2, 3):
        publish(harness, json.dumps({"days": number}).encode(), customer_id=f"c{number}")
    insert = submission.insert

    def failing(tx: Any, store: Any, names: Any, checked: Any, actor: str) -> Any:
        made = insert(tx, store, names, checked, actor)
        if any(one.submission.customer == "c2" for one in checked):
            raise OverflowError("an integer out of range")
        return made

    monkeypatch.setattr(binder_module, "insert", failing)
    counts = binder.run_once()
    assert (counts.done, counts.nacked) == (2, 1)
    assert {run.customer for run in harness.client.runs.list().items} == {"c1", "c3"}
    (dead,) = harness.client.dead_letters.list().items
    assert "an integer out of range" in str(dead.error_details)


def test_a_config_that_cannot_start_stops_no_other(
    harness: Harness, binder: Binder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other config starts once, also when the message is delivered again."""
    configs = [harness.config(name, event_topic="feed") for name in ("acme", "globex", "initech")]
    broken = configs[1].config_id
    harness.client.topics.create(Topic(name="feed"))
    binder.run_once()
    started = start_config.start

    def failing(tx: Any, config: Any, *more: Any, **named: Any) -> Any:
        if config.config_id == broken:
            raise RuntimeError("this config is broken")
        return started(tx, config, *more, **named)

    monkeypatch.setattr(config_starts, "start", failing)
    publish(harness, b"{}")
    publish(harness, b"{}", customer_id="acme")
    sweeper = DeliverySweeper(harness.store, jitter=lambda: 0.0)
    for _ in range(6):
        binder.run_once()
        harness.clock.advance(seconds=700)
        sweeper.run_once()
    runs = harness.client.runs.list().items
    assert sorted(run.customer for run in runs) == ["acme", "initech"]
    (dead,) = harness.client.dead_letters.list().items
    assert "this config is broken" in str(dead.error_details)


def test_messages_share_a_transaction(
    harness: Harness, binder: Binder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that start few configs or none are acked in one transaction for all."""
    harness.config("acme", event_topic="feed")
    harness.client.topics.create(Topic(name="feed"))
    binder.run_once()
    for number in range(10):
        publish(harness, b"{}", customer_id="acme" if number == 4 else "initech")
    monkeypatch.setattr(binder._configs, "_start_configs", None)
    assert binder.run_once().done == 10
    assert [run.customer for run in harness.client.runs.list().items] == ["acme"]


def test_many_configs_are_started_in_steps(
    harness: Harness, binder: Binder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that starts many configs has transactions of its own."""
    monkeypatch.setattr(config_starts, "FEW", 1)
    monkeypatch.setattr(config_starts, "STEP", 2)
    names = ["acme", "globex", "initech"]
    for name in names:
        harness.config(name, event_topic="feed")
    harness.client.topics.create(Topic(name="feed"))
    binder.run_once()
    publish(harness, b"{}")
    assert binder.run_once().done == 1
    assert sorted(run.customer for run in harness.client.runs.list().items) == names


def test_a_subscription_that_fails_stops_no_other(harness: Harness, binder: Binder) -> None:
    """A binding that cannot be read fails its own subscription only."""
    for customer in ("acme", "globex"):
        bind(harness, {"to": "runs", "pipeline": "nightly"}, customer=customer)
        publish(harness, b"{}", customer=customer)
    harness.sql(
        "UPDATE subscriptions SET binding = 'x' WHERE customer = "
        "(SELECT customer FROM customers WHERE customer_id = 'acme')"
    )
    assert binder.run_once().done == 1
    assert [run.customer for run in harness.client.runs.list().items] == ["globex"]
