"""Hostile clients: silent readers, slow bodies, idle and pipelined connections, odd requests.

None of them holds what others need: every other request is answered as if they were not there.
"""

import contextlib
import math
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.server.overload import connections, protocol
from penstock.server.overload.protocol import BoundedProtocol
from tests.kits.client_harness import Harness
from tests.server.kit import ServedApi
from tests.server.wire import Wire, Wires

RUNS = "/api/v1/customers/acme/pipeline-runs"
DOCUMENT = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

# Nothing here depends on the engine.
pytestmark = pytest.mark.parametrize("engine", ["sqlite"])
Start = Callable[..., ServedApi]


@pytest.fixture
def start(harness: Harness) -> Iterator[Start]:
    """Return a factory of a server with options; by default it works on one request at a time."""
    with contextlib.ExitStack() as stack:

        def started(**options: Any) -> ServedApi:
            served = ServedApi(harness, **{"threads": 1, "inflight": 1, **options})
            stack.callback(served.stop)
            return served

        yield started


def until(condition: Callable[[], bool]) -> None:
    """Poll until a condition holds."""
    gate = threading.Event()
    for _ in range(6000):
        if condition():
            return
        gate.wait(0.01)
    raise AssertionError("the condition never held")


def key(served: ServedApi, name: str) -> bytes:
    """Return the header line with a key."""
    return f"Authorization: Bearer {served.keys[name]}\r\n".encode()


def others_are_served(served: ServedApi) -> None:
    """Check that requests with a key are answered, and that health says so."""
    for path in ("/pauses", "/readyz", "/healthz"):
        assert served.by("viewer").get(path).status == 200, path


class TestSilentReaders:
    """Clients that send requests and do not read the responses."""

    def test_others_are_served(self, start: Start, wires: Wires) -> None:
        """A request holds nothing while its response is sent, with or without a key."""
        served = start()
        for _ in range(4):
            wires(served).socket.sendall(DOCUMENT * 10)
            known = wires(served)
            listed = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n" + key(served, "viewer") + b"\r\n"
            known.socket.sendall(listed * 10)
        until(lambda: served.api.connections.count >= 8)
        others_are_served(served)

    def test_they_are_disconnected(self, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
        """A client that does not read is disconnected."""
        monkeypatch.setattr(connections, "SEND_SECONDS", 0.0)
        monkeypatch.setattr(protocol, "STRANGER_SECONDS", 0.0)  # pacing is proved elsewhere
        served = start()
        with socket.socket() as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            silent.connect(("127.0.0.1", served.server.port))
            silent.sendall(DOCUMENT * 15)
            until(lambda: served.api.connections.closed > 0)
            until(lambda: served.api.connections.count == 0)
        others_are_served(served)


class TestSlowBodies:
    """Bodies that never arrive."""

    @pytest.mark.parametrize(
        ("name", "path"),
        [
            ("operator", RUNS),
            ("operator", "/api/v1/pipeline-configs/bulk"),
            ("worker", "/api/v1/pipeline-runs/run_00000000/heartbeat"),
            ("worker", "/api/v1/scheduler/claim-runs"),
        ],
    )
    def test_others_are_served(self, start: Start, wires: Wires, name: str, path: str) -> None:
        """A request is not admitted before its body has arrived, on any path."""
        served = start(worker_inflight=1)
        heartbeat = "/pipeline-runs/run_00000000/heartbeat"
        assert served.by("worker").post(heartbeat, {}).status == 404, "its key is cached now"
        assert served.by("operator").get("/pauses").status == 200
        for _ in range(4):
            wire = wires(served)
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            wire.socket.sendall(head.encode() + key(served, name) + b"Content-Length: 100\r\n\r\n{")
        until(lambda: served.api.connections.count >= 4)
        others_are_served(served)
        assert served.by("worker").post(heartbeat, {}).status == 404

    def test_large_bodies_of_one_caller(
        self, start: Start, wires: Wires, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One caller may send a bounded number of bytes at once; another one is not affected."""
        served = start(body_max=100_000)
        monkeypatch.setattr(served.api.app._bodies, "_caller_max", 150_000)
        head = b"POST /api/v1/pipeline-configs/bulk HTTP/1.1\r\nHost: x\r\n"
        line = b"Content-Type: application/x-ndjson\r\nContent-Length: 1000000\r\n\r\n"
        first = wires(served)
        first.socket.sendall(head + key(served, "operator") + line + b" " * 200_000)
        until(lambda: served.api.app._bodies._taken.total() > 100_000)
        again = wires(served)
        again.socket.sendall(head + key(served, "operator") + line + b" " * 200_000)
        assert again.read()[0] == 429
        other = served.by("admin").call("POST", "/pipeline-configs/bulk", b" " * 180_000)
        assert other.status == 400, "read, and empty"
        first.close()
        until(lambda: not served.api.app._bodies._taken)


class TestIdle:
    """More connections than the server takes."""

    def test_a_flood(self, start: Start, wires: Wires) -> None:
        """At the maximum the longest idle connection is closed; everyone can connect."""
        served = start(connections=8)
        flood = [wires(served) for _ in range(40)]
        others_are_served(served)
        assert served.api.connections.count <= 8
        assert flood[0].is_closed
        assert served.api.connections.closed >= 30
        assert b"penstock_http_connections " in served.by("viewer").get("/metrics").body

    def test_known_callers_stay(self, start: Start, wires: Wires) -> None:
        """Connections of unknown clients are closed first, and never one that is in use."""
        served = start(connections=8, threads=4, inflight=64)
        known = wires(served)
        ask = f"GET /api/v1/pauses HTTP/1.1\r\nHost: x\r\n{key(served, 'viewer').decode()}\r\n"
        known.socket.sendall(ask.encode())
        assert known.read()[0] == 200
        body = b'{"worker_id": "w", "wait_seconds": 20}'
        waiting = wires(served)
        json = b"Content-Type: application/json\r\n"
        claim = "POST /api/v1/scheduler/claim-runs HTTP/1.1"
        waiting.send(claim, body, key(served, "worker") + json)
        until(lambda: served.api.waiting.count == 1)
        for _ in range(40):
            wires(served)
        others_are_served(served)
        known.socket.sendall(ask.encode())
        assert known.read()[0] == 200
        served.harness.submit("outside")
        status, _, claimed = waiting.read()
        assert (status, len(claimed["claimed_runs"])) == (200, 1)


class TestPipelining:
    """Many requests on one connection, sent at once."""

    def test_too_many(self, start: Start, wires: Wires) -> None:
        """A connection with too many waiting requests is closed."""
        served = start()
        wire = wires(served)
        wire.socket.sendall(HEALTH * 500)
        with contextlib.suppress(ConnectionResetError):
            count = wire.file.read().count(b"HTTP/1.1 200")
            assert count <= protocol.PIPELINED_MAX + 1
        others_are_served(served)

    def test_unknown_callers_are_paced(
        self, start: Start, wires: Wires, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A connection without a key has a bounded rate; one with a key has its key's rate."""
        monkeypatch.setattr(protocol, "STRANGER_BURST", 2)
        # Longer than any machine has run: the burst is the same right after a boot.
        monkeypatch.setattr(protocol, "STRANGER_SECONDS", 1e9)
        monkeypatch.setattr(protocol, "STRANGER_BYTES", math.inf)
        served = start()
        stranger, known = wires(served), wires(served)
        stranger.socket.sendall(HEALTH * 5)
        assert [stranger.read()[0] for _ in range(3)] == [200] * 3
        every = [one for one in served.api.connections._all if isinstance(one, BoundedProtocol)]
        (held,) = (one for one in every if one._pacing is not None)
        assert len(held.pipeline) == 2
        for _ in range(10):
            known.send("GET /api/v1/pauses HTTP/1.1", more=key(served, "viewer"))
            assert known.read()[0] == 200
        others_are_served(served)


class TestOddRequests:
    """Requests that a proxy may read differently."""

    def closed_after(self, wire: Wire, sent: bytes) -> list[int]:
        """Send bytes; return the statuses of all responses until the server closes."""
        wire.socket.sendall(sent)
        lines = wire.file.read().split(b"HTTP/1.1 ")[1:]
        return [int(line[:3]) for line in lines]

    def test_upgrade(self, start: Start, wires: Wires) -> None:
        """A body after an upgrade request is never read as another request."""
        served = start()
        inner = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
        for upgrade in (b"websocket", b"h2c"):
            head = b"Host: x\r\nConnection: Upgrade\r\nUpgrade: " + upgrade + b"\r\n"
            for start_line in (b"GET /healthz HTTP/1.1\r\n", b"POST /api/v1/pauses HTTP/1.1\r\n"):
                length = b"Content-Length: %d\r\n\r\n" % len(inner)
                assert self.closed_after(wires(served), start_line + head + length + inner) == [400]
                chunked = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
                sent = start_line + head + chunked % (len(inner), inner)
                assert self.closed_after(wires(served), sent) == [400]
            sent = b"GET /healthz HTTP/1.1\r\n" + head + b"\r\n" + inner
            assert self.closed_after(wires(served), sent) == [200], "and the connection ends"
        assert (
            self.closed_after(wires(served), b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n")[0] >= 400
        )

    def test_two_hosts(self, start: Start, wires: Wires) -> None:
        """A request with two Host headers is refused."""
        sent = b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"
        assert self.closed_after(wires(start()), sent) == [400]

    def test_an_invalid_request_after_another(self, start: Start, wires: Wires) -> None:
        """An invalid request does not put a response before that of the request in progress."""
        served = start(threads=2, inflight=64)
        wire = wires(served)
        body = b'{"worker_id": "w", "wait_seconds": 20}'
        json = b"Content-Type: application/json\r\n"
        wire.send("POST /api/v1/scheduler/claim-runs HTTP/1.1", body, key(served, "worker") + json)
        until(lambda: served.api.waiting.count == 1)
        wire.socket.sendall(b"nonsense\r\n\r\n")
        assert wire.is_closed

    def test_blanks_around_a_length(self, start: Start, wires: Wires) -> None:
        """Blanks around the value of a header are legal."""
        served = start()
        wire = wires(served)
        head = b"POST /api/v1/pauses HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        wire.socket.sendall(head + key(served, "viewer") + b"Content-Length: \t2 \t\r\n\r\n{}")
        assert wire.read()[0] == 403


class TestSlowRoutes:
    """Requests that take minutes."""

    def test_a_tick(self, start: Start) -> None:
        """A long scheduler tick occupies no capacity of others, and one caller has only one."""
        served = start()
        entered, go_on = threading.Event(), threading.Event()
        tick = served.api.asgi.state.trigger

        def slow(batch: int | None, seconds: float) -> Any:
            entered.set()
            assert go_on.wait(60)
            return tick(batch, seconds)

        served.api.asgi.state.trigger = slow
        by = served.by("operator")
        thread = threading.Thread(target=by.post, args=("/scheduler/trigger", {}))
        thread.start()
        try:
            assert entered.wait(60)
            others_are_served(served)
            again = by.post("/scheduler/trigger", {})
            assert (again.status, again.headers["retry-after"]) == (429, "5")
        finally:
            go_on.set()
            thread.join(60)
        assert by.post("/scheduler/trigger", {}).status == 200
