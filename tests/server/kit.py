"""A served API for tests: a real server on a free port with a key of each role."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Any
from unittest import mock

from penstock.access.api_keys import Role
from penstock.access.client.keys import Keys
from penstock.assembly.routes import ROUTES
from penstock.audit.telemetry import Event, Events
from penstock.audit.telemetry import Served as ServedEvent
from penstock.core.clock import Clock, SystemClock
from penstock.schedules.scheduler import SchedulerOptions
from penstock.server.app import build
from penstock.server.context import ApiOptions, TickReport
from penstock.server.listener import ApiServer
from penstock.server.push_auth import PushAuth
from tests.kits.client_harness import Harness

SCHEDULER_TOKEN = "tick-tock-0123456789"
BOUND = ("acme", "globex")
ROOTS = (
    "/api", "/healthz", "/readyz", "/metrics", "/openapi.json", "/pubsub", "/.well-known",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reply:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        """Return the body as a list of JSON lines."""
        return [json.loads(line) for line in self.body.splitlines()]


@dataclass(slots=True)
class Client:
    """A client of the API with one key and one persistent connection."""

    host: str
    port: int
    key: str | None
    prefix: str = "/api/v1"
    _connection: HTTPConnection | None = field(default=None, repr=False)

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Reply:
        """Send a request; `body` is sent as JSON, bytes are sent unchanged."""
        sent = dict(headers or {})
        if self.key is not None:
            sent.setdefault("Authorization", f"Bearer {self.key}")
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if raw is not None:
            sent.setdefault("Content-Type", "application/json")
        whole = path if path.startswith(ROOTS) or self.prefix == "" else self.prefix + path
        connection = HTTPConnection(self.host, self.port, timeout=60)
        try:
            connection.request(method, whole, raw, sent)
            response = connection.getresponse()
            return Reply(
                response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
            )
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        """Send a GET request."""
        return self.call("GET", path, None, _headers(headers))

    def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        """Send a POST request."""
        return self.call("POST", path, body, _headers(headers))

    def patch(self, path: str, body: Any = None, **headers: str) -> Reply:
        """Send a PATCH request."""
        return self.call("PATCH", path, body, _headers(headers))

    def delete(self, path: str, **headers: str) -> Reply:
        """Send a DELETE request."""
        return self.call("DELETE", path, None, _headers(headers))

    def ok(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send a request that must succeed; return its JSON."""
        reply = self.call(method, path, body, _headers(headers))
        assert reply.status < 300, (reply.status, reply.body)
        return reply.json if reply.body else None


class ServedApi:
    """A server over a `Harness`."""

    def __init__(
        self,
        harness: Harness,
        *,
        clock: Clock | None = None,
        receiving: PushAuth | None = None,
        **options: Any,
    ) -> None:
        """Serve a harness; `clock` is the API's (key cache, rates), by default the system clock."""
        self.harness = harness
        self.events = Events()
        self.received: list[Event] = []
        self.events.subscribe(self.received.append)
        chosen = {"scheduler_token": SCHEDULER_TOKEN, "rate": 100_000.0, "threads": 16, **options}
        self.api = build(
            harness.client,
            ROUTES,
            options=ApiOptions(**chosen),
            clock=clock or SystemClock(),
            events=self.events,
            trigger=self._tick,
            receiving=receiving or PushAuth(issuer="https://penstock.example.com"),
        )
        self.server = ApiServer(self.api, host="127.0.0.1", port=0)
        self.server.start()
        harness.client.store.write(
            lambda tx: harness.client._names.ensure_customer_keys(
                tx, BOUND
            )  # customers exist before their keys
        )
        self.keys = {role.value: self.key(role.value, role) for role in Role}
        for customer in BOUND:
            for role in Role:
                name = f"{customer}-{role.value}"
                self.keys[name] = self.key(name, role, customer)

    def key(self, name: str, role: Role, customer: str | None = None) -> str:
        """Create a key."""
        made = self.harness.client.keys.create(name, role, customer=customer)
        assert made.key is not None
        return made.key

    def logged(self, *ids: str) -> list[ServedEvent]:
        """Wait for the events of requests, emitted after their responses; in order of arrival."""
        pause = threading.Event()
        for _ in range(6_000):
            events = [e for e in list(self.received) if isinstance(e, ServedEvent)]
            found = [event for event in events if event.request_id in ids]
            if len(found) >= len(ids):
                return found
            pause.wait(0.01)
        raise AssertionError(f"no events of {ids}")

    def by(self, name: str | None = "admin") -> Client:
        """Return a client with the named key; None for no key."""
        key = None if name is None else self.keys[name]
        return Client("127.0.0.1", self.server.port, key)

    def stop(self) -> None:
        """Stop the server."""
        self.server.stop()

    def _tick(self, batch: int | None, seconds: float) -> TickReport:
        options = SchedulerOptions(budget_seconds=seconds)
        if batch is not None:
            options = SchedulerOptions(batch=batch, budget_seconds=seconds)
        tick = self.harness.tick(batch=options.batch, budget_seconds=options.budget_seconds)
        return TickReport(
            due=tick.due,
            runs=tick.runs,
            seconds=0.0,
            is_complete=tick.next_at is None or tick.next_at > tick.now,
        )


def _headers(given: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in given.items()}


@contextlib.contextmanager
def busy(served: ServedApi) -> Iterator[None]:
    """Keep a request in flight while the block runs; the server allows one."""
    entered, go_on = threading.Event(), threading.Event()
    read = Keys.list

    def slow(keys: Keys, **given: Any) -> Any:
        entered.set()
        assert go_on.wait(60)
        return read(keys, **given)

    for name in ("viewer", "operator"):
        assert served.by(name).get("/pauses").status == 200
    assert served.by("worker").post("/pipeline-runs/run_00000000/heartbeat").status == 404
    thread = threading.Thread(target=served.by("admin").get, args=("/keys",))
    with mock.patch.object(Keys, "list", slow):
        thread.start()
        try:
            assert entered.wait(60)
            yield
        finally:
            go_on.set()
            thread.join(60)
