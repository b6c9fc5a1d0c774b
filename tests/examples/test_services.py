"""The example services in separate processes: behind uvicorn, and pulling from the bus."""

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import connect
from penstock.bus.envelope import PushedMessage, encode
from penstock.bus.message import NewMessage, SubscriptionSpec, TopicSpec
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.sinks.opening import open_sink
from tests.examples.test_workers import ROOT, Process

PATH = os.pathsep.join([str(ROOT), str(ROOT / "src")])
"""The examples, and the package of the same checkout."""
REPORT = {"pipeline": "nba", "status": "ok", "at": "2025-11-17T02:00:05Z"}
TYPED = {"event_type": "ingest.heartbeat", "schema_version": "1"}
EVENT = {"service": "api-1", "state": "up", "region": "eu", "occurredAt": "2025-11-17T02:00:05Z"}


class Served:
    """One service behind uvicorn on a free port."""

    def __init__(self, name: str, folder: Path, **settings: str) -> None:
        self.process = Process(
            sys.executable, "-m", "uvicorn", f"examples.services.{name}:asgi", "--port", "0",
            cwd=folder, PYTHONPATH=PATH, SINK_URL="sqlite:state.db", ENV="test", **settings,
        )  # fmt: skip
        line = self.process.wait_for(lambda line: "running on" in line)
        self.url = next(word for word in line.split() if word.startswith("http"))
        self.name = name.replace("_", "-")

    def push(self, payload: Any, id: str, attributes: dict[str, str] | None = None) -> Any:
        """Return (status, response) of a push as Google sends it."""
        pushed = PushedMessage(
            message_id=id,
            data=payload if isinstance(payload, bytes) else json.dumps(payload).encode(),
            attributes=attributes or {},
            publish_time=1_763_337_600_000_000,
            subscription=f"projects/p/subscriptions/{self.name}",
            attempt=1,
        )
        request = urllib.request.Request(f"{self.url}/pubsub/push", encode(pushed))
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def end(self) -> None:
        """Send SIGTERM; the service finishes its messages and exits, as uvicorn does."""
        assert self.process.terminate() in (0, -signal.SIGTERM)
        assert any("Application shutdown complete" in line for line in self.process.lines)

    def get(self, path: str) -> int:
        """Return the status of a GET request."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=60) as response:
            return int(response.status)


@pytest.fixture
def started() -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.close()


def fields(folder: Path, path: str) -> Any:
    """Return a document of a service's sink."""
    sink = open_sink(f"sqlite:{folder}/state.db")
    found = sink.document(path)
    sink.close()
    return None if found is None else dict(found.fields)


def lines(process: Process) -> list[dict[str, Any]]:
    """Return the JSON lines that a service wrote."""
    return [json.loads(line) for line in process.lines if line.startswith("{")]


def test_heartbeats_pushed(tmp_path: Path, started: list[Process]) -> None:
    """Applied, duplicate, stale, poison: over real HTTP, with one line each, and a clean end."""
    service = Served("ingest_heartbeat", tmp_path)
    started.append(service.process)
    older = {**REPORT, "at": "2025-11-17T02:00:00Z", "status": "failed"}
    newer = {**REPORT, "at": "2025-11-17T02:00:09Z", "status": "degraded"}
    assert service.push(REPORT, "1", TYPED) == (200, {"outcome": "applied"})
    assert service.push(REPORT, "1", TYPED) == (200, {"outcome": "duplicate"})
    assert service.push(older, "2", TYPED) == (200, {"outcome": "stale_ignored"})
    assert service.push(newer, "3", TYPED) == (200, {"outcome": "applied"})
    poison = [
        ({**REPORT, "status": "fine"}, TYPED, 422),
        ({"status": "ok", "at": REPORT["at"]}, TYPED, 422),
        ({**REPORT, "pipeline": "../x"}, TYPED, 422), ({**REPORT, "at": "noon"}, TYPED, 422),
        (REPORT, {**TYPED, "schema_version": "2"}, 422), (b"{", TYPED, 400), (REPORT, {}, 422),
    ]  # fmt: skip
    for number, (payload, attributes, status) in enumerate(poison):
        got = service.push(payload, f"p{number}", attributes)
        assert got == (status, {"outcome": "poison"}), payload
    assert (service.get("/healthz"), service.get("/readyz")) == (200, 200)
    service.end()
    assert fields(tmp_path, "ingest_pipelines/nba") == {
        "status": "degraded", "last_heartbeat_at": newer["at"], "beats": 2,
    }  # fmt: skip
    entries = lines(service.process)
    outcomes = ["applied", "duplicate", "stale_ignored", "applied"] + ["poison"] * len(poison)
    assert [entry["outcome"] for entry in entries] == outcomes
    assert {entry["env"] for entry in entries} == {"test"}
    assert entries[0]["doc_path"] == "ingest_pipelines/nba"


def test_materializer_pushed(tmp_path: Path, started: list[Process]) -> None:
    """System events are routed by content; without dead letters, poison is acked and recorded."""
    service = Served("materializer", tmp_path, DEAD_LETTERS="no")
    started.append(service.process)
    assert service.push(EVENT, "1") == (200, {"outcome": "applied"})
    older = {**EVENT, "state": "down", "occurredAt": "2025-11-17T01:00:00Z"}
    assert service.push(older, "2") == (200, {"outcome": "stale_ignored"})
    for number, payload in enumerate(({"hello": 1}, [1], "text", 7, {"service": "a/b"})):
        assert service.push(payload, f"p{number}") == (200, {"outcome": "poison"})
    service.end()
    assert fields(tmp_path, "ops_services/api-1") == {
        "state": "up", "region": "eu", "detail": None, "as_of": EVENT["occurredAt"],
    }  # fmt: skip
    sink = open_sink(f"sqlite:{tmp_path}/state.db")
    assert sink.counters("materializer") == {"applied": 1, "stale_ignored": 1, "poison": 5}
    assert len(sink.audits("materializer")) == 5
    sink.close()


@pytest.mark.parametrize("name", ["ingest-heartbeat", "materializer"])
def test_pulled(tmp_path: Path, started: list[Process], name: str) -> None:
    """The same handlers pull from the bus until SIGTERM; poison becomes a dead letter."""
    database = f"sqlite:{tmp_path}/penstock.db"
    with connect(database) as client:
        bus = EmbeddedBus(client.store)
        bus.declare(
            [TopicSpec(name="system-events"), TopicSpec(name=f"{name}.dlq")],
            [SubscriptionSpec(name=name, topic="system-events", dead_letter_topic=f"{name}.dlq"),
             SubscriptionSpec(name="dead", topic=f"{name}.dlq")],
        )  # fmt: skip
        good = REPORT if name == "ingest-heartbeat" else EVENT
        bus.publish(
            "system-events",
            [NewMessage(data=json.dumps(good).encode(), attributes={**TYPED, "n": "1"}),
             NewMessage(data=b"{", attributes=TYPED)],
        )  # fmt: skip
        worker = Process(
            sys.executable, "-m", f"examples.services.{name.replace('-', '_')}",
            cwd=tmp_path, PYTHONPATH=PATH, SINK_URL="sqlite:state.db",
            PENSTOCK_DATABASE_URL=database,
        )  # fmt: skip
        started.append(worker)
        worker.wait_for(lambda line: '"applied"' in line)
        worker.wait_for(lambda line: '"dead_letter"' in line)
        assert worker.terminate() == 0, worker.lines
        (dead,) = bus.pull("dead")
        assert dead.data == b"{"
        assert bus.pull(name) == []
    path = "ingest_pipelines/nba" if name == "ingest-heartbeat" else "ops_services/api-1"
    assert fields(tmp_path, path) is not None
    assert {line["ack_action"] for line in lines(worker)} == {"ack", "dead_letter"}
