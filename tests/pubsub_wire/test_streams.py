"""Streaming pull with Google's subscriber: order, nacks, flow control, exactly-once, restarts."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import google.cloud.pubsub_v1 as pubsub_v1
import grpc
import pytest
from google.cloud.pubsub_v1.subscriber.exceptions import AcknowledgeError, AcknowledgeStatus
from google.cloud.pubsub_v1.subscriber.scheduler import ThreadScheduler
from google.pubsub_v1 import types

from penstock.testing.clock import VirtualClock
from tests.conftest import OpenStore
from tests.pubsub_wire.kit import WAIT, Collector, Wire, consuming, served, subscription, topic

StreamRequest: Any = types.StreamingPullRequest.pb()
STREAM = "/google.pubsub.v1.Subscriber/StreamingPull"


def prepare(wire: Wire, **settings: Any) -> tuple[Any, Any]:
    """Return a publisher and a subscriber on one topic."""
    options = pubsub_v1.types.PublisherOptions(enable_message_ordering=True)
    publisher, subscriber = wire.publisher(publisher_options=options), wire.subscriber()
    publisher.create_topic(name=topic())
    publisher.create_topic(name=topic("dead"))
    subscriber.create_subscription(
        types.Subscription(name=subscription(), topic=topic(), **settings)
    )
    subscriber.create_subscription(name=subscription("graves"), topic=topic("dead"))
    return publisher, subscriber


def test_order_nacks_and_a_poison_message(wire: Wire) -> None:
    """Order per key is kept, nothing is lost, poison dies after exactly its attempts."""
    publisher, subscriber = prepare(
        wire,
        enable_message_ordering=True,
        dead_letter_policy={"dead_letter_topic": topic("dead"), "max_delivery_attempts": 5},
    )
    keys, each = 5, 40
    futures = [
        publisher.publish(topic(), f"{n}".encode(), ordering_key=f"key-{k}")
        for n in range(each)
        for k in range(keys)
    ]
    ids = [future.result(WAIT) for future in futures]
    assert len(set(ids)) == keys * each
    poison = ("key-3", 17)
    seen: dict[str, list[int]] = defaultdict(list)
    tried: list[int] = []
    refused: set[tuple[str, int]] = set()
    done, lock = threading.Event(), threading.Lock()

    def handle(message: Any) -> None:
        key, n = message.ordering_key, int(message.data)
        with lock:
            seen[key].append(n)
            if (key, n) == poison:
                tried.append(message.delivery_attempt)
                message.nack()
            elif n % 20 == 7 and key != "key-3" and (key, n) not in refused:
                refused.add((key, n))
                message.nack()
            else:
                message.ack()
            last = all(found[-1:] == [each - 1] for found in seen.values())
            if last and len(seen) == keys and len(tried) == 5:
                done.set()

    with consuming(subscriber, subscription(), handle):
        assert done.wait(WAIT), {key: found[-3:] for key, found in seen.items()}
    assert tried == [1, 2, 3, 4, 5]
    for found in seen.values():
        assert sorted(set(found)) == list(range(each))
        # After a nack the key continues from there: nothing overtakes a message that is not acked.
        for before, n in itertools.pairwise(found):
            assert n <= before + 1
        last_of = {n: place for place, n in enumerate(found)}
        assert [n for n, _ in sorted(last_of.items(), key=lambda one: one[1])] == sorted(last_of)
    (grave,) = subscriber.pull(
        subscription=subscription("graves"), max_messages=10
    ).received_messages
    assert (grave.message.data, grave.message.ordering_key) == (b"17", "key-3")
    totals = wire.client.subscriptions.get("billing", customer="acme")
    assert totals.totals.acked == keys * each - 1
    assert (totals.backlog.ready, totals.backlog.leased, totals.backlog.behind) == (0, 0, 0)


def test_flow_control_bounds_what_is_outstanding(wire: Wire) -> None:
    """A client that asks for three messages has at most three leased; acks let the next come."""
    publisher, subscriber = prepare(wire)
    for n in range(12):
        publisher.publish(topic(), f"{n}".encode()).result(WAIT)
    collected = Collector(12)
    held: list[int] = []
    release = threading.Semaphore(0)

    def handle(message: Any) -> None:
        collected.add(message)
        found = wire.client.subscriptions.get("billing", customer="acme")
        held.append(found.backlog.leased)
        if len(collected.messages) == 3:
            release.release()
        message.ack()

    flow = pubsub_v1.types.FlowControl(max_messages=3)
    with ThreadPoolExecutor(1) as executor:
        future = subscriber.subscribe(
            subscription(), handle, flow_control=flow, scheduler=ThreadScheduler(executor)
        )
        collected.wait()
        future.cancel()
        future.result(WAIT)
    assert max(held) <= 3


def test_exactly_once_reports_stale_acks(wire: Wire) -> None:
    """An ack succeeds once; after the message was delivered again the old ack id is invalid."""
    publisher, subscriber = prepare(wire, enable_exactly_once_delivery=True)
    publisher.publish(topic(), b"x").result(WAIT)
    seen: list[Any] = []
    arrived = threading.Event()

    def handle(message: Any) -> None:
        seen.append(message)
        arrived.set()

    with consuming(subscriber, subscription(), handle):
        assert arrived.wait(WAIT)
        (first,) = seen
        arrived.clear()
        wire.pass_seconds(700)  # the lease lapses and the message is delivered again
        assert arrived.wait(WAIT)
        second = seen[1]
        assert second.message_id == first.message_id
        with pytest.raises(AcknowledgeError) as caught:
            first.ack_with_response().result(WAIT)
        assert caught.value.error_code is AcknowledgeStatus.INVALID_ACK_ID
        assert second.ack_with_response().result(WAIT) is AcknowledgeStatus.SUCCESS
    # A repeated ack, as after a lost response, is a success; the stale one is named.
    subscriber.acknowledge(subscription=subscription(), ack_ids=[second.ack_id])


def test_acks_on_the_stream_are_confirmed(wire: Wire) -> None:
    """The stream reports properties, messages, and which ack ids were valid."""
    publisher, _ = prepare(wire, enable_exactly_once_delivery=True)
    publisher.publish(topic(), b"x").result(WAIT)
    call = wire.channel().stream_stream(
        STREAM,
        request_serializer=StreamRequest.SerializeToString,
        response_deserializer=types.StreamingPullResponse.pb().FromString,
    )
    requests: Any = _Requests()
    requests.put(StreamRequest(subscription=subscription(), stream_ack_deadline_seconds=10))
    responses = call(requests)
    first = next(responses)
    assert first.subscription_properties.exactly_once_delivery_enabled
    got = next(responses).received_messages[0]
    requests.put(StreamRequest(modify_deadline_ack_ids=[got.ack_id], modify_deadline_seconds=[60]))
    assert next(responses).modify_ack_deadline_confirmation.ack_ids == [got.ack_id]
    requests.put(StreamRequest(ack_ids=[got.ack_id, "A" * 32]))
    confirmed = next(responses).acknowledge_confirmation
    assert (confirmed.ack_ids, confirmed.invalid_ack_ids) == ([got.ack_id], ["A" * 32])
    requests.end()
    assert list(responses) == []


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"subscription": subscription()}, grpc.StatusCode.INVALID_ARGUMENT),
        (
            {"subscription": subscription("none"), "stream_ack_deadline_seconds": 10},
            grpc.StatusCode.NOT_FOUND,
        ),
        (
            {
                "subscription": subscription(),
                "stream_ack_deadline_seconds": 10,
                "modify_deadline_ack_ids": ["x"],
            },
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
    ],
)
def test_a_bad_stream_ends_with_its_code(
    request_: dict[str, Any], code: grpc.StatusCode, open_store: OpenStore, clock: VirtualClock
) -> None:
    """The first request must name an existing subscription and a deadline."""
    with served(open_store(), clock) as wire:
        prepare(wire)
        call = wire.channel().stream_stream(
            STREAM,
            request_serializer=StreamRequest.SerializeToString,
            response_deserializer=types.StreamingPullResponse.pb().FromString,
        )
        requests: Any = _Requests()
        requests.put(StreamRequest(**request_))
        with pytest.raises(grpc.RpcError) as caught:
            list(call(requests))
        assert caught.value.code() is code


def test_a_deleted_subscription_ends_its_streams(wire: Wire) -> None:
    """The client's future reports that the subscription does not exist."""
    publisher, subscriber = prepare(wire)
    collected = Collector(1)
    future = subscriber.subscribe(subscription(), collected.add)
    publisher.publish(topic(), b"x").result(WAIT)
    collected.wait()
    wire.subscriber().delete_subscription(subscription=subscription())
    with pytest.raises(Exception, match="There is no subscription"):
        future.result(WAIT)


@pytest.mark.slow  # the client waits for 10 seconds before its fourth attempt to connect
def test_clients_resume_after_a_restart(open_store: OpenStore, clock: VirtualClock) -> None:
    """A stream that lost its server connects again; what was published in the meantime arrives."""
    store = open_store()
    first, both = Collector(1), Collector(2)

    def handle(message: Any) -> None:
        message.ack()
        first.add(message)
        both.add(message)

    with served(store, clock) as wire:
        publisher, subscriber = prepare(wire)
        port = wire.server.port
        future = subscriber.subscribe(subscription(), handle)
        publisher.publish(topic(), b"one").result(WAIT)
        first.wait()
        wire.server.stop()
        pending = publisher.publish(topic(), b"two")  # the client retries until it is stored
        with served(store, clock, port=port):
            pending.result(WAIT)
            both.wait()
            future.cancel()
            future.result(WAIT)
    assert [one.data for one in both.messages] == [b"one", b"two"]


class _Requests:
    """An iterator of requests that a test feeds."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._changed = threading.Condition()

    def put(self, item: Any) -> None:
        """Send a request."""
        with self._changed:
            self._items.append(item)
            self._changed.notify()

    def end(self) -> None:
        """End the stream of requests."""
        self.put(None)

    def __iter__(self) -> _Requests:
        return self

    def __next__(self) -> Any:
        with self._changed:
            while not self._items:
                self._changed.wait(WAIT)
            item = self._items.pop(0)
        if item is None:
            raise StopIteration
        return item
