"""The bridge: nothing lost while the broker is down, order kept, unusable messages kept."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest

from penstock.bus.message import (
    Delivery,
    ErrorKind,
    Nack,
    NewMessage,
    SettleResult,
    SubscriptionSpec,
    TopicSpec,
)
from penstock.bus.transports.bridges import parse_bridges
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.bus.transports.nats.options import NatsOptions
from penstock.bus.transports.nats.transport import NatsTransport
from penstock.bus.transports.protocol import Transport
from penstock.bus.transports.pubsub.options import PubsubOptions
from penstock.bus.transports.pubsub.transport import PubsubTransport
from penstock.client import Client
from penstock.core.errors import InvalidInput, SettingsError, TransportUnavailable
from penstock.db.sqlite.store import SqliteStore
from penstock.services.bridge import SENT_ID, Bridge, _mark
from penstock.testing.clock import VirtualClock
from penstock.testing.memory import memory_store
from tests.bus.transports.rig import NUMBERS
from tests.kits.client_harness import Harness
from tests.kits.nats import NatsServer
from tests.pubsub_wire.kit import served

SETTINGS = parse_bridges(
    {"main": {"url": "nats://unused", "send": ["orders", "shop.*"], "receive": ["reports"]}}
)[0]


class Broken:
    """A transport in front of another one: down, or losing replies, when the test says so."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.is_down = False
        self.loses_acks = False
        self.size_max = 10_000_000

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.inner, name)
        if not callable(call):
            return call

        def checked(*args: Any, **kwargs: Any) -> Any:
            if self.is_down:
                raise TransportUnavailable("down")
            done = call(*args, **kwargs)
            if name == "ack" and self.loses_acks:
                raise TransportUnavailable("the reply was lost")
            return done

        return checked

    def publish(self, topic: str, messages: Sequence[NewMessage]) -> list[str]:
        """Publish in part when the connection is lost in between, like a broker."""
        if self.is_down:
            raise TransportUnavailable("down")
        for message in messages:
            if len(message.data) > self.size_max:
                raise InvalidInput("messages[0].data", f"at most {self.size_max} bytes", "more")
        return self.inner.publish(topic, messages)


class Scene:
    """A store, an external broker, and the bridge between them."""

    def __init__(self, harness: Harness, remote: Transport) -> None:
        self.harness = harness
        self.local = EmbeddedBus(harness.store, jitter=lambda: 0.0)
        self.remote = Broken(remote)
        self.local.declare([TopicSpec(name="orders")], [])
        self.bridge = Bridge(harness.store, SETTINGS, lambda: self.remote, clock=harness.clock)
        self.bridge.run_once()
        self.remote.inner.declare([], [SubscriptionSpec(name="reader", topic="orders")])
        self.local.declare([], [SubscriptionSpec(name="here", topic="reports")])

    def send(self, *texts: str, **more: Any) -> None:
        """Publish locally; the first character is the ordering key."""
        self.local.publish(
            "orders",
            [NewMessage(data=text.encode(), ordering_key=text[0], **more) for text in texts],
        )

    def read(self, bus: Transport, name: str) -> list[Delivery]:
        """Pull and ack everything that is ready."""
        found: list[Delivery] = []
        while more := bus.pull(name, wait_seconds=0.0):
            bus.ack(name, [one.ack_id for one in more])
            found += more
        return found


@pytest.fixture
def scene(harness: Harness, nats_server: NatsServer) -> Iterator[Scene]:
    """The store of the harness and a real NATS server."""
    options = NatsOptions(servers=(nats_server.url,), prefix=f"b{next(NUMBERS)}")
    made = Scene(harness, NatsTransport(options))
    yield made
    made.bridge.close()
    made.remote.inner.close()


def texts(found: Sequence[Delivery]) -> list[str]:
    """Return the data as text."""
    return [one.data.decode() for one in found]


def test_messages_wait_while_the_broker_is_down(scene: Scene) -> None:
    """For a minute nothing can be sent: nothing is lost or counted, and keys keep their order."""
    scene.remote.is_down = True
    for n in range(60):
        scene.send(f"a{n}", f"b{n}")
        with pytest.raises(TransportUnavailable):
            scene.bridge.run_once()
        scene.harness.clock.advance(seconds=1)
    scene.remote.is_down = False
    sent = dead = 0
    for _ in range(10):
        done = scene.bridge.run_once()
        sent, dead = sent + done.sent, dead + done.dead_letters
    assert (sent, dead) == (120, 0)
    found = texts(scene.read(scene.remote.inner, "reader"))
    for key in "ab":
        assert [text for text in found if text[0] == key] == [f"{key}{n}" for n in range(60)]


def test_an_interrupted_send_is_not_doubled(scene: Scene) -> None:
    """The broker stored the batch but the local ack failed: it is sent again under its ids."""
    scene.send("a1", "a2", attributes={"kind": "x"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scene.bridge._local, "ack", _failing)
        with pytest.raises(TransportUnavailable):
            scene.bridge.run_once()
    assert scene.bridge.run_once().sent == 2
    found = scene.read(scene.remote.inner, "reader")
    assert [(one.data, dict(one.attributes)) for one in found] == [
        (b"a1", {"kind": "x"}), (b"a2", {"kind": "x"}),
    ]  # fmt: skip


def test_a_broker_without_dedupe_ids(
    harness: Harness, tmp_path: Path, sqlite_template: Path
) -> None:
    """Over Google's client the id is an attribute, by which another installation drops repeats."""
    stores = [
        SqliteStore(shutil.copy(sqlite_template, tmp_path / f"{n}.db"), harness.clock) for n in "ab"
    ]
    with served(stores[0], harness.clock) as wire:
        options = PubsubOptions(project="acme", endpoint=wire.server.address)
        scene = Scene(harness, PubsubTransport(options, clock=harness.clock))
        receiving = parse_bridges({"inward": {"url": "pubsub://acme", "receive": ["orders"]}})[0]
        there = Bridge(stores[1], receiving, lambda: scene.remote.inner, clock=harness.clock)
        there.run_once()
        EmbeddedBus(stores[1]).declare([], [SubscriptionSpec(name="there", topic="orders")])
        scene.send("a1", "a2", attributes={"kind": "x"})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scene.bridge._local, "ack", _failing)
            with pytest.raises(TransportUnavailable):
                scene.bridge.run_once()
        assert scene.bridge.run_once().sent == 2
        found = scene.read(scene.remote.inner, "reader")
        assert texts(found) == ["a1", "a2", "a1", "a2"]
        assert len({one.attributes[SENT_ID] for one in found}) == 2
        there.run_once()
        assert texts(scene.read(EmbeddedBus(stores[1]), "there")) == ["a1", "a2"]
        scene.bridge.close()
    for store in stores:
        store.close()


def test_received_messages_are_stored_once(scene: Scene) -> None:
    """A lost ack repeats the messages; their ids make that harmless."""
    made = [NewMessage(data=b"r%d" % n, ordering_key="k") for n in range(3)]
    scene.remote.publish("reports", made)
    scene.remote.loses_acks = True
    with pytest.raises(TransportUnavailable):
        scene.bridge.run_once()
    scene.remote.loses_acks = False
    for _ in range(5):
        scene.bridge.run_once()
    assert texts(scene.read(scene.local, "here")) == ["r0", "r1", "r2"]


def test_what_the_broker_refuses_is_a_dead_letter(scene: Scene) -> None:
    """An oversized message does not stop those behind it, and is found in the inbox."""
    scene.remote.size_max = 10
    scene.send("a1", "a" * 50, "a2")
    assert scene.bridge.run_once().dead_letters == 1
    scene.bridge.run_once()
    assert texts(scene.read(scene.remote.inner, "reader")) == ["a1", "a2"]
    (found,) = Client(scene.harness.store, actor="tester").dead_letters.list().items
    assert (found.subscription, found.error_type) == (
        "bridge.main.orders", "UNUSABLE_MESSAGE",
    )  # fmt: skip


def test_dead_letters_of_the_broker_are_in_the_inbox(scene: Scene) -> None:
    """A dead letter that is received, and a message that cannot be published, are kept."""
    scene.remote.inner.declare(
        [TopicSpec(name="work.dlq")],
        [SubscriptionSpec(name="work", topic="orders", dead_letter_topic="work.dlq")],
    )
    settings = parse_bridges({"dead": {"url": "nats://unused", "receive": ["work.dlq"]}})[0]
    bridge = Bridge(
        scene.harness.store, settings, lambda: scene.remote, clock=scene.harness.clock
    )  # fmt: skip
    bridge.run_once()
    scene.remote.publish("orders", [NewMessage(data=b"bad")])
    (got,) = scene.remote.inner.pull("work", wait_seconds=5)
    nack = Nack(ack_id=got.ack_id, kind=ErrorKind.POISON, error_type="Boom", error="broken")
    assert scene.remote.inner.nack("work", [nack]) == [SettleResult.DONE]
    counts = [bridge.run_once().dead_letters for _ in range(5)]
    assert sum(counts) == 1
    (found,) = Client(scene.harness.store, actor="tester").dead_letters.list().items
    assert found.error_type == "Boom"


def test_patterns_and_settings() -> None:
    """Patterns match topics that exist; invalid bridges are refused by name."""
    assert SETTINGS.sent(["shop.raw.complete", "shop.raw.trigger", "nba.raw.complete"]) == [
        "orders", "shop.raw.complete", "shop.raw.trigger",
    ]  # fmt: skip
    for table, field in (
        ([], "bridges"),
        ({"main": 1}, r"bridges\.main"),
        ({"main": {"url": "nats://x"}}, "topics"),
        ({"main": {"url": "x", "send": ["orders"]}}, "url"),
        ({"main": {"url": "nats://x", "send": "orders"}}, "send"),
        ({"main": {"url": "nats://x", "receive": ["a*"]}}, "receive"),
        ({"main": {"url": "nats://x", "send": ["orders"], "color": 1}}, "color"),
        ({"main": {"url": "nats://x", "send": ["ord*"], "receive": ["orders"]}}, "would loop"),
    ):
        with pytest.raises(SettingsError, match=field):
            parse_bridges(table)


def _failing(*_: object) -> None:
    raise TransportUnavailable("lost")


COPIED = {SENT_ID: "penstock-1-7/41"}
FOLLOW_UPS = [
    NewMessage(data=b"a", attributes=COPIED),
    NewMessage(data=b"b", attributes=COPIED),
    NewMessage(data=b"b", attributes=COPIED),
    NewMessage(data=b"innocent"),
]


def test_copied_attributes_of_a_broker_with_ids(scene: Scene) -> None:
    """Follow-ups that carry the attributes of an earlier message are messages of their own."""
    scene.remote.publish("reports", FOLLOW_UPS)
    for _ in range(3):
        scene.bridge.run_once()
    assert sorted(texts(scene.read(scene.local, "here"))) == ["a", "b", "b", "innocent"]


def test_copied_attributes_of_a_broker_without_ids(
    harness: Harness, tmp_path: Path, sqlite_template: Path
) -> None:
    """An id counts only with the topic and content for which it was made; no batch fails for it."""
    store = SqliteStore(shutil.copy(sqlite_template, tmp_path / "wire.db"), harness.clock)
    with served(store, harness.clock) as wire:
        options = PubsubOptions(project="acme", endpoint=wire.server.address)
        scene = Scene(harness, PubsubTransport(options, clock=harness.clock))
        made = {SENT_ID: f"penstock-1-7/41/{_mark('reports', b'c')}"}
        scene.remote.publish("reports", [
            *FOLLOW_UPS,
            NewMessage(data=b"c", attributes=made),
            NewMessage(data=b"c", attributes=made),  # sent again
            NewMessage(data=b"c", attributes={**made, "step": "2"}),
            NewMessage(data=b"d", attributes=made),
        ])  # fmt: skip
        for _ in range(3):
            scene.bridge.run_once()
        found = sorted(texts(scene.read(scene.local, "here")))
        assert found == ["a", "b", "b", "c", "c", "d", "innocent"]
        scene.bridge.close()
    store.close()


def test_a_broker_that_uses_an_id_again(harness: Harness) -> None:
    """A stream that was deleted numbers from one again: the message is kept as a dead letter."""
    clock = harness.clock
    local = EmbeddedBus(harness.store, jitter=lambda: 0.0)
    for text in ("first", "second"):
        with closing_store(clock) as other:
            remote = EmbeddedBus(other, jitter=lambda: 0.0)
            bridge = Bridge(harness.store, SETTINGS, lambda r=remote: r, clock=clock)  # type: ignore[misc]
            bridge.run_once()
            local.declare([], [SubscriptionSpec(name="here", topic="reports")])
            remote.publish("reports", [NewMessage(data=text.encode())])
            counts = bridge.run_once()
            assert (counts.received, counts.dead_letters) == (
                (1, 0) if text == "first" else (0, 1)
            )  # fmt: skip
    assert [one.data for one in local.pull("here")] == [b"first"]
    (found,) = Client(harness.store, actor="tester").dead_letters.list().items
    assert found.error_type == "UNUSABLE_MESSAGE"


def closing_store(clock: VirtualClock) -> AbstractContextManager[SqliteStore]:
    """Return a new store, closed afterwards."""
    return closing(memory_store(clock))
