"""A served front end on one engine, and Google's clients connected to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import google.cloud.pubsub_v1 as pubsub_v1
import grpc
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport
from google.pubsub_v1.services.schema_service import SchemaServiceClient
from google.pubsub_v1.services.schema_service.transports import SchemaServiceGrpcTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

from penstock.bus.delivery_sweeper import DeliverySweeper
from penstock.client import Client
from penstock.core.clock import SECOND, SystemClock
from penstock.db.store import Store
from penstock.egress.policy import STRICT
from penstock.pubsub_wire.handlers import WireOptions
from penstock.pubsub_wire.listener import PubsubServer
from penstock.testing.clock import VirtualClock

PROJECT = "acme"
WAIT = 30


class _Bearer(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):  # type: ignore[misc]
    """Sends an API key with every call."""

    def __init__(self, key: str) -> None:
        self._key = key

    def _with_key(self, details: Any) -> Any:
        metadata = [*(details.metadata or ()), ("authorization", f"Bearer {self._key}")]
        return details._replace(metadata=metadata)

    def intercept_unary_unary(self, call: Any, details: Any, request: Any) -> Any:
        return call(self._with_key(details), request)

    def intercept_stream_stream(self, call: Any, details: Any, requests: Any) -> Any:
        return call(self._with_key(details), requests)


@dataclass(slots=True)
class Wire:
    """A front end, and clients of it."""

    store: Store
    clock: VirtualClock
    server: PubsubServer
    client: Client
    _channels: list[Any] = field(default_factory=list)

    def channel(self, key: str | None = None) -> Any:
        """Return a channel, with an API key if one is given."""
        options = [
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 200),
        ]
        made = grpc.insecure_channel(self.server.address, options)
        self._channels.append(made)
        return made if key is None else grpc.intercept_channel(made, _Bearer(key))

    def publisher(self, key: str | None = None, **options: Any) -> Any:
        """Return Google's publisher."""
        return pubsub_v1.PublisherClient(
            transport=PublisherGrpcTransport(channel=self.channel(key)), **options
        )

    def subscriber(self, key: str | None = None) -> Any:
        """Return Google's subscriber."""
        return pubsub_v1.SubscriberClient(
            transport=SubscriberGrpcTransport(channel=self.channel(key))
        )

    def schemas(self, key: str | None = None) -> Any:
        """Return Google's client of schemas."""
        return SchemaServiceClient(transport=SchemaServiceGrpcTransport(channel=self.channel(key)))

    def pass_seconds(self, seconds: float) -> None:
        """Let time pass for the bus."""
        self.clock.advance(int(seconds * SECOND))
        DeliverySweeper(self.store, jitter=lambda: 0.0).run_once()

    def close(self) -> None:
        """Close clients and server."""
        for one in self._channels:
            one.close()
        self.server.stop()


@contextmanager
def served(store: Store, clock: VirtualClock, *, port: int = 0, **options: Any) -> Iterator[Wire]:
    """Serve a store."""
    client = Client(store)
    given: dict[str, Any] = {
        "project": "penstock", "needs_key": False, "threads": 2, "rate": 10_000.0, "rules": STRICT,
    }  # fmt: skip
    server = PubsubServer(
        client,
        WireOptions(**{**given, **options}),
        clock=SystemClock(),
        host="127.0.0.1",
        port=port,
    )
    server.start()
    wire = Wire(store, clock, server, client)
    try:
        yield wire
    finally:
        wire.close()


def topic(name: str = "orders", project: str = PROJECT) -> str:
    """Return the full name of a topic."""
    return f"projects/{project}/topics/{name}"


def subscription(name: str = "billing", project: str = PROJECT) -> str:
    """Return the full name of a subscription."""
    return f"projects/{project}/subscriptions/{name}"


@contextmanager
def consuming(subscriber: Any, name: str, callback: Callable[[Any], None]) -> Iterator[None]:
    """Consume a subscription by streaming pull."""
    future = subscriber.subscribe(name, callback)
    try:
        yield
    finally:
        future.cancel()
        future.result(WAIT)


class Collector:
    """Collects messages and reports when there are enough."""

    def __init__(self, enough: int) -> None:
        self.messages: list[Any] = []
        self._enough = enough
        self._done = threading.Event()
        self._lock = threading.Lock()

    def add(self, message: Any) -> None:
        """Add a message."""
        with self._lock:
            self.messages.append(message)
            if len(self.messages) >= self._enough:
                self._done.set()

    def wait(self) -> None:
        """Wait until there are enough."""
        assert self._done.wait(WAIT), f"{len(self.messages)} of {self._enough} messages"
