"""An overloaded server: early and regular refusals are equal, and other requests are unaffected."""

import threading
from collections.abc import Iterator

import pytest

from penstock.audit.telemetry import Served as ServedEvent
from penstock.server.overload import protocol
from tests.kits.client_harness import Harness
from tests.server.kit import ServedApi, busy
from tests.server.wire import CHUNKED, Wires

RUNS = "/api/v1/customers/acme/pipeline-runs"
BODY = b'{"pipeline_template": "outside"}'

# Nothing here depends on the engine.
pytestmark = pytest.mark.parametrize("engine", ["sqlite"])


@pytest.fixture
def full(harness: Harness) -> Iterator[ServedApi]:
    """Return a server at its limit of requests until the test ends; keys are cached."""
    served = ServedApi(harness, threads=1, inflight=1)
    with busy(served):
        yield served
    assert served.by("viewer").get("/pauses").status == 200, "and requests are admitted again"
    served.stop()


def test_early_and_regular_refusals_are_equal(full: ServedApi, wires: Wires) -> None:
    """An early refusal equals a regular one, except for request id and date."""
    quick, slow = wires(full), wires(full)
    key = f"Authorization: Bearer {full.keys['operator']}\r\n".encode()
    quick.send(f"POST {RUNS} HTTP/1.1", BODY, key + b"X-Request-Id: my-id.7\r\n")
    slow.send(f"POST {RUNS} HTTP/1.1", b"0\r\n\r\n", key + CHUNKED)
    (status, headers, document), other = quick.read(), slow.read()
    assert (status, document["code"], document["status"]) == (503, "overloaded", 503)
    assert headers["retry-after"] == "1"
    assert headers["x-request-id"] == document["request_id"] == "my-id.7"
    assert other[1]["x-request-id"] == other[2]["request_id"]
    assert headers.keys() == other[1].keys()
    own = {"x-request-id", "date", "content-length"}
    for name in headers.keys() - own:
        assert headers[name] == other[1][name]
    assert {**document, "request_id": ""} == {**other[2], "request_id": ""}


def test_counted_and_logged(full: ServedApi) -> None:
    """Each refusal is in the access log and the metrics, and changes nothing."""
    before = full.harness.counts()
    by = full.by("viewer")
    ids = [by.get("/pauses?x=1").headers["x-request-id"] for _ in range(3)]
    lines = full.logged(*ids)
    assert [event.request_id for event in lines] == ids
    assert {(e.method, e.path, e.status, e.key) for e in lines} == {
        ("GET", "/api/v1/pauses", 503, None)
    }
    meters = full.api.asgi.state.meters.response().body.decode()
    name = 'penstock_http_requests_total{method="GET",route="other",status="503"}'
    assert f"{name} 3.0" in meters
    assert full.harness.counts() == before


def test_connection_stays_usable(full: ServedApi, wires: Wires) -> None:
    """A connection stays usable after a refusal, because the refused request is read completely."""
    wire = wires(full)
    wire.send(f"POST {RUNS} HTTP/1.1", BODY)
    assert wire.read()[0] == 503
    wire.send("GET /healthz HTTP/1.1")
    assert wire.read()[0] == 200
    pair = wires(full)
    one = f"POST {RUNS} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY
    pair.socket.sendall(one + one + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert [pair.read()[0] for _ in range(3)] == [503, 503, 200]


def test_connection_ends(full: ServedApi, wires: Wires) -> None:
    """A client that asks to close gets `connection: close` and a closed connection."""
    for head, more in (
        (f"GET {RUNS} HTTP/1.1", b"Connection: close\r\n"),
        (f"GET {RUNS} HTTP/1.0", b""),
        (f"GET {RUNS} HTTP/1.0", b"Connection: keep-alive\r\n"),
    ):
        wire = wires(full)
        wire.send(head, more=more)
        status, headers, _ = wire.read()
        assert (status, headers["connection"]) == (503, "close")
        assert wire.is_closed


def test_incomplete_body(full: ServedApi, wires: Wires, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused request that stays incomplete is closed after the timeout."""
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.1)
    wire = wires(full)
    head = f"POST {RUNS} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{"
    wire.socket.sendall(head.encode())
    assert wire.is_closed


def test_workers_are_served(full: ServedApi) -> None:
    """Starts, heartbeats and completions are served while other requests are refused."""
    assert full.by("worker").get("/pauses").status == 503
    for verb in ("start", "heartbeat", "complete"):
        reply = full.by("worker").post(f"/pipeline-runs/run_00000000/{verb}", {})
        assert (reply.status, reply.json["code"]) == (404, "not_found"), verb


def test_workers_of_one_customer(full: ServedApi) -> None:
    """Calls of a key that the fast path does not serve are refused early, like other requests."""
    bound = full.by("acme-worker")
    reply = bound.post("/pipeline-runs/run_00000000/start", {"fencing_token": "x"})
    assert reply.status == 503
    (line,) = full.logged(reply.headers["x-request-id"])
    assert (line.status, line.key) == (503, None)


def test_unusual_requests(full: ServedApi) -> None:
    """Unusual requests skip load shedding; they are refused when they ask for capacity."""
    by = full.by("viewer")
    assert by.get("/paus%65s").status == 503
    assert full.by("operator").call("POST", RUNS, b" " * 70_000).status == 503
    for free, status in (("HEAD", 405), ("OPTIONS", 405)):
        assert by.call(free, "/pauses").status == status, "nothing is needed to refuse it"
    cancel = "/pipeline-runs/run_00000000/cancel"
    assert full.by("operator").post(cancel, {}).status == 503
    for always in ("/healthz", "/readyz", "/healthz?x=1"):
        assert by.get(always).status == 200


def test_stop_sends_delayed_refusals(
    harness: Harness, wires: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delayed refusal is sent before the server stops."""
    monkeypatch.setattr(protocol, "REFUSAL_DELAY_SECONDS", 60.0)
    served = ServedApi(harness, threads=1, inflight=1)
    wire = wires(served)
    with busy(served):
        served.received.clear()
        wire.send(f"GET {RUNS} HTTP/1.1")
        until_served(served, 503)
        stopping = threading.Thread(target=served.stop)
        stopping.start()
        assert wire.read()[0] == 503
        assert wire.is_closed
    stopping.join(60)
    assert not stopping.is_alive()


def until_served(served: ServedApi, status: int) -> None:
    """Wait for a response of this status in the list of events."""
    gate = threading.Event()
    for _ in range(6_000):
        if any(isinstance(e, ServedEvent) and e.status == status for e in list(served.received)):
            return
        gate.wait(0.01)
    raise AssertionError("no request was refused")
