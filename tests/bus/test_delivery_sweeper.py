"""Delivery sweeper and outbox publisher on both engines, and the built-in topics they feed."""

import json

import pytest
from msgspec.structs import replace

from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_open, alert_resolve
from penstock.bus.delivery_sweeper import DeliverySweepCounts, DeliverySweeper
from penstock.bus.message import ErrorKind, Nack, NewMessage, SubscriptionSpec, TopicSpec
from penstock.bus.store.topics import subscriptions_without_dead_letters
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.core.clock import SECOND
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.ids import encode
from penstock.core.records.record import to_json_value
from penstock.runs.external.client.work import ExternalWorker
from penstock.services.upkeep import OutboxPublisher, Pruner
from tests.kits.client_harness import Harness, gated

DAY_SECONDS = 24 * 3600


@pytest.fixture
def bus(harness: Harness) -> EmbeddedBus:
    """A bus over the store under test."""
    return EmbeddedBus(harness.store, jitter=lambda: 0.0, actor="tester")


def subscribe(bus: EmbeddedBus, topic: str, name: str = "reader") -> None:
    """Subscribe to a topic that exists or is built in."""
    bus.declare([], [SubscriptionSpec(name=name, topic=topic)])


class TestDeliverySweeper:
    """Single passes of the sweeper."""

    @pytest.mark.parametrize("lapses", [False, True])
    def test_missing_content_delays_only_its_own_delivery(
        self, harness: Harness, bus: EmbeddedBus, lapses: bool
    ) -> None:
        """Where retention deleted the content, the others still become dead letters exactly."""
        work = SubscriptionSpec(
            name="work", topic="events", dead_letter_topic="events.dlq", max_attempts=5
        )
        bus.declare([TopicSpec(name="events"), TopicSpec(name="events.dlq")], [work])
        ids = bus.publish("events", [NewMessage(data=str(n).encode()) for n in range(4)])
        poison = Nack(ack_id="", kind=ErrorKind.POISON)
        for _ in range(4):
            bus.nack("work", [Nack(ack_id=one.ack_id) for one in bus.pull("work")])
            harness.clock.advance(700 * SECOND)
            DeliverySweeper(harness.store, jitter=lambda: 0.0).run_once()
        last = bus.pull("work")
        assert [one.attempt for one in last] == [5] * 4
        harness.sql(f"DELETE FROM messages WHERE message_id = {ids[1]}")
        if lapses:
            harness.clock.advance(700 * SECOND)
            assert DeliverySweeper(harness.store, jitter=lambda: 0.0).run_once().dead == 3
        else:
            bus.nack("work", [replace(poison, ack_id=one.ack_id) for one in last])
        states = harness.sql("SELECT outcome, count(*) FROM settled GROUP BY outcome")
        assert states == [("dead_lettered", 3)]
        assert harness.counts("deliveries")["deliveries"] == 1

    def test_counts(self, harness: Harness, bus: EmbeddedBus) -> None:
        """Due, lapsed, dead, expired and purged deliveries are each counted once."""
        bus.declare(
            [TopicSpec(name="events"), TopicSpec(name="events.dlq")],
            [
                SubscriptionSpec(name="work", topic="events", dead_letter_topic="events.dlq"),
                SubscriptionSpec(name="idle", topic="events"),
            ],
        )
        sweeper = DeliverySweeper(harness.store, jitter=lambda: 0.0, batch=2)
        bus.publish("events", [NewMessage(data=str(n).encode()) for n in range(5)])
        got = bus.pull("work")
        bus.nack("work", [Nack(ack_id=one.ack_id) for one in got[:3]])
        assert sweeper.run_once() == DeliverySweepCounts()
        harness.clock.advance(60 * SECOND)
        assert sweeper.run_once() == DeliverySweepCounts(due=3, lapsed=2)
        for _ in range(4):
            for _ in range(2):  # released, then due
                harness.clock.advance(700 * SECOND)
                sweeper.run_once()
            bus.pull("work")
        harness.clock.advance(700 * SECOND)
        assert sweeper.run_once().dead == 5
        harness.clock.advance(7 * DAY_SECONDS * SECOND)
        assert sweeper.run_once() == DeliverySweepCounts(expired=5)
        assert sweeper.run_once() == DeliverySweepCounts()

    def test_wakes_waiting_consumers(self, harness: Harness, bus: EmbeddedBus) -> None:
        """A message that becomes ready sends a hint to its subscription's consumers."""
        bus.declare([TopicSpec(name="events")], [SubscriptionSpec(name="work", topic="events")])
        bus.publish("events", [NewMessage(data=b"x")])
        (one,) = bus.pull("work")
        bus.nack("work", [Nack(ack_id=one.ack_id)])
        number = harness.column("SELECT subscription FROM subscriptions")[0]
        waiter = harness.store.listen([f"bus:{number}"])
        harness.clock.advance(10 * SECOND)
        DeliverySweeper(harness.store, jitter=lambda: 0.0).run_once()
        assert waiter.wait(60)
        waiter.close()


class TestBuiltInTopics:
    """Publishing from the outbox to built-in topics."""

    def test_runs(self, harness: Harness, bus: EmbeddedBus) -> None:
        """Claimable runs are announced as CloudEvents once the topic has a subscription."""
        harness.submit()
        subscribe(bus, "penstock.runs")
        run_id = harness.submit(pipeline="outside", customer="acme")
        assert OutboxPublisher(harness.store).run_once() == 1
        (message,) = bus.pull("reader")
        payload = json.loads(message.data)
        assert payload == {
            "run_id": encode("run", run_id), "config_id": None, "customer_id": "acme",
            "priority": 5,
        }  # fmt: skip
        worker = ExternalWorker("w", "k")
        assert harness.client.work.claim_by_id(worker, run_id).run.run_id == run_id
        assert message.attributes == {
            "ce-specversion": "1.0",
            "ce-id": message.attributes["ce-id"],
            "ce-source": "penstock",
            "ce-type": "penstock.runs",
            "ce-time": "2025-11-17T00:00:00Z",
            "content-type": "application/json",
            "customer_id": "acme",
        }
        assert OutboxPublisher(harness.store).run_once() == 0

    def test_phases(self, harness: Harness, bus: EmbeddedBus) -> None:
        """Topics of phases exist for registered pipelines only."""
        harness.client.register([gated()])
        subscribe(bus, "gated.raw.complete", "one")
        subscribe(bus, "gated.next.trigger", "two")
        for name in ("gated.other.complete", "other.raw.trigger", "gated.raw.begin", ".complete"):
            with pytest.raises((NotFound, InvalidInput), match="topic"):
                subscribe(bus, name, "none")

    def test_alerts(self, harness: Harness, bus: EmbeddedBus) -> None:
        """An alert of the bus itself is published on its topic."""
        subscribe(bus, "penstock.alerts")
        bus.declare(
            [TopicSpec(name="events"), TopicSpec(name="dead")],
            [SubscriptionSpec(name="work", topic="events", dead_letter_topic="dead")],
        )
        bus.publish("events", [NewMessage(data=b"x")])
        harness.sql("UPDATE topics SET deleted_at = 1, name = '_deleted_x' WHERE name = 'dead'")
        for _ in range(5):
            (one,) = bus.pull("work")
            bus.nack("work", [Nack(ack_id=one.ack_id)])
            harness.clock.advance(700 * SECOND)
        OutboxPublisher(harness.store).run_once()
        (message,) = bus.pull("reader")
        assert json.loads(message.data)["rule"] == "dead_letter_topic_missing"
        assert message.attributes["rule"] == "dead_letter_topic_missing"

    def test_an_alert_of_a_customer(self, harness: Harness, bus: EmbeddedBus) -> None:
        """The message is the public record, when it fires and when it is resolved."""
        harness.submit(customer="acme")
        subscribe(bus, "penstock.alerts")
        (customer,) = harness.column("SELECT customer FROM customers WHERE customer_id = 'acme'")
        alert = NewAlert(
            rule="late", dedupe_key="k", severity="HIGH", customer_key=customer,
            subject_kind="config", subject=1, message="late", detail={"minutes": 3},
        )  # fmt: skip
        harness.write(lambda tx: alert_open(tx, alert))
        harness.write(lambda tx: alert_open(tx, alert))
        harness.clock.advance(SECOND)
        harness.write(lambda tx: alert_resolve(tx, "k", "tester"))
        assert OutboxPublisher(harness.store).run_once() == 2
        fired, resolved = (json.loads(one.data) for one in bus.pull("reader"))
        (shown,) = harness.client.alerts.list().items
        assert resolved == to_json_value(shown)
        assert (fired["state"], fired["closed_at"]) == ("open", None)
        assert (fired["customer_id"], fired["alert_id"]) == ("acme", shown.alert_id)
        assert (resolved["state"], resolved["closed_by"]) == ("resolved", "tester")

    def test_no_subscriptions(self, harness: Harness, bus: EmbeddedBus) -> None:
        """A topic without subscriptions gets no messages, and the outbox does not grow."""
        bus.declare([TopicSpec(name="penstock.runs")], [])
        harness.submit()
        assert OutboxPublisher(harness.store).run_once() == 1
        assert harness.counts("messages", "outbox") == {"messages": 0, "outbox": 0}


def test_sums_are_folded(harness: Harness, bus: EmbeddedBus) -> None:
    """Many small deltas become one row per hour with the same totals."""
    bus.declare([TopicSpec(name="events")], [SubscriptionSpec(name="work", topic="events")])
    for _ in range(5):
        bus.publish("events", [NewMessage(data=b"x")])
        (one,) = bus.pull("work")
        bus.ack("work", [one.ack_id])
    text = "SELECT sum(accepted), sum(delivered), sum(acked) FROM delivery_sums"
    before = harness.sql(text)
    Pruner(harness.store).run_once()
    assert harness.sql(text) == before
    assert harness.counts("delivery_sums") == {"delivery_sums": 1}


def test_poison_traps(harness: Harness, bus: EmbeddedBus) -> None:
    """Subscriptions without dead letters are listed; those of dead-letter topics are not."""
    bus.declare(
        [TopicSpec(name="events"), TopicSpec(name="events.dlq")],
        [
            SubscriptionSpec(name="safe", topic="events", dead_letter_topic="events.dlq"),
            SubscriptionSpec(name="trap", topic="events"),
            SubscriptionSpec(name="reader", topic="events.dlq"),
        ],
    )
    assert harness.store.read(subscriptions_without_dead_letters) == ["trap"]
