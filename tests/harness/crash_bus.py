"""Real crashes of the bus: publishers, consumers, server and database are killed at random.

For a minute under load, a process is killed by SIGKILL about every other second and restarted: one
of two publishers (over HTTP), one of two consumers (with an SQL sink), the receiver of pushes (with
another), the server (which pushes), and on PostgreSQL also the whole database server. Then
everything finishes, and the result is compared with what the publishers recorded: every accepted
number has exactly one row in each sink it is meant for, none has two, and none was never requested;
sums and counters agree.

    python -m tests.harness.crash_bus --engine sqlite --seconds 60 --seed 7
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from penstock.assembly.database import connect
from penstock.bus.records import PushSettings, Subscription, Topic
from penstock.client import Client
from penstock.core.clock import SystemClock
from penstock.sinks.opening import open_sink
from penstock.sinks.protocol import Sink
from penstock.testing.postgres.process import port_free
from penstock.testing.postgres.server import PostgresServer
from tests.harness.crash_bus_roles import (
    KEYS,
    PUSHED,
    PUSHED_EVERY,
    SUBSCRIPTION,
    TOPIC,
    history_read,
)

DATABASES: Final = ("bus", "sink", "pushed")
PUBLISHERS: Final = 2
CONSUMERS: Final = 2
PAUSE_SECONDS: Final = (0.2, 4.0)
START_SECONDS: Final = 60
DRAIN_SECONDS: Final = 300
ACCEPTED_MIN: Final = 200
ROOT: Final = str(Path(__file__).parents[2])
"""Folder of the package `tests`, whose modules the processes run in another folder."""
LOOPBACK: Final = {"PENSTOCK_EGRESS_HTTP": "allowed", "PENSTOCK_EGRESS_PRIVATE": "allowed"}
"""The receiver is on this machine; pushes to it must be allowed explicitly."""


class Wrong(Exception):
    """Something was lost or applied twice."""


@dataclass(slots=True)
class CrashTestDatabases:
    """The three databases and, on PostgreSQL, their server."""

    engine: str
    folder: Path
    database_url: str
    sink_url: str
    push_sink_url: str
    server: PostgresServer | None = None


@dataclass(slots=True)
class ProcessGroup:
    """The processes by role and number, and how often each was killed."""

    place: CrashTestDatabases
    port: int
    push_port: int
    key: str
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)

    def names(self) -> list[str]:
        """Return the names of all processes that may be killed."""
        names = [f"publisher-{n}" for n in range(PUBLISHERS)]
        names += [f"consumer-{n}" for n in range(CONSUMERS)]
        return [
            *names,
            "receiver-0",
            "server",
            *(["database"] if self.place.server is not None else []),
        ]

    def start(self, name: str) -> None:
        """Start or restart a process; the database keeps its data."""
        if name == "database":
            assert self.place.server is not None
            self.place.server.start()
            return
        with (self.place.folder / f"{name}.log").open("ab") as output:
            self.running[name] = subprocess.Popen(
                self.command(name),
                cwd=self.place.folder,
                stdout=output,
                stderr=output,
                env={**os.environ, **LOOPBACK, "PYTHONPATH": ROOT},
            )

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL and restart it."""
        self.kills[name.partition("-")[0]] += 1
        if name == "database":
            assert self.place.server is not None
            self.place.server.kill()
        else:
            self.running[name].kill()
            self.running[name].wait()
        self.start(name)

    def stop(self, role: str) -> None:
        """Ask the processes of a role to stop, and wait for them."""
        found = {name: child for name, child in self.running.items() if name.startswith(role)}
        for child in found.values():
            child.send_signal(signal.SIGTERM)
        for name, child in found.items():
            try:
                code = child.wait(90)
            except subprocess.TimeoutExpired:
                child.kill()
                raise Wrong(f"{name} did not stop within 90 s; see its log") from None
            del self.running[name]
            # A process started a moment ago may not handle signals yet.
            if code not in (0, -signal.SIGTERM):
                raise Wrong(f"{name} ended with {code}: {self._log(name)}")

    def restart_ended(self) -> None:
        """Restart processes that ended; one that cannot start shows in the result."""
        for name, child in list(self.running.items()):
            if child.poll() is not None:
                self.start(name)

    def close(self) -> None:
        """Kill the remaining processes."""
        for child in self.running.values():
            child.kill()
            child.wait()

    def command(self, name: str) -> list[str]:
        """Return the command line of a process."""
        if name == "server":
            return [
                sys.executable, "-m", "penstock", "--json", "--database-url",
                self.place.database_url, "up", "--port", str(self.port),
            ]  # fmt: skip
        role, _, number = name.partition("-")
        given: dict[str, Any] = {
            "database_url": self.place.database_url,
            "sink_url": self.place.sink_url,
            "push_sink_url": self.place.push_sink_url,
            "push_port": self.push_port,
            "url": f"http://127.0.0.1:{self.port}",
            "key": self.key,
            "history": str(history_of(self.place, int(number))),
            "first": int(number),
            "step": PUBLISHERS,
        }
        module = "tests.harness.crash_bus_roles"
        return [sys.executable, "-m", module, role, json.dumps(given)]

    def _log(self, name: str) -> str:
        return (self.place.folder / f"{name}.log").read_text("utf-8", "replace")[-2_000:]


def history_of(place: CrashTestDatabases, number: int) -> Path:
    """Return the path of a publisher's history."""
    return place.folder / f"publisher-{number}.history"


def survive(place: CrashTestDatabases, seconds: float, seed: int) -> dict[str, Any]:
    """Run, kill, finish and check; raise Wrong when something is lost or duplicated."""
    chance, clock = random.Random(seed), SystemClock()
    push_port = port_free()
    cast = ProcessGroup(place, port_free(), push_port, prepare(place, push_port))
    try:
        for name in cast.names():
            cast.start(name)
        await_first(place, clock)
        end = clock.monotonic() + seconds
        victims: list[str] = []
        while clock.monotonic() < end:
            # Every process once, in random order, then all again.
            victims = victims or chance.sample(cast.names(), len(cast.names()))
            clock.sleep(chance.uniform(*PAUSE_SECONDS))
            cast.kill(victims.pop())
            cast.restart_ended()
        cast.stop("publisher")
        drain(place, clock)
        cast.stop("consumer")
        cast.stop("receiver")
        cast.stop("server")
    finally:
        cast.close()
    return {"kills": dict(cast.kills), **judge(place)}


def judge(place: CrashTestDatabases) -> dict[str, Any]:
    """Compare the sinks with the publishers' histories."""
    asked: set[int] = set()
    accepted: dict[int, int] = {}
    for number in range(PUBLISHERS):
        more_asked, more_accepted = history_read(history_of(place, number))
        asked |= more_asked
        accepted |= more_accepted
    verdict: dict[str, Any] = {
        "asked": len(asked),
        "accepted": len(accepted),
        "ids_twice": len(accepted) - len(set(accepted.values())),
        "pulled": _leg(place.sink_url, SUBSCRIPTION, asked, set(accepted)),
        "pushed": _leg(place.push_sink_url, PUSHED, _pushed(asked), _pushed(accepted)),
    }
    is_right = not verdict["ids_twice"] and len(accepted) >= ACCEPTED_MIN
    for leg in (verdict["pulled"], verdict["pushed"]):
        is_right &= not any(leg[name] for name in ("lost", "doubled", "unasked"))
        is_right &= leg["summed"] == leg["counted"] == leg["rows"]
    if not is_right:
        raise Wrong(json.dumps(verdict))
    return verdict


def _pushed(numbers: Iterable[int]) -> set[int]:
    """Return the numbers that are pushed."""
    return {n for n in numbers if n % PUSHED_EVERY == 0}


def _leg(sink_url: str, subscription: str, asked: set[int], accepted: set[int]) -> dict[str, int]:
    """Compare one sink with what its subscription should have delivered."""
    sink = open_sink(sink_url)
    effects = Counter(int(row[0]) for row in sink_rows(sink, "SELECT n FROM effects"))
    counters = sink.counters(subscription)
    documents = [sink.document(f"keys/{key}") for key in range(KEYS)]
    sink.close()
    summed = sum(0 if one is None else int(one.fields["count"]) for one in documents)
    return {
        "applied": len(effects),
        "duplicates": counters.get("duplicate", 0),
        "lost": len(accepted - effects.keys()),
        "doubled": sum(1 for count in effects.values() if count > 1),
        "unasked": len(effects.keys() - asked),
        "rows": sum(effects.values()),
        "summed": summed,
        "counted": counters.get("applied", 0),
    }


def prepare(place: CrashTestDatabases, push_port: int, role: str = "worker") -> str:
    """Create databases, topic, subscriptions and tables; return the publishers' API key."""
    pulled = Subscription(
        name=SUBSCRIPTION,
        topic=TOPIC,
        ack_deadline=timedelta(seconds=10),
        min_backoff=timedelta(milliseconds=100),
        max_backoff=timedelta(seconds=1),
        has_dead_letters=False,
    )
    push = PushSettings(endpoint=f"http://127.0.0.1:{push_port}/pubsub/push")
    pushed = replace(pulled, name=PUSHED, filter='attributes.push = "yes"', kind="push", push=push)
    with connect(place.database_url) as client:
        client.topics.create(Topic(name=TOPIC))
        client.subscriptions.declare(pulled)
        client.subscriptions.declare(pushed)
        key = client.keys.create("crashing", role, rate=10_000.0).key
    for url in (place.sink_url, place.push_sink_url):
        sink = open_sink(url)
        sink_rows(sink, "CREATE TABLE effects (n bigint NOT NULL, message_id text NOT NULL)")
        sink.close()
    assert key is not None
    return key


def await_first(place: CrashTestDatabases, clock: SystemClock) -> None:
    """Wait until the first batch of any publisher is accepted."""
    end = clock.monotonic() + START_SECONDS
    while not any(history_read(history_of(place, n))[1] for n in range(PUBLISHERS)):
        if clock.monotonic() > end:
            raise Wrong(f"nothing was accepted within {START_SECONDS} s of the start")
        clock.sleep(0.1)


def drain(place: CrashTestDatabases, clock: SystemClock) -> None:
    """Wait until the subscriptions have no messages left."""
    end = clock.monotonic() + DRAIN_SECONDS
    with connect(place.database_url) as client:
        while left := waiting(client):
            if clock.monotonic() > end:
                raise Wrong(f"{left} messages still wait {DRAIN_SECONDS} s after the last kill")
            clock.sleep(0.5)


def waiting(client: Client) -> int:
    """Return the number of messages that both subscriptions must still deliver."""
    found = [client.subscriptions.get(name).backlog for name in (SUBSCRIPTION, PUSHED)]
    return sum(one.ready + one.leased + one.delayed + one.behind for one in found)


def sink_rows(sink: Sink, text: str) -> list[tuple[Any, ...]]:
    """Execute a statement in a sink and return its rows."""
    return sink.transact(lambda tx: tx.execute(text))


@contextmanager
def opened(engine: str) -> Iterator[CrashTestDatabases]:
    """Yield temporary databases of an engine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if engine == "sqlite":
            bus, sink, pushed = (f"sqlite:{folder}/{one}.db" for one in DATABASES)
            yield CrashTestDatabases(engine, folder, bus, sink, pushed)
            return
        with PostgresServer(durable=True) as server:
            bus, sink, pushed = (server.create_database(one) for one in DATABASES)
            yield CrashTestDatabases(engine, folder, bus, sink, pushed, server)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run on one engine or both, and print a JSON line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args(arguments)
    engines = ("sqlite", "postgres") if given.engine == "both" else (given.engine,)
    for engine in engines:
        with opened(engine) as place:
            result: Mapping[str, Any] = survive(place, given.seconds, given.seed)
        line = {"engine": engine, "seconds": given.seconds, "seed": given.seed, **result}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
