"""Transports under one suite: each provides a rig that advances time in its own way.

A test checks the rig's capabilities before it relies on more than at-least-once delivery. Another
broker joins by adding its rig to `RIGS`; its capabilities say what it cannot do.

A rig over Penstock's store has a virtual clock. A rig over a foreign server runs in real time, sped
up: there `pull` waits for what is due, and tests do not check that a message is not early to the
millisecond (`is_virtual`), because a busy machine may be late.
"""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import pytest

from penstock.bus.delivery_sweeper import DeliverySweeper
from penstock.bus.message import (
    DEAD_LETTER_SUFFIX,
    Delivery,
    NewMessage,
    SubscriptionSpec,
    TopicSpec,
)
from penstock.bus.transports.capabilities import TransportCapabilities
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.bus.transports.nats.options import NatsOptions
from penstock.bus.transports.nats.transport import NatsTransport
from penstock.bus.transports.over_client import ClientBus
from penstock.bus.transports.protocol import Transport
from penstock.bus.transports.pubsub.options import PubsubOptions
from penstock.bus.transports.pubsub.transport import PubsubTransport
from penstock.core.clock import SECOND
from penstock.db.sqlite.store import SqliteStore
from penstock.db.store import Store
from penstock.remote import connect
from penstock.testing.clock import VirtualClock
from tests.conftest import OpenPostgres
from tests.kits.client_harness import Harness
from tests.kits.nats import NatsServer
from tests.pubsub_wire.kit import served
from tests.server.kit import ServedApi

SPEED = 20.0
NUMBERS = itertools.count(1)
PATIENCE_SECONDS = 10.0
"""How long a pull of a server in real time waits for what is due."""
SETTLE_SECONDS = 0.15
"""How long it waits for more."""


@dataclass(frozen=True, slots=True)
class Rig:
    """A transport, another connection to the same broker, and how to advance time for both."""

    bus: Transport
    other: Transport
    pass_seconds: Callable[[float], None]
    is_virtual: bool = True
    """Whether time stands still between calls of `pass_seconds`."""

    @property
    def can(self) -> TransportCapabilities:
        """The capabilities of the transport."""
        return self.bus.capabilities

    def declare(self, name: str = "work", **more: object) -> str:
        """Declare a subscription called `name` on its own topic, with a dead-letter subscription.

        Returns the topic's name; `<name>.dead` reads the dead letters.
        """
        topic, dead = f"{name}-topic", f"{name}{DEAD_LETTER_SUFFIX}"
        more = {"dead_letter_topic": dead, **more}
        self.bus.declare(
            [TopicSpec(name=topic), TopicSpec(name=dead)],
            [
                SubscriptionSpec(name=name, topic=topic, **more),  # type: ignore[arg-type]
                SubscriptionSpec(name=f"{name}.dead", topic=dead),
            ],
        )
        return topic

    def publish(self, topic: str, *bodies: str, **more: object) -> list[str]:
        """Publish small messages."""
        made = [NewMessage(data=body.encode(), **more) for body in bodies]  # type: ignore[arg-type]
        return self.bus.publish(topic, made)

    def pull(self, name: str = "work", n: int = 100) -> list[Delivery]:
        """Return the messages that are ready now; in real time, wait for those that are due."""
        if self.is_virtual:
            return self.bus.pull(name, max_messages=n)
        found: list[Delivery] = []
        wait = PATIENCE_SECONDS
        while len(found) < n:
            more = self.bus.pull(name, max_messages=n - len(found), wait_seconds=wait)
            if not more:
                break
            found += more
            wait = SETTLE_SECONDS
        return found

    def pass_long(self) -> None:
        """Let more time pass than any deadline or backoff of the tests takes."""
        self.pass_seconds(3_600 if self.is_virtual else 40)

    def is_empty(self, name: str = "work", by: Transport | None = None) -> bool:
        """Return whether no message is ready now."""
        return (by or self.bus).pull(name) == []

    def not_yet(self, name: str = "work") -> None:
        """Check that nothing is ready, where time stands still between two calls."""
        assert not self.is_virtual or self.is_empty(name)

    def one(self, name: str = "work") -> Delivery:
        """Return the only ready message."""
        (found,) = self.pull(name)
        return found


def bodies(deliveries: Sequence[Delivery]) -> list[str]:
    """Return the delivered content as text."""
    return [delivery.data.decode() for delivery in deliveries]


def _store(engine: str, request: pytest.FixtureRequest, clock: VirtualClock) -> Store:
    if engine.startswith("postgres"):
        opened: OpenPostgres = request.getfixturevalue("pg_open")
        return opened(clock, is_plain=engine == "postgres-plain")
    path = request.getfixturevalue("tmp_path") / "penstock.db"
    shutil.copy(request.getfixturevalue("sqlite_template"), path)
    return SqliteStore(path, clock)


def embedded(engine: str, request: pytest.FixtureRequest) -> Iterator[Rig]:
    """The embedded bus on one engine, under a clock that the rig advances."""
    clock: VirtualClock = request.getfixturevalue("clock")
    store = _store(engine, request, clock)
    sweeper = DeliverySweeper(store, jitter=lambda: 0.0)

    def pass_seconds(seconds: float) -> None:
        clock.advance(int(seconds * SECOND))
        sweeper.run_once()

    yield Rig(
        EmbeddedBus(store, jitter=lambda: 0.0, actor="one"),
        EmbeddedBus(store, jitter=lambda: 0.0, actor="two"),
        pass_seconds,
    )
    store.close()


def over_http(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """The embedded bus of a served API, through the client over HTTP."""
    clock: VirtualClock = request.getfixturevalue("clock")
    path = request.getfixturevalue("tmp_path") / "penstock.db"
    shutil.copy(request.getfixturevalue("sqlite_template"), path)
    store = SqliteStore(path, clock)
    api = ServedApi(Harness(store, clock), body_max=16_000_000)
    steady = SimpleNamespace(Random=lambda: SimpleNamespace(random=lambda: 0.0))
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    patch.setattr("penstock.bus.transports.embedded.random", steady)
    sweeper = DeliverySweeper(store, jitter=lambda: 0.0)

    def pass_seconds(seconds: float) -> None:
        clock.advance(int(seconds * SECOND))
        sweeper.run_once()

    url = f"http://127.0.0.1:{api.server.port}"
    with connect(url, key=api.keys["admin"], allow_plain=True) as client:
        yield Rig(ClientBus(client), ClientBus(client), pass_seconds)
    api.stop()
    store.close()


def nats(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """A real NATS server, whose time runs twenty times as fast as the declarations say."""
    server: NatsServer = request.getfixturevalue("nats_server")
    options = NatsOptions(servers=(server.url,), prefix=f"t{next(NUMBERS)}", speed=SPEED)

    def pass_seconds(seconds: float) -> None:
        threading.Event().wait(seconds / SPEED)

    yield Rig(
        NatsTransport(options, jitter=lambda: 0.0),
        NatsTransport(options, jitter=lambda: 0.0),
        pass_seconds,
        is_virtual=False,
    )


def pubsub(engine: str, request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Google's client library against Penstock's own front end, under a clock that is advanced."""
    clock: VirtualClock = request.getfixturevalue("clock")
    store = _store(engine, request, clock)
    sweeper = DeliverySweeper(store, jitter=lambda: 0.0)

    def pass_seconds(seconds: float) -> None:
        clock.advance(int(seconds * SECOND))
        sweeper.run_once()

    def pass_steps(seconds: float) -> None:
        """Sweep every five seconds, as a server would: a lapse starts the backoff."""
        if seconds > 120:
            pass_seconds(seconds)
            return
        for _ in range(int(seconds // 5)):
            pass_seconds(5)
        pass_seconds(seconds % 5)

    with served(store, clock, jitter=lambda: 0.0) as wire:
        options = PubsubOptions(project="acme", endpoint=wire.server.address)
        yield Rig(
            PubsubTransport(options, clock=clock),
            PubsubTransport(options, clock=clock),
            pass_steps,
        )
    store.close()


RIGS: dict[str, Callable[[pytest.FixtureRequest], Iterator[Rig]]] = {
    "embedded-sqlite": partial(embedded, "sqlite"),
    "embedded-postgres": partial(embedded, "postgres"),
    "embedded-postgres-plain": partial(embedded, "postgres-plain"),
    "http": over_http,
    "nats": nats,
    "pubsub-sqlite": partial(pubsub, "sqlite"),
    "pubsub-postgres": partial(pubsub, "postgres"),
}


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.postgres] if "postgres" in name else [])
        for name in RIGS
    ]
)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Every transport that is reachable."""
    for made in RIGS[str(request.param)](request):
        yield made
        made.bus.close()
        made.other.close()
