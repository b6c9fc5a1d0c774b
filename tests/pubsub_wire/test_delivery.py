"""Publish, pull, ack, deadlines, filters, seeks and dead letters through Google's client."""

from __future__ import annotations

from typing import Any

import pytest
from google.api_core import exceptions
from google.pubsub_v1 import types

from penstock.core.clock import to_datetime
from tests.pubsub_wire.kit import PROJECT, Wire, subscription, topic


class Pair:
    """A publisher and a subscriber on one topic."""

    def __init__(self, wire: Wire, **settings: Any) -> None:
        self.wire = wire
        self.publisher, self.subscriber = wire.publisher(), wire.subscriber()
        self.publisher.create_topic(name=topic())
        self.publisher.create_topic(name=topic("dead"))
        self.subscriber.create_subscription(
            types.Subscription(name=subscription(), topic=topic(), **settings)
        )
        self.subscriber.create_subscription(name=subscription("graves"), topic=topic("dead"))

    def publish(self, *bodies: str, **attributes: str) -> list[str]:
        """Publish messages one by one; return their ids."""
        return [
            self.publisher.publish(topic(), body.encode(), **attributes).result(10)
            for body in bodies
        ]

    def pull(self, name: str = "billing", n: int = 100) -> list[Any]:
        """Pull without waiting."""
        request = {
            "subscription": subscription(name), "max_messages": n, "return_immediately": True,
        }  # fmt: skip
        return list(self.subscriber.pull(request).received_messages)

    def ack(self, *received: Any) -> None:
        """Ack messages."""
        ids = [one.ack_id for one in received]
        self.subscriber.acknowledge(subscription=subscription(), ack_ids=ids)

    def nack(self, *received: Any) -> None:
        """Nack messages."""
        self.extend(0, *received)

    def extend(self, seconds: int, *received: Any) -> None:
        """Move deadlines."""
        self.subscriber.modify_ack_deadline(
            subscription=subscription(),
            ack_ids=[one.ack_id for one in received],
            ack_deadline_seconds=seconds,
        )


def texts(received: list[Any]) -> list[str]:
    """Return the data as text."""
    return [one.message.data.decode() for one in received]


pytestmark = pytest.mark.filterwarnings("ignore:The return_immediately flag")


def test_messages_arrive_as_published(wire: Wire) -> None:
    """Data, attributes, id and time; a message is delivered once per subscription."""
    pair = Pair(wire)
    (message_id,) = pair.publish("hello", kind="order")
    (got,) = pair.pull()
    assert (got.message.data, dict(got.message.attributes)) == (b"hello", {"kind": "order"})
    assert got.message.message_id == message_id
    assert got.message.publish_time == to_datetime(wire.clock.now())
    assert got.delivery_attempt == 0
    assert pair.pull() == []
    pair.ack(got)
    wire.pass_seconds(3600)
    assert pair.pull() == []


def test_a_message_returns_after_its_deadline_or_a_nack(wire: Wire) -> None:
    """Without a retry policy at once; a deadline can be moved."""
    pair = Pair(wire)
    pair.publish("x")
    (first,) = pair.pull()
    pair.nack(first)
    (second,) = pair.pull()
    pair.extend(60, second)
    wire.pass_seconds(30)
    assert pair.pull() == []
    wire.pass_seconds(31)
    (third,) = pair.pull()
    pair.ack(first)
    pair.ack(second)  # stale acks have no effect and are no error
    pair.nack(third)
    (fourth,) = pair.pull()
    pair.ack(fourth)
    assert pair.pull() == []


def test_a_pull_waits_for_a_message(wire: Wire) -> None:
    """A message that is published in the meantime ends the wait."""
    pair = Pair(wire)
    future = pair.publisher.publish(topic(), b"soon")  # sent after the client's batch latency
    got = pair.subscriber.pull(subscription=subscription(), max_messages=5)
    assert texts(list(got.received_messages)) == ["soon"]
    future.result(10)
    empty = pair.subscriber.pull(subscription=subscription(), max_messages=5, timeout=1.2)
    assert list(empty.received_messages) == []  # shortly before the client's deadline


def test_filters_are_honoured(wire: Wire) -> None:
    """Messages that do not match are not delivered."""
    pair = Pair(wire, filter='attributes.kind = "order"')
    pair.publish("no", kind="other")
    pair.publish("yes", kind="order")
    assert texts(pair.pull()) == ["yes"]


def test_dead_letters_after_exactly_the_attempts(wire: Wire) -> None:
    """The copy has Google's attributes; `delivery_attempt` counts from 1."""
    policy = {"dead_letter_topic": topic("dead"), "max_delivery_attempts": 5}
    pair = Pair(wire, dead_letter_policy=policy)
    pair.publish("bad", kind="order")
    attempts = []
    while got := pair.pull():
        attempts.append(got[0].delivery_attempt)
        pair.nack(*got)
    assert attempts == [1, 2, 3, 4, 5]
    (grave,) = pair.pull("graves")
    assert grave.message.data == b"bad"
    attributes = dict(grave.message.attributes)
    assert attributes["kind"] == "order"
    assert attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert attributes["CloudPubSubDeadLetterSourceSubscription"] == "billing"
    assert attributes["CloudPubSubDeadLetterSourceSubscriptionProject"] == PROJECT


def test_a_retry_policy_delays(wire: Wire) -> None:
    """A nacked message returns after the backoff."""
    pair = Pair(
        wire, retry_policy={"minimum_backoff": {"seconds": 5}, "maximum_backoff": {"seconds": 60}}
    )
    pair.publish("x")
    pair.nack(*pair.pull())
    assert pair.pull() == []
    wire.pass_seconds(7)
    assert texts(pair.pull()) == ["x"]


def test_seek_to_a_time_and_to_a_snapshot(wire: Wire) -> None:
    """A snapshot has what was not acked when it was taken, and what was published later."""
    pair = Pair(wire)
    start = to_datetime(wire.clock.now())
    pair.publish("one", "two")
    one, two = pair.pull()
    pair.ack(one)
    wire.pass_seconds(1)
    name = f"projects/{PROJECT}/snapshots/snap"
    made = pair.subscriber.create_snapshot(name=name, subscription=subscription())
    assert (made.name, made.topic) == (name, topic())
    wire.pass_seconds(1)
    pair.ack(two)
    pair.publish("three")
    pair.ack(*pair.pull())
    assert pair.pull() == []
    for _ in range(2):
        wire.pass_seconds(1)
        pair.subscriber.seek({"subscription": subscription(), "snapshot": name})
        got = pair.pull()
        assert texts(got) == ["two", "three"]
        pair.ack(*got)
    pair.subscriber.seek({"subscription": subscription(), "time": start})
    assert texts(pair.pull()) == ["one", "two", "three"]
    wire.pass_seconds(60)  # they are ready again; the snapshot has acked the first
    pair.subscriber.seek({"subscription": subscription(), "snapshot": name})
    assert texts(pair.pull()) == ["two", "three"]
    pair.subscriber.seek({"subscription": subscription(), "time": to_datetime(wire.clock.now())})
    wire.pass_seconds(60)
    assert pair.pull() == []


def test_snapshots_are_named_listed_changed_and_deleted(wire: Wire) -> None:
    """They have labels and expire; another topic's subscription cannot seek to them."""
    pair = Pair(wire)
    name = f"projects/{PROJECT}/snapshots/snap"
    pair.subscriber.create_snapshot({"name": name, "subscription": subscription(),
                                     "labels": {"a": "1"}})  # fmt: skip
    with pytest.raises(exceptions.AlreadyExists):
        pair.subscriber.create_snapshot(name=name, subscription=subscription())
    found = pair.subscriber.get_snapshot(snapshot=name)
    assert found.labels == {"a": "1"}
    assert list(pair.subscriber.list_snapshots(project=f"projects/{PROJECT}")) == [found]
    names = pair.publisher.list_topic_snapshots({"topic": topic()})
    assert list(names) == [name]
    changed = pair.subscriber.update_snapshot(
        {"snapshot": {"name": name, "labels": {"b": "2"}}, "update_mask": {"paths": ["labels"]}}
    )
    assert changed.labels == {"b": "2"}
    with pytest.raises(exceptions.FailedPrecondition):
        pair.subscriber.seek({"subscription": subscription("graves"), "snapshot": name})
    pair.subscriber.delete_snapshot(snapshot=name)
    with pytest.raises(exceptions.NotFound):
        pair.subscriber.seek({"subscription": subscription(), "snapshot": name})
    pair.subscriber.create_snapshot(name=name, subscription=subscription())
    wire.pass_seconds(8 * 86_400)
    with pytest.raises(exceptions.NotFound):
        pair.subscriber.get_snapshot(snapshot=name)


def test_oversized_and_malformed_input_is_refused(wire: Wire) -> None:
    """Each is a clear error, and the front end continues serving."""
    pair = Pair(wire)
    too_large = [{"data": b"x" * 6_000_000}, {"data": b"x" * 6_000_000}]
    gapic = pair.publisher._gapic_publish
    for messages in (
        [{"data": b"x" * 10_000_001}],
        too_large,
        [{"data": b"x", "attributes": {"k" * 257: "v"}}],
        [{"data": b"x", "attributes": {"k": "v" * 1_025}}],
        [{"data": b"x", "attributes": {f"k{n}": "v" for n in range(101)}}],
        [{"data": b"x", "attributes": {"k": "a\0b"}}],
        [{"data": b"x", "ordering_key": "k" * 1_025}],
        [{"data": b"x"}] * 1_001,
    ):
        with pytest.raises((exceptions.InvalidArgument, exceptions.ResourceExhausted)):
            gapic(topic=topic(), messages=messages, retry=None)
    pair.publish("fine")
    assert texts(pair.pull()) == ["fine"]
    pair.subscriber.acknowledge(subscription=subscription(), ack_ids=["no", "x" * 32, "é" * 32])
