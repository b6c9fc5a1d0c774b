"""One customer's work delays no other's, and stopping waits for what is in progress."""

from __future__ import annotations

import threading

from penstock.bus.message import NewMessage
from penstock.bus.records import Subscription, Topic
from penstock.core.records.validation import convert_input
from penstock.services.binder import Binder
from penstock.services.customer_threads import CustomerThreads
from tests.kits.client_harness import Harness

SECONDS = 60


def test_a_hanging_customer_delays_no_other() -> None:
    """While one thread hangs, other customers are served repeatedly; its own items wait."""
    free, ended = threading.Event(), threading.Semaphore(0)
    served: list[str] = []

    def serve(item: str) -> None:
        served.append(item)
        if item.startswith("mean"):
            free.wait(SECONDS)

    threads = CustomerThreads(serve, lambda item: item[:4], threads=2, on_end=ended.release)
    try:
        assert threads.start(["mean-1", "mean-2", "good-1"]) == 2
        assert ended.acquire(timeout=SECONDS)
        assert threads.start(["mean-3", "good-2"]) == 1, "one thread for each customer at a time"
        assert ended.acquire(timeout=SECONDS)
        assert sorted(served) == ["good-1", "good-2", "mean-1"]
    finally:
        free.set()
    assert threads.drain(SECONDS)
    assert threads.start(["good-3"]) == 0, "it starts nothing more"


def test_a_binder_with_threads(harness: Harness) -> None:
    """Messages of several customers become runs, each exactly once."""
    for customer in ("acme", "globex"):
        harness.client.topics.create(Topic(name="feed"), customer=customer)
        binding = {"to": "runs", "pipeline": "outside"}
        body = {"name": "to-runs", "topic": "feed", "kind": "bound", "binding": binding}
        harness.client.subscriptions.declare(convert_input(body, Subscription), customer=customer)
        harness.client.topics.publish("feed", [NewMessage(data=b"{}")] * 3, customer=customer)
    waiter = harness.store.listen(["bound"])
    binder = Binder(harness.store, jitter=lambda: 0.0, threads=2)
    for _ in range(SECONDS):
        binder.run_once()
        if harness.counts("runs")["runs"] == 6:
            break
        waiter.wait(1)
    assert binder.drain(SECONDS)
    assert harness.counts("runs", "deliveries") == {"runs": 6, "deliveries": 0}
