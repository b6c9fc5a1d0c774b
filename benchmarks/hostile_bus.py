"""Hostile messages: 1,000 to every consumer of the bus, next to another customer's messages.

One customer's subscriptions are bound to runs, completions and configs, or push to an endpoint that
refuses, fails or hangs; its messages have wrong types in every field. Another customer has the same
kinds of subscription and sends good messages at a steady rate. The figure is the latency of these
messages from publishing to the ack, by the database's clock. `hostile` reports `bus_ratio`.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.raw import Raw
from benchmarks.result import percentile, print_progress
from benchmarks.site import Site
from penstock.access.secrets import Secrets
from penstock.audit.telemetry import Events
from penstock.bus.delivery_sweeper import DeliverySweeper
from penstock.bus.message import NewMessage
from penstock.bus.push.push_config import PushRequest, PushResponse
from penstock.bus.push.pusher import Pusher
from penstock.bus.records import Subscription, Topic
from penstock.client import Client
from penstock.core.clock import SECOND, SystemClock
from penstock.core.records.validation import convert_input
from penstock.db.store import Store
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.services.binder import Binder
from penstock.services.supervisor import Loop, LoopSchedule, Supervisor
from penstock.services.upkeep import OutboxPublisher

MEAN, OTHER = "mean", "other"
HOSTILE = 1_000
"""Hostile messages to each consumer."""
RATE = 20
"""Good messages per second to each consumer."""
HANG_SECONDS = 0.5
KINDS: dict[str, dict[str, Any]] = {
    "runs": {"kind": "bound", "binding": {"to": "runs", "pipeline": "orders"}},
    "completions": {"kind": "bound", "binding": {"to": "completions", "pipeline": "orders"}},
    "configs": {"kind": "bound", "binding": {"to": "configs"}},
    "push": {"kind": "push", "push": {"push_endpoint": "https://hooks.example.com/in"}},
}
VALUES: list[Any] = ["abc", "", "x" * 2_000, -1, 2**60, 1e300, True, None, [], [[{}]], {"a": [1]}]
FIELDS = ("processor_name", "phase", "partition", "status", "execution_id", "records_processed",
          "metadata", "completeness", "entities_changed", "customer_id")  # fmt: skip
BODIES = [b"", b"no json", b"[1]", b"null", b"{", b"\xff\xfe", b'{"a":1,"a":2}', b"[" * 2_000]


def bus_figures(site: Site, *, quick: bool) -> dict[str, Any]:
    """Measure the other customer's latency without and with the hostile messages, in turns."""
    seconds, rounds = (4, 1) if quick else (10, 3)
    place = site.create("hostile_bus")
    store = place.store()
    raw = place.raw()
    client = Client(store, actor="bench")
    _declare(client)
    normal: list[float] = []
    attacked: list[float] = []
    with _services(store):
        _traffic(client, 1.0)
        for number in range(rounds):
            print_progress(f"normal, {number + 1} of {rounds}")
            normal += _measured(client, raw, seconds)
            print_progress(f"{HOSTILE:,} hostile messages to each of {len(KINDS)} consumers")
            _attack(client)
            attacked += _measured(client, raw, seconds)
    raw.close()
    store.close()
    site.drop(place)
    return {
        "bus_ratio": percentile(attacked, 0.95) / percentile(normal, 0.95),
        "bus_normal_p95_ms": percentile(normal, 0.95),
        "bus_p95_ms": percentile(attacked, 0.95),
        "bus_normal_p50_ms": percentile(normal, 0.5),
        "bus_p50_ms": percentile(attacked, 0.5),
        "bus_messages": len(attacked),
    }


def _declare(client: Client) -> None:
    pipeline = Pipeline("orders")
    pipeline.phase("main").external("load")
    client.register([pipeline])
    for customer in (MEAN, OTHER):
        for name, more in KINDS.items():
            client.topics.create(Topic(name=name), customer=customer)
            body = {"name": f"to-{name}", "topic": name, "min_backoff_seconds": 1, **more}
            client.subscriptions.declare(convert_input(body, Subscription), customer=customer)


@contextmanager
def _services(store: Store) -> Iterator[None]:
    jitter = random.Random(7).random
    pusher = Pusher(
        store, _post, bearer=lambda *_: "", secrets=Secrets({}), clock=SystemClock(),
        jitter=jitter, events=Events(),
    )  # fmt: skip
    services = [
        (Binder(store, jitter=jitter, threads=4), ("bound",)),
        (pusher, ("push",)),
        (DeliverySweeper(store, jitter=jitter), ()),
        (OutboxPublisher(store), ("outbox",)),
    ]
    loops = [
        Loop(
            service,  # type: ignore[arg-type]
            LoopSchedule(interval_us=SECOND, channels=channels),
            store,
            events=Events(),
            jitter=jitter,
        )
        for service, channels in services
    ]
    supervisor = Supervisor(loops)
    supervisor.start()
    try:
        yield
    finally:
        supervisor.stop()


def _post(request: PushRequest) -> PushResponse:
    """Respond as the endpoint of the customer: one is well, the other refuses, fails and hangs."""
    if request.owner != MEAN:
        return PushResponse(status=204)
    kind = len(request.body) % 4
    if kind == 0:
        threading.Event().wait(HANG_SECONDS)
        return PushResponse(failure="timeout", error="no response in time")
    return PushResponse(status=(400, 422, 503)[kind - 1])


def _attack(client: Client) -> None:
    bodies = [
        json.dumps({"processor_name": "load", "phase": "main", name: value}).encode()
        for name in FIELDS
        for value in VALUES
    ] + BODIES
    for name in KINDS:
        for start in range(0, HOSTILE, 500):
            messages = [
                NewMessage(data=bodies[n % len(bodies)], attributes={"n": str(n)})
                for n in range(start, start + 500)
            ]
            client.topics.publish(name, messages, customer=MEAN)


def _measured(client: Client, raw: Raw, seconds: float) -> list[float]:
    """Send good messages for some seconds; return their latencies in milliseconds."""
    ids = _traffic(client, seconds)
    served = (
        "SELECT s.at - s.published_at FROM settled s JOIN customers c ON c.customer = s.customer "
        f"WHERE c.customer_id = '{OTHER}' AND s.outcome = 'acked' AND s.message_id >= {ids[0]}"
    )
    deadline = time.perf_counter() + 60
    while True:
        found = [us for (us,) in raw.rows(served)]
        if len(found) == len(ids):
            return [us / 1_000 for us in found]
        if time.perf_counter() > deadline:
            raise AssertionError(f"{len(ids) - len(found)} of {len(ids)} were not served")
        threading.Event().wait(0.1)


def _traffic(client: Client, seconds: float) -> list[int]:
    good = json.dumps({"processor_name": "load", "phase": "main", "partition": "2025-12-31"})
    bodies = {"runs": b"{}", "completions": good.encode(), "configs": b"{}", "push": b"{}"}
    began = time.perf_counter()
    ids: list[int] = []
    for n in range(int(seconds * RATE)):
        threading.Event().wait(max(0.0, began + n / RATE - time.perf_counter()))
        for name, body in bodies.items():
            message = NewMessage(data=body, attributes={"n": str(n)})
            done = client.topics.publish(name, [message], customer=OTHER)
            ids += [int(message_id) for message_id in done.message_ids]
    return ids
