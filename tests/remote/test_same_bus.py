"""Topics, subscriptions and deliveries: the local and the remote client agree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock.bus.binding import BindingKind
from penstock.bus.message import ErrorKind, Nack, NewMessage, SettleResult
from penstock.bus.records import (
    AutoReplay,
    NewSnapshot,
    PushSettings,
    Schema,
    SchemaSettings,
    SecretReference,
    Subscription,
    SubscriptionBinding,
    Topic,
)
from penstock.core.errors import ApiError, InvalidInput, NotFound, StaleVersion
from penstock.remote.client import RemoteClient
from tests.remote.test_same_records import remote, same
from tests.server.kit import ServedApi

__all__ = ["remote"]

READER = Subscription(name="reader", topic="rosters", ack_deadline=timedelta(seconds=20))


@pytest.fixture
def bus(remote: RemoteClient) -> RemoteClient:
    """Return a client of an API with a topic, a subscription and four messages."""
    remote.topics.create(Topic(name="rosters", retention=timedelta(days=2)))
    remote.subscriptions.declare(READER)
    messages = [NewMessage(data=b"%d" % n, attributes={"n": str(n)}) for n in range(4)]
    assert remote.topics.publish("rosters", messages).message_ids == ["1", "2", "3", "4"]
    return remote


class TestSnapshotsAndSchemas:
    """Snapshots, schemas and detached subscriptions."""

    def test_snapshots(self, served: ServedApi, bus: RemoteClient) -> None:
        """They are taken, read, sought to and deleted alike."""
        made = bus.snapshots.create(NewSnapshot(name="monday", subscription="reader"))
        assert same(served, bus, "snapshots", "get", "monday") == made
        same(served, bus, "snapshots", "list", topic="rosters")
        for _ in range(2):
            got = bus.subscriptions.pull("reader")
            bus.subscriptions.ack("reader", [one.ack_id for one in got])
            assert bus.snapshots.seek("monday", "reader").delivered_again == 4
        bus.snapshots.delete("monday")
        with pytest.raises(NotFound, match="snapshot"):
            bus.snapshots.get("monday")

    def test_schemas(self, served: ServedApi, bus: RemoteClient) -> None:
        """They are created, revised, read and deleted alike; a topic can require one."""
        text = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
        first = bus.schemas.create(Schema(name="roster", definition=text))
        assert same(served, bus, "schemas", "get", "roster") == first
        second = bus.schemas.commit(Schema(name="roster", definition=text))
        third = bus.schemas.rollback("roster", first.revision_id)
        same(served, bus, "schemas", "list")
        same(served, bus, "schemas", "revisions", "roster", limit=2)
        bus.schemas.delete("roster", revision_id=second.revision_id)
        found = bus.schemas.revisions("roster").items
        assert [one.revision_id for one in found] == [third.revision_id, first.revision_id]
        bus.topics.create(Topic(name="typed", schema_settings=SchemaSettings(schema="roster")))
        same(served, bus, "topics", "get", "typed")
        with pytest.raises(InvalidInput, match="data with schema roster"):
            bus.topics.publish("typed", [NewMessage(data=b"{}")])
        bus.topics.publish("typed", [NewMessage(data=b'{"n": 1}')])
        bus.schemas.delete("roster")

    def test_detach(self, served: ServedApi, bus: RemoteClient) -> None:
        """A detached subscription has lost its backlog."""
        bus.subscriptions.detach("reader")
        detail = bus.subscriptions.get("reader")
        assert (detail.subscription.is_detached, detail.backlog.ready) == (True, 0)
        same(served, bus, "subscriptions", "get", "reader")


class TestTopics:
    """Topics and messages."""

    def test_reads(self, served: ServedApi, bus: RemoteClient) -> None:
        """Lists, pages, details and messages are equal."""
        same(served, bus, "topics", "get", "rosters")
        same(served, bus, "topics", "message", "1")
        first = bus.topics.list(limit=1)
        assert first.next_cursor is not None
        same(served, bus, "topics", "list", limit=1, cursor=first.next_cursor)
        (topic,) = (one for one in bus.topics.list().items if one.name == "rosters")
        assert topic.retention == timedelta(days=2)
        message = bus.topics.message("2")
        assert (message.data, message.attributes) == (b"1", {"n": "1"})

    def test_changes(self, served: ServedApi, bus: RemoteClient) -> None:
        """Creating again changes the retention; a customer's topic is another one."""
        again = Topic(name="rosters", retention=timedelta(hours=1))
        assert bus.topics.create(again).retention == timedelta(hours=1)
        local = served.harness.client.topics.create(again)
        assert bus.topics.create(again) == local
        bus.topics.create(Topic(name="own"), customer="acme")
        same(served, bus, "topics", "get", "own", customer="acme")
        bus.topics.delete("own", customer="acme")
        with pytest.raises(NotFound, match="topic"):
            bus.topics.get("own", customer="acme")

    def test_errors(self, served: ServedApi, bus: RemoteClient) -> None:
        """Both clients raise the same errors."""
        for client in (bus, served.harness.client):
            with pytest.raises(NotFound):
                client.topics.message("x")
            with pytest.raises(InvalidInput, match="retention"):
                client.topics.create(Topic(name="short", retention=timedelta(seconds=1)))
            with pytest.raises(InvalidInput, match="whole seconds"):
                client.topics.create(Topic(name="odd", retention=timedelta(hours=1.0001)))


class TestSubscriptions:
    """Subscriptions."""

    def test_reads(self, served: ServedApi, bus: RemoteClient) -> None:
        """Lists, pages and details are equal."""
        same(served, bus, "subscriptions", "get", "reader")
        same(served, bus, "subscriptions", "list")
        same(served, bus, "subscriptions", "list", topic="rosters", kind="pull", limit=1)
        found = bus.subscriptions.get("reader")
        assert (found.subscription.ack_deadline, found.backlog.ready) == (timedelta(seconds=20), 4)
        assert found.subscription.dead_letter_topic == "reader.dlq"

    @pytest.mark.parametrize(
        "wanted",
        [
            Subscription(
                name="hook",
                topic="rosters",
                kind="push",
                push=PushSettings(
                    endpoint="https://hooks.example.com/",
                    signing_secrets=[SecretReference(name="hook")],
                ),
                auto_replay=AutoReplay(
                    health_url="https://hooks.example.com/healthz", after=timedelta(minutes=5)
                ),
            ),
            Subscription(
                name="bound",
                topic="rosters",
                kind="bound",
                binding=SubscriptionBinding(kind=BindingKind.RUNS, pipeline="nightly"),
                has_dead_letters=False,
                is_ordered=True,
                filter='attributes.n = "1"',
                max_attempts=10,
            ),
        ],
        ids=["push", "bound"],
    )
    def test_declare(self, served: ServedApi, bus: RemoteClient, wanted: Subscription) -> None:
        """Every kind of subscription is stored as declared, by both clients."""
        made = bus.subscriptions.declare(wanted)
        assert served.harness.client.subscriptions.declare(wanted) == made
        assert (made.push, made.binding) == (wanted.push, wanted.binding)
        assert made.version == 1
        assert (made.dead_letter_topic is not None) is wanted.has_dead_letters
        same(served, bus, "subscriptions", "get", wanted.name)

    def test_changes(self, served: ServedApi, bus: RemoteClient) -> None:
        """Pause, seek, purge and delete."""
        assert bus.subscriptions.pause("reader", True).is_paused
        assert not served.harness.client.subscriptions.pause("reader", False).is_paused
        sought = bus.subscriptions.seek("reader", datetime(2020, 1, 1, tzinfo=UTC))
        assert sought.time == datetime(2020, 1, 1, tzinfo=UTC)
        same(served, bus, "subscriptions", "seek", "reader", datetime(2020, 1, 1, tzinfo=UTC))
        assert bus.subscriptions.purge("reader") == 4
        same(served, bus, "subscriptions", "purge", "reader")
        bus.subscriptions.delete("reader")
        with pytest.raises(NotFound, match="subscription"):
            bus.subscriptions.get("reader")

    def test_errors(self, bus: RemoteClient) -> None:
        """Errors have the class and the field of the local client; some calls have no route."""
        with pytest.raises(StaleVersion):
            bus.subscriptions.declare(Subscription(name="reader", topic="rosters", version=9))
        with pytest.raises(InvalidInput, match="ack_deadline"):
            bus.subscriptions.declare(
                Subscription(name="slow", topic="rosters", ack_deadline=timedelta(hours=1))
            )
        with pytest.raises(ApiError, match="not part of the API"):
            bus.subscriptions.backlogs()

    def test_a_literal_secret_is_not_quoted(self, served: ServedApi) -> None:
        """A secret in place of its reference is refused without being repeated."""
        for given in ("whsec_c2VjcmV0", ["whsec_c2VjcmV0"], [{"$secret": ["whsec_c2VjcmV0"]}]):
            push = {"push_endpoint": "https://hooks.example.com/", "signing_secrets": given}
            body = {"name": "hook", "topic": "rosters", "kind": "push", "push": push}
            reply = served.by("operator").post("/subscriptions", body)
            assert (reply.status, b"whsec" in reply.body) == (400, False)
            assert "signing_secrets" in reply.json["errors"][0]["field"]


class TestDeliveries:
    """Deliveries."""

    def test_settling(self, served: ServedApi, bus: RemoteClient) -> None:
        """Each outcome is reported in order; the local client sees the effects."""
        subscriptions = bus.subscriptions
        first, second, third, last = subscriptions.pull("reader", wait_seconds=1)
        assert (first.attempt, first.message.data, first.message.message_id) == (1, b"0", "1")
        assert subscriptions.ack("reader", [first.ack_id]) == [SettleResult.DONE]
        assert subscriptions.ack("reader", [first.ack_id]) == [SettleResult.STALE]
        assert subscriptions.extend("reader", [second.ack_id], 30) == [SettleResult.DONE]
        assert subscriptions.release("reader", [last.ack_id]) == [SettleResult.DONE]
        nacks = [
            Nack(ack_id=second.ack_id, kind=ErrorKind.POISON, error_type="SCHEMA"),
            Nack(ack_id=third.ack_id, delay=timedelta(seconds=90)),
        ]
        assert subscriptions.nack("reader", nacks) == [SettleResult.DONE] * 2
        same(served, bus, "topics", "message", "2")
        found = bus.subscriptions.get("reader")
        assert (found.totals.dead_lettered, found.backlog.delayed) == (1, 1)
        (again,) = served.harness.client.subscriptions.pull("reader")
        assert again.message == last.message

    def test_errors(self, served: ServedApi, bus: RemoteClient) -> None:
        """A delay of more than ten minutes is refused by both clients."""
        (one, *_) = bus.subscriptions.pull("reader")
        late = [Nack(ack_id=one.ack_id, delay=timedelta(hours=1))]
        for client in (bus, served.harness.client):
            with pytest.raises(InvalidInput, match="delay_seconds"):
                client.subscriptions.nack("reader", late)
        with pytest.raises(InvalidInput, match="ack_ids"):
            bus.subscriptions.ack("reader", ["forged"])
