"""Sinks of each engine, on a separate database per test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.sinks.postgres import PostgresSink
from penstock.sinks.protocol import Sink
from penstock.sinks.sqlite import SqliteSink
from penstock.testing.clock import VirtualClock
from tests.bus.transports.rig import rig
from tests.kits.nats import nats_server

__all__ = ["nats_server", "rig"]

OpenSink = Callable[..., Sink]


@pytest.fixture
def sink_url(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of the test's sink."""
    if engine == "postgres":
        return str(request.getfixturevalue("pg_dsn"))
    return f"sqlite:{tmp_path / 'state.db'}"


@pytest.fixture
def open_sink(sink_url: str, clock: VirtualClock) -> Iterator[OpenSink]:
    """Open sinks on the test's database, as several processes would; close them at the end."""
    opened: list[Sink] = []

    def open_one(prefix: str = "penstock_") -> Sink:
        sink: Sink
        if sink_url.startswith("sqlite:"):
            sink = SqliteSink(sink_url.removeprefix("sqlite:"), prefix=prefix, clock=clock)
        else:
            sink = PostgresSink(sink_url, prefix=prefix, clock=clock)
        opened.append(sink)
        return sink

    yield open_one
    for sink in opened:
        sink.close()


@pytest.fixture
def sink(open_sink: OpenSink) -> Sink:
    """Return the test's sink."""
    return open_sink()
