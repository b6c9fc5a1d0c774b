"""Transports by URL, and the bridges of the settings.

    sqlite:penstock.db, postgresql://…   the embedded bus, in its database
    https://penstock.example             the embedded bus, over the API (key in PENSTOCK_API_KEY)
    nats://one:4222,two:4222             NATS JetStream (penstock-engine[nats])
    pubsub://my-project                  Google Pub/Sub (penstock-engine[pubsub])

A program that reads the URL from its environment can switch transports without a code change.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from penstock.assembly.database import connect
from penstock.assembly.settings import Settings, api_key_from_environment, load
from penstock.bus.message import SubscriptionSpec, TopicSpec
from penstock.bus.transports.bridges import is_pattern, parse_bridges
from penstock.bus.transports.drift import differences
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.bus.transports.nats.options import SCHEMES as NATS_SCHEMES
from penstock.bus.transports.nats.transport import NatsTransport
from penstock.bus.transports.over_client import ClientBus
from penstock.bus.transports.protocol import Transport
from penstock.bus.transports.pubsub.options import parse_pubsub_url
from penstock.bus.transports.pubsub.transport import PubsubTransport
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError, SettingsError
from penstock.db.store import StoreView
from penstock.pipelines.loading import load_module
from penstock.services.bridge import Bridge

DATABASES: Final = ("sqlite", "postgresql", "postgres")
EXPECTED: Final = "sqlite:PATH, postgresql://…, https://…, nats://… or pubsub://…"


@contextlib.contextmanager
def open_transport(url: str | None = None, *, actor: str = "python") -> Iterator[Transport]:
    """Open a transport, and close it when the block ends.

    url: address of the transport; by default the setting `transport_url`, or else the embedded bus
    in the database of the settings. actor: name under which changes are recorded.
    """
    settings = load(os.environ)
    chosen = url or settings.transport_url or settings.database_url
    scheme = chosen.partition(":")[0]
    if scheme in DATABASES:
        with connect(chosen, actor=actor) as local:
            yield EmbeddedBus(local.store, actor=actor)
    elif scheme in ("http", "https"):
        from penstock import remote  # only over HTTP: it loads the declared routes

        key = api_key_from_environment(os.environ)
        is_plain = settings.url_plain == "allowed"
        with remote.connect(chosen, key=key, allow_plain=is_plain) as client:
            yield ClientBus(client)
    else:
        opened = external_transport(chosen)
        try:
            yield opened
        finally:
            opened.close()


def external_transport(url: str) -> Transport:
    """Return the transport of a broker outside Penstock; the caller closes it."""
    if url.partition(":")[0] in NATS_SCHEMES:
        return NatsTransport(url)
    if url.partition(":")[0] == "pubsub":
        options = parse_pubsub_url(url)
        # A key is sent only to an endpoint that the URL names: Penstock's own front end.
        key = api_key_from_environment(os.environ) if options.endpoint is not None else None
        return PubsubTransport(replace(options, api_key=key))
    raise SettingsError("transport_url", EXPECTED, url.partition(":")[0])


def build_bridges(
    store: StoreView, settings: Settings, *, clock: Clock | None = None
) -> list[Bridge]:
    """Build the bridges of the settings, one service each."""
    return [
        Bridge(store, one, partial(external_transport, one.url), clock=clock)
        for one in parse_bridges(settings.bridges)
    ]


def declarations(modules: Sequence[str]) -> tuple[list[TopicSpec], list[SubscriptionSpec]]:
    """Return the topics and subscriptions that modules declare at their top level.

    A specification may be a single value or an item of a list or tuple.
    """
    topics: list[TopicSpec] = []
    subscriptions: list[SubscriptionSpec] = []
    for name in modules:
        for value in vars(load_module(name)).values():
            for one in value if isinstance(value, list | tuple) else (value,):
                if isinstance(one, TopicSpec) and one not in topics:
                    topics.append(one)
                elif isinstance(one, SubscriptionSpec) and one not in subscriptions:
                    subscriptions.append(one)
    return topics, subscriptions


def transport_problems(settings: Settings) -> list[str]:
    """List problems of brokers: unreachable ones, and drift."""
    found: list[str] = []
    for one in parse_bridges(settings.bridges):
        topics, subscriptions = one.incoming()
        names = [TopicSpec(name=name) for name in one.send if not is_pattern(name)]
        found += _drift(f"bridge {one.name}", one.url, [*names, *topics], subscriptions)
    if settings.declarations:
        chosen = settings.transport_url or settings.database_url
        try:
            declared = declarations(settings.declarations)
        except PenstockError as error:
            return [*found, f"declarations: {error}"]
        found += _drift("declarations", chosen, *declared)
    return found


def _drift(
    label: str, url: str, topics: Sequence[TopicSpec], subscriptions: Sequence[SubscriptionSpec]
) -> list[str]:
    try:
        with open_transport(url) as transport:
            found = differences(transport, topics, subscriptions)
    except PenstockError as error:
        return [f"{label}: {error}"]
    return [f"{label}: {one}" for one in found]
