"""A program that knows only google-cloud-pubsub: `python -m benchmarks.pubsub_client MODE N`.

It uses the server that PUBSUB_EMULATOR_HOST names and prints one JSON line. `throughput` publishes
and consumes at the same time. `ordered` publishes with ordering keys, nacks one message in twenty
once and one every time, and checks that order per key is kept, nothing is lost, and the poison
message is dead-lettered after exactly its attempts.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections import defaultdict
from typing import Any

import google.cloud.pubsub_v1 as pubsub_v1
from google.pubsub_v1 import types

PROJECT = "bench"
BODY = b'{"game": 22500123, "team": "DEN", "points": 118, "note": "' + b"x" * 140 + b'"}'
KEYS = 100
ATTEMPTS = 5
PATIENCE = 300.0


def prepare(name: str, **settings: Any) -> tuple[Any, Any, str, str]:
    """Create a topic, a subscription with these settings, and one that reads dead letters."""
    publisher = pubsub_v1.PublisherClient(
        batch_settings=pubsub_v1.types.BatchSettings(max_messages=500, max_latency=0.01),
        publisher_options=pubsub_v1.types.PublisherOptions(enable_message_ordering=True),
    )
    subscriber = pubsub_v1.SubscriberClient()
    topic = publisher.topic_path(PROJECT, name)
    dead = publisher.topic_path(PROJECT, f"{name}-dead")
    for one in (topic, dead):
        publisher.create_topic(name=one)
    subscription = subscriber.subscription_path(PROJECT, name)
    if settings.pop("dead", False):
        settings["dead_letter_policy"] = {
            "dead_letter_topic": dead, "max_delivery_attempts": ATTEMPTS,
        }  # fmt: skip
    subscriber.create_subscription(types.Subscription(name=subscription, topic=topic, **settings))
    graves = subscriber.subscription_path(PROJECT, f"{name}-graves")
    subscriber.create_subscription(name=graves, topic=dead)
    return publisher, subscriber, topic, subscription


def throughput(n: int) -> dict[str, Any]:
    """Publish and consume `n` messages at the same time; return the rate of acked ones."""
    publisher, subscriber, topic, subscription = prepare(f"through-{n}", ack_deadline_seconds=60)
    done = threading.Event()
    seen = itertools.count(1)

    def handle(message: Any) -> None:
        message.ack()
        if next(seen) == n:
            done.set()

    began = time.perf_counter()
    flow = pubsub_v1.types.FlowControl(max_messages=2_000)
    streaming = subscriber.subscribe(subscription, handle, flow_control=flow)
    futures = [publisher.publish(topic, BODY, n=str(i)) for i in range(n)]
    for future in futures:
        future.result(PATIENCE)
    published = time.perf_counter() - began
    assert done.wait(PATIENCE), next(seen)
    took = time.perf_counter() - began
    streaming.cancel()
    streaming.result()
    return {"rate": n / took, "published": n / published}


def ordered(n: int) -> dict[str, Any]:
    """Publish `n` messages with ordering keys; nack some, one every time; check what arrives."""
    publisher, subscriber, topic, subscription = prepare(
        f"ordered-{n}", enable_message_ordering=True, dead=True, ack_deadline_seconds=60
    )
    each = n // KEYS
    began = time.perf_counter()
    futures = [
        publisher.publish(topic, b"%d" % (i // KEYS), ordering_key=f"key-{i % KEYS}")
        for i in range(each * KEYS)
    ]
    ids = {future.result(PATIENCE) for future in futures}
    assert len(ids) == each * KEYS
    published = time.perf_counter() - began
    poison = ("key-42", each // 2)
    seen: dict[str, list[int]] = defaultdict(list)
    refused: set[tuple[str, int]] = set()
    tried: list[int] = []
    done, lock = threading.Event(), threading.Lock()

    def handle(message: Any) -> None:
        key, number = message.ordering_key, int(message.data)
        with lock:
            seen[key].append(number)
            if (key, number) == poison:
                tried.append(message.delivery_attempt)
                message.nack()
            elif number % 20 == 7 and key != poison[0] and (key, number) not in refused:
                refused.add((key, number))
                message.nack()
            else:
                message.ack()
            is_last = number == each - 1 and len(tried) >= ATTEMPTS and len(seen) == KEYS
            if is_last and all(found[-1] == each - 1 for found in seen.values()):
                done.set()

    streaming = subscriber.subscribe(subscription, handle)
    assert done.wait(PATIENCE), (len(seen), tried)
    took = time.perf_counter() - began - published
    streaming.cancel()
    streaming.result()
    for found in seen.values():
        assert sorted(set(found)) == list(range(each)), "a message was lost"
        assert all(b <= a + 1 for a, b in itertools.pairwise(found)), "a message was overtaken"
    graves = subscriber.subscription_path(PROJECT, f"ordered-{n}-graves")
    dead = subscriber.pull(subscription=graves, max_messages=10).received_messages
    assert [(one.message.ordering_key, int(one.message.data)) for one in dead] == [poison]
    return {
        "seconds": took, "attempts": tried, "nacked": len(refused), "dead_letters": len(dead),
        "deliveries": sum(map(len, seen.values())),
    }  # fmt: skip


if __name__ == "__main__":
    mode, count = sys.argv[1], int(sys.argv[2])
    print(json.dumps((throughput if mode == "throughput" else ordered)(count)), flush=True)
