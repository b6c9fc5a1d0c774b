"""Three NATS servers whose leader is killed under load: nothing lost, dead letters exact."""

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.bus.message import (
    ORIGIN_MESSAGE_ID,
    SOURCE_DELIVERY_COUNT,
    Delivery,
    ErrorKind,
    Nack,
    NewMessage,
    SubscriptionSpec,
    TopicSpec,
)
from penstock.bus.transports.nats.options import NatsOptions
from penstock.bus.transports.nats.transport import NatsTransport
from penstock.core.clock import SECOND, SystemClock
from penstock.core.errors import TransportUnavailable
from tests.kits.nats import NatsServer, free_port

MESSAGES = 3_000
BATCH = 20
KEYS = 30
ATTEMPTS = 3
STREAM = "penstock_orders"
CLOCK = SystemClock()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[dict[str, NatsServer]]:
    """Three servers that route to each other."""
    routes = {name: free_port() for name in ("one", "two", "three")}
    addresses = ", ".join(f"nats-route://127.0.0.1:{port}" for port in routes.values())
    servers = {
        name: NatsServer(
            tmp_path / name,
            more=(
                f"server_name: {name}",
                f"cluster {{ name: penstock, listen: 127.0.0.1:{port}, routes: [{addresses}] }}",
            ),
        )
        for name, port in routes.items()
    }
    for server in servers.values():
        server.start()
    yield servers
    for server in servers.values():
        server.kill()


def declared(bus: NatsTransport) -> None:
    """Declare the topic and its subscription, as soon as the servers have elected a leader."""
    topics = [TopicSpec(name="orders"), TopicSpec(name="work.dlq")]
    subscriptions = [
        SubscriptionSpec(
            name="work", topic="orders", dead_letter_topic="work.dlq", is_ordered=True,
            ack_deadline_us=20 * SECOND, min_backoff_us=0, max_backoff_us=0,
            max_attempts=ATTEMPTS,
        ),
        SubscriptionSpec(name="work.dead", topic="work.dlq"),
    ]  # fmt: skip
    for _ in range(120):
        try:
            bus.declare(topics, subscriptions)
        except TransportUnavailable:
            threading.Event().wait(0.5)
        else:
            return
    raise AssertionError("the servers elected no leader")


def leader(bus: NatsTransport) -> str:
    """Return the server that leads the topic's stream."""
    found = bus._connection.call(bus._connection.api(f"STREAM.INFO.{STREAM}", {}))
    return str(found["cluster"]["leader"])


def is_poison(text: str) -> bool:
    """Every hundredth message fails at every attempt."""
    return int(text.partition("-")[2]) % 100 == 99


class Consumer:
    """Pulls until every message is acked or a dead letter; remembers every attempt."""

    def __init__(self, options: NatsOptions) -> None:
        self.bus = NatsTransport(options)
        self.acked: list[str] = []
        self.attempts: Counter[str] = Counter()
        self.errors = 0
        self.longest_gap = 0.0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self) -> None:
        last = CLOCK.monotonic()
        while not self.stop.is_set():
            try:
                found = self.bus.pull("work", max_messages=100, wait_seconds=1)
                self.settle(found)
            except TransportUnavailable:
                self.errors += 1
                self.stop.wait(0.2)
                continue
            now = CLOCK.monotonic()
            if found:
                self.longest_gap = max(self.longest_gap, now - last)
                last = now

    def settle(self, found: list[Delivery]) -> None:
        good = [one for one in found if not is_poison(one.data.decode())]
        bad = [one for one in found if is_poison(one.data.decode())]
        for one in found:
            self.attempts[one.data.decode()] = max(self.attempts[one.data.decode()], one.attempt)
        self.acked += [one.data.decode() for one in good]
        self.bus.ack("work", [one.ack_id for one in good])
        nacks = [Nack(ack_id=one.ack_id, kind=ErrorKind.TRANSIENT, error="no") for one in bad]
        self.bus.nack("work", nacks)


@pytest.mark.slow
@pytest.mark.chaos
def test_the_leader_is_killed_under_load(cluster: dict[str, NatsServer]) -> None:
    """0 lost, order per key kept, each poison message one dead letter after its attempts."""
    urls = tuple(server.url for server in cluster.values())
    options = NatsOptions(servers=urls, replicas=3, request_seconds=2.0, publish_seconds=60.0)
    producer = NatsTransport(options)
    declared(producer)
    consumer = Consumer(options)
    consumer.thread.start()
    began = CLOCK.monotonic()
    slowest = 0.0
    killed = ""
    texts = [f"{n % KEYS}-{n}" for n in range(MESSAGES)]
    for start in range(0, MESSAGES, BATCH):
        if start == MESSAGES // 3:
            killed = leader(producer)
            cluster[killed].kill()
        if start == 2 * MESSAGES // 3:
            cluster[killed].start()
        batch = [
            NewMessage(data=text.encode(), ordering_key=text.partition("-")[0], dedupe_id=text)
            for text in texts[start : start + BATCH]
        ]
        at = CLOCK.monotonic()
        producer.publish("orders", batch)
        slowest = max(slowest, CLOCK.monotonic() - at)
    good = {text for text in texts if not is_poison(text)}
    poison = set(texts) - good
    dead: list[Delivery] = []
    for _ in range(600):
        try:
            dead += (found := producer.pull("work.dead", max_messages=100, wait_seconds=0.5))
            producer.ack("work.dead", [one.ack_id for one in found])
        except TransportUnavailable:
            continue
        if set(consumer.acked) >= good and len(dead) >= len(poison):
            break
    consumer.stop.set()
    consumer.thread.join(timeout=60)
    firsts = list(dict.fromkeys(consumer.acked))
    report = {
        "messages": MESSAGES,
        "killed": killed,
        "lost": len(good - set(consumer.acked)),
        "redelivered_after_ack": len(consumer.acked) - len(firsts),
        "dead_letters": len(dead),
        "dead_letters_expected": len(poison),
        "slowest_publish_seconds": round(slowest, 1),
        "longest_consumer_gap_seconds": round(consumer.longest_gap, 1),
        "errors_seen_by_the_consumer": consumer.errors,
        "seconds": round(CLOCK.monotonic() - began, 1),
    }
    sys.stdout.write(f"\n{json.dumps(report)}\n")
    producer.close()
    consumer.bus.close()
    assert report["lost"] == 0
    assert sorted(one.data.decode() for one in dead) == sorted(poison)
    assert len({one.attributes[ORIGIN_MESSAGE_ID] for one in dead}) == len(poison)
    assert {one.attributes[SOURCE_DELIVERY_COUNT] for one in dead} == {str(ATTEMPTS)}
    assert {consumer.attempts[text] for text in poison} == {ATTEMPTS}
    for key in range(KEYS):
        of_key = [text for text in texts if text.startswith(f"{key}-") and text in good]
        assert [text for text in firsts if text.startswith(f"{key}-")] == of_key
