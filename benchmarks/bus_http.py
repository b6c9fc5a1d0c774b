"""Publishing over HTTP: batches posted to a served API from several threads."""

from __future__ import annotations

import base64
import http.client
import json
import threading
import time

from benchmarks.served import Server, served
from benchmarks.site import Site

CALLERS = 2
BATCH = 500


def publish_rate(site: Site, body: bytes, n: int) -> float:
    """Return messages per second, durable, posted in batches by two callers at once."""
    place = site.create("bus_http")
    with served(place) as server:
        _call(_connect(server), server, "/api/v1/topics", {"name": "events"})
        _call(
            _connect(server), server, "/api/v1/subscriptions", {"name": "work", "topic": "events"}
        )
        one = {"data": base64.b64encode(body).decode(), "attributes": {"league": "nba"}}
        request = json.dumps({"messages": [one] * BATCH}).encode()
        _posted(server, request, 4)
        began = time.perf_counter()
        batches = max(1, n // BATCH)
        _posted(server, request, batches)
        return batches * BATCH / (time.perf_counter() - began)


def _posted(server: Server, request: bytes, batches: int) -> None:
    left = iter(range(batches))
    lock = threading.Lock()
    failures: list[object] = []

    def post() -> None:
        connection = _connect(server)
        while True:
            with lock:
                if next(left, None) is None:
                    return
            status, text = _send(connection, server, "/api/v1/topics/events/publish", request)
            if status != 200:
                failures.append((status, text[:200]))
                return

    threads = [threading.Thread(target=post, daemon=True) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def _connect(server: Server) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)


def _call(connection: http.client.HTTPConnection, server: Server, path: str, body: object) -> None:
    status, text = _send(connection, server, path, json.dumps(body).encode())
    assert status < 300, (path, status, text)


def _send(
    connection: http.client.HTTPConnection, server: Server, path: str, body: bytes
) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
    connection.request("POST", path, body, headers)
    reply = connection.getresponse()
    return reply.status, reply.read()
