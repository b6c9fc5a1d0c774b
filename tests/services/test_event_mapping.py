"""EVENT_DRIVEN configs: what a message gives the runs and flows that it starts."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_open
from penstock.bus.message import NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.core.errors import InvalidInput
from penstock.core.records.validation import convert_input
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.schedules.event_mapping import event_start, parse_event_mapping
from penstock.services.binder import Binder
from penstock.services.upkeep import OutboxPublisher
from tests.kits.client_harness import Harness

MAPPING = {
    "parameters": {"days": "data.window.days", "league": "attributes.league"},
    "partition": "{attributes.season}-{data.round}",
}
SCHEMA = {"type": "object", "properties": {"days": {"type": "integer", "maximum": 31}}}


@pytest.fixture
def binder(harness: Harness) -> Binder:
    """A binder, and a topic `feed`."""
    harness.client.topics.create(Topic(name="feed"))
    return Binder(harness.store, jitter=lambda: 0.0)


def publish(harness: Harness, binder: Binder, data: Any, **attributes: str) -> None:
    """Publish one message and let the binder serve it."""
    binder.run_once()
    message = NewMessage(data=json.dumps(data).encode(), attributes=attributes)
    harness.client.topics.publish("feed", [message])
    binder.run_once()


def test_declared_parameters_by_name(harness: Harness, binder: Binder) -> None:
    """Without a mapping: declared parameters, the attribute partition, the correlation id."""
    harness.config(event_topic="feed", parameters={"days": 1, "kept": True})
    publish(
        harness, binder, {"days": 5, "other": 1}, partition="2025-11-17", correlation_id="cause"
    )
    (run,) = harness.client.runs.list().items
    assert run.parameters == {"days": 5, "kept": True}
    assert (run.partition, run.correlation_id) == ("2025-11-17", "cause")


def test_a_mapping(harness: Harness, binder: Binder) -> None:
    """Sources of parameters, and a template of the partition; what is missing stays."""
    config = harness.config(event_topic="feed", parameters={"days": 1}, event_mapping=MAPPING)
    shown = harness.client.configs.list().items[0]
    assert shown.event_mapping == MAPPING
    data = {"window": {"days": 7}, "round": 3}
    publish(harness, binder, data, season="s25")
    (run,) = harness.client.runs.list().items
    assert (run.parameters, run.partition) == ({"days": 7}, "s25-3")
    assert config.event_mapping is not None


def test_a_message_that_does_not_fit_is_a_dead_letter(harness: Harness, binder: Binder) -> None:
    """Parameters against the schema, and a partition that cannot be filled in."""
    harness.config(event_topic="feed", event_mapping=MAPPING)
    publish(harness, binder, {"window": {"days": 99}, "round": 1}, season="s25")
    publish(harness, binder, {"window": {"days": 2}}, season="s25")
    dead = harness.client.dead_letters.list().items
    assert [one.error_kind for one in dead] == ["poison", "poison"]
    assert harness.client.runs.list().items == []


def test_a_config_that_does_not_fit_among_others(harness: Harness, binder: Binder) -> None:
    """On a system topic it is the matter of its customer: an alert, and no dead letter."""
    harness.config("acme", event_topic="feed", event_mapping=MAPPING)
    harness.config("globex", event_topic="feed")
    for _ in range(2):
        publish(harness, binder, {"days": 3})
    assert [run.customer for run in harness.client.runs.list().items] == ["globex"]
    assert harness.client.dead_letters.list().items == []
    (alert,) = harness.client.alerts.list().items
    assert (alert.rule, alert.customer, alert.times) == ("event_unfitting", "acme", 2)
    assert "topic feed does not start config cfg_" in alert.message
    assert "event_mapping" in alert.message


@pytest.mark.parametrize(("topic", "owner"), [("feed", None), ("own", "acme")])
def test_a_stored_filter_that_cannot_be_parsed(
    harness: Harness, binder: Binder, topic: str, owner: str | None
) -> None:
    """Its config opens an alert; the other configs start, and no message is a dead letter."""
    if owner is not None:
        harness.client.topics.create(Topic(name=topic), customer=owner)
    old = harness.config("acme", event_topic=topic, event_filter='attributes.region = "eu"')
    harness.config("acme", event_topic=topic, pipeline_template="pair")
    wrong = 'attributes.region == "eu"'
    harness.sql(f"UPDATE configs SET event_filter = '{wrong}' WHERE config_id = {old.config_id}")
    binder.run_once()
    for _ in range(2):
        message = NewMessage(data=b"{}", attributes={"region": "eu"})
        harness.client.topics.publish(topic, [message], customer=owner)
        binder.run_once()
        harness.complete(*harness.claim())
    assert harness.client.dead_letters.list().items == []
    assert {run.pipeline for run in harness.client.runs.list().items} == {"pair"}
    (alert,) = harness.client.alerts.list().items
    assert (alert.rule, alert.customer, alert.times) == ("event_unfitting", "acme", 2)
    assert "position 20" in alert.message


def test_only_a_filter_that_cannot_be_parsed(harness: Harness, binder: Binder) -> None:
    """Without other configs, the message is acked as well."""
    old = harness.config(event_topic="feed")
    harness.sql(f"UPDATE configs SET event_filter = 'region' WHERE config_id = {old.config_id}")
    publish(harness, binder, {})
    assert [alert.rule for alert in harness.client.alerts.list().items] == ["event_unfitting"]
    assert harness.client.dead_letters.list().items == []
    assert harness.client.runs.list().items == []


def test_a_flow(harness: Harness, binder: Binder) -> None:
    """A pipeline with phases opens the flow of that partition, with parameters and correlation."""
    pair = Pipeline("feeds", partition="day", parameters=SCHEMA)
    raw = pair.phase("raw")
    raw.external("one")
    raw.external("two")
    harness.client.register([pair])
    harness.config(event_topic="feed", pipeline_template="feeds")
    publish(harness, binder, {"days": 5}, partition="2025-11-17", correlation_id="cause")
    (flow,) = harness.client.flows.list().items
    assert (flow.partition, flow.correlation_id) == ("2025-11-17", "cause")
    runs = harness.client.runs.list().items
    assert [run.parameters for run in runs] == [{"days": 5}] * 2


@pytest.mark.parametrize(
    "mapping",
    [
        [], "x", {"other": 1}, {"parameters": ["days"]}, {"parameters": {"days": 3}},
        {"parameters": {"days": "days"}}, {"parameters": {"days": "data"}},
        {"partition": 3}, {"partition": "{day}"}, {"partition": ""},
    ],
)  # fmt: skip
def test_invalid_mappings(mapping: Any) -> None:
    """An invalid mapping is refused and names its field."""
    with pytest.raises(InvalidInput, match="event_mapping"):
        parse_event_mapping(mapping)


@pytest.mark.parametrize("data", [b"", b"no json", b"[1]", b'"x"', b"null"])
def test_data_of_any_form(data: bytes) -> None:
    """Without a mapping, data that is no object gives nothing; a mapping that needs it refuses."""
    assert event_start(None, (data, {}), "{}", SCHEMA) == (None, None, None)
    mapping = parse_event_mapping({"partition": "{data.day}"})
    with pytest.raises(InvalidInput):
        event_start(mapping, (data, {}), "{}", SCHEMA)


def test_system_alerts_start_nothing(harness: Harness, binder: Binder) -> None:
    """A built-in topic starts configs of the customer it is about, and none without a customer.

    Alerts of the system contain data of all customers, which a mapping would copy into a run.
    """
    mapping = {"parameters": {"text": "data.message"}}
    for customer in ("acme", "globex"):
        harness.config(customer, event_topic="penstock.alerts", event_mapping=mapping)
    body = {"name": "pager", "topic": "penstock.alerts"}
    harness.client.subscriptions.declare(convert_input(body, Subscription))
    binder.run_once()
    owner = harness.client._names.lookup_customer_key("acme")
    for number, customer_key in enumerate((None, owner)):
        alert = NewAlert(
            rule="common_cause", dedupe_key=f"alert-{number}", severity="HIGH",
            customer_key=customer_key, subject_kind="pipeline", subject=1,
            message=f"alert {number}",
        )  # fmt: skip
        harness.write(partial(alert_open, alert=alert))
    OutboxPublisher(harness.store).run_once()
    binder.run_once()
    assert [(run.customer, run.parameters) for run in harness.client.runs.list().items] == [
        ("acme", {"text": "alert 1"})
    ]
    assert harness.client.dead_letters.list().items == []


@pytest.mark.parametrize("day", ["abc", "10000-01-01", "2025-02-30", "2025-11-17..2025-11-20"])
@pytest.mark.parametrize("mapping", [None, {"partition": "{attributes.partition}"}])
def test_a_partition_of_another_form(
    harness: Harness, binder: Binder, day: str, mapping: dict[str, Any] | None
) -> None:
    """A partition that the pipeline cannot have opens no flow: the message is a dead letter."""
    daily = Pipeline("feeds", partition="day")
    daily.phase("raw").external("one")
    harness.client.register([daily])
    harness.config(event_topic="feed", pipeline_template="feeds", event_mapping=mapping)
    publish(harness, binder, {}, partition=day)
    assert harness.client.flows.list().items == []
    (dead,) = harness.client.dead_letters.list().items
    assert dead.error_kind == "poison"
    assert "partition: expected a day" in str(dead.error_details)


@pytest.mark.parametrize(
    "data",
    [b'{"days": 3', b'{"days": NaN}', b'{"days": 1, "days": 2}', b'\xef\xbb\xbf {"days": 3}'],
)
def test_an_object_that_cannot_be_read(data: bytes) -> None:
    """It may have had parameters, so the run does not start with the config's own."""
    with pytest.raises(InvalidInput, match="data"):
        event_start(None, (data, {}), "{}", SCHEMA)
    assert event_start(None, (data, {}), "{}", None) == (None, None, None)


def test_sources_decide_whether_data_is_read() -> None:
    """An attribute or a parameter whose name contains `data.` needs no data."""
    mapping = parse_event_mapping({"parameters": {"days.data.x": "attributes.metadata.days"}})
    found = event_start(mapping, (b"no json", {"metadata.days": "3"}), "{}", None)
    assert json.loads(found.parameters or "") == {"days.data.x": "3"}
