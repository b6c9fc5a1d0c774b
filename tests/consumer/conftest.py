"""Sinks of each engine, on a database of the test's own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.sinks.postgres import PostgresSink
from penstock.sinks.protocol import Sink
from penstock.sinks.sqlite import SqliteSink
from penstock.testing.clock import VirtualClock

OpenSink = Callable[..., Sink]


@pytest.fixture
def sink_url(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the test's sink is."""
    if engine == "postgres":
        return str(request.getfixturevalue("pg_dsn"))
    return f"sqlite:{tmp_path / 'state.db'}"


@pytest.fixture
def open_sink(sink_url: str, clock: VirtualClock) -> Iterator[OpenSink]:
    """Open sinks on the test's one database, as several processes would; closed at the end."""
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
    """The test's sink."""
    return open_sink()
