"""Access control on every route: keys, roles, rates; and the health routes."""

import json
import socket
import threading
from typing import Any

import psycopg
import pytest
from starlette.routing import Route

from penstock.access.api_keys import Permission, Role
from penstock.cli.logging import EventLog
from penstock.core.clock import DAY, SystemClock, from_datetime
from penstock.db.postgres.store import PostgresStore
from penstock.server.auth import VALID_CACHE_SECONDS
from penstock.testing.clock import VirtualClock
from penstock.testing.postgres.server import DatabaseServer
from penstock.web.build import build_site
from tests.kits.client_harness import Harness
from tests.server.access_table import ALL_CUSTOMERS, PUBLIC, ROUTES, TOKEN_AUTHENTICATED
from tests.server.alert_scene import AlertThings
from tests.server.bus_scene import BusThings
from tests.server.flow_scene import FlowThings
from tests.server.kit import SCHEDULER_TOKEN, Client, Reply, ServedApi, busy
from tests.server.scene import CALLS, HELD, Scene, method_of, scene

MATRIX = {
    #                admin operator worker viewer
    Permission.READ_RUNS: (True, True, True, True),
    Permission.READ: (True, True, False, True),
    Permission.WORK: (True, True, True, False),
    Permission.OPERATE: (True, True, False, False),
    Permission.ADMINISTER: (True, False, False, False),
}
ALLOWED = {
    power: dict(zip((Role.ADMIN, Role.OPERATOR, Role.WORKER, Role.VIEWER), row, strict=True))
    for power, row in MATRIX.items()
}
EMPTY_SCENE = Scene(
    customer="acme",
    config="cfg_00000000",
    failing="cfg_00000000",
    runs=dict.fromkeys(
        (*HELD, "ready", "other", "later", "dead", "ended", "again"), "run_00000000"
    ),
    tokens=dict.fromkeys(HELD, 1),
    key="key_00000000",
    spare_key="key_00000000",
    flows=FlowThings(),
    bus=BusThings(),
    alerts=AlertThings(),
)
"""Ids that nothing has: calls that change nothing."""


def routes_of(served: ServedApi) -> set[str]:
    """Return every route of the app as method and path; `tests/web` covers the pages."""
    pages = {route.path for route in build_site(served.harness.client, SystemClock()).routes}
    return {
        f"{method} {route.path}"
        for route in served.api.asgi.routes
        if isinstance(route, Route) and route.path not in pages
        for method in route.methods or ()
    }


class TestAccessControl:
    """Access is denied by default."""

    def test_inventory(self, shared: ServedApi) -> None:
        """Each route is either listed as public, or strict and in the access table."""
        routes = routes_of(shared)
        public = {f"GET {path}" for path in PUBLIC}
        assert routes == set(ROUTES) | public | TOKEN_AUTHENTICATED
        assert set(ROUTES) == set(CALLS)
        signed = {name.partition(" ")[2] for name in TOKEN_AUTHENTICATED}
        assert not signed & PUBLIC
        assert not TOKEN_AUTHENTICATED & set(ROUTES)
        assert set(ALL_CUSTOMERS) <= set(ROUTES)

    def test_document_lists_powers(self, shared: ServedApi) -> None:
        """The OpenAPI document names the same routes, their powers, and the required key."""
        paths = shared.by(None).ok("GET", "/openapi.json")["paths"]
        operations = {f"{m.upper()} {p}": o for p, ms in paths.items() for m, o in ms.items()}
        assert {n: o["x-power"] for n, o in operations.items() if "x-power" in o} == {
            name: power.value for name, power in ROUTES.items()
        }
        for name, operation in operations.items():
            path = name.partition(" ")[2]
            assert (operation["security"] == []) is (path in PUBLIC), name

    def test_invalid_keys(self, shared: ServedApi) -> None:
        """Missing, empty, malformed and unknown keys, and wrong schemes, get the same 401.

        Each route gets a few of them in turn: the server refuses all of them before it routes.
        """
        good = shared.keys["admin"]
        unknown = good[:4] + ("0" if good[4] != "0" else "1") + good[5:]
        headers: list[dict[str, str]] = [
            {}, {"Authorization": ""}, {"Authorization": "Bearer "}, {"Authorization": good},
            {"Authorization": f"Basic {good}"}, {"Authorization": f"Bearer {good[:-1]}"},
            {"Authorization": f"Bearer {good}x"}, {"Authorization": f"Bearer {unknown}"},
            {"Authorization": "Bearer " + "x" * 4000}, {"X-Scheduler-Token": SCHEDULER_TOKEN},
            {"Cookie": f"key={good}"},
        ]  # fmt: skip
        by = shared.by(None)
        before = shared.harness.counts()
        for place, name in enumerate(ROUTES):
            path, body = CALLS[name](EMPTY_SCENE)
            for kind in range(place % 5, len(headers), 5):
                reply = by.call(method_of(name), path, body, dict(headers[kind]))
                if (
                    name == "POST /api/v1/scheduler/trigger"
                    and "X-Scheduler-Token" in headers[kind]
                ):
                    assert reply.status == 200
                    continue
                assert reply.status == 401, (name, reply.body)
                assert reply.json["code"] == "auth.required"
                assert reply.headers["www-authenticate"].startswith("Bearer")
        assert by.call("GET", f"/keys?key={good}").status == 401
        assert shared.harness.counts() == before

    def test_public(self, shared: ServedApi) -> None:
        """Health, readiness and the OpenAPI document need no key."""
        for path in PUBLIC:
            assert shared.by(None).get(path).status == 200

    @pytest.mark.parametrize("role", list(Role))
    def test_roles(self, shared: ServedApi, role: Role) -> None:
        """Each role on each route gets 403 exactly where it lacks the power."""
        for name, power in ROUTES.items():
            path, body = CALLS[name](EMPTY_SCENE)
            method = method_of(name)
            if method != "GET" and ALLOWED[power][role] and "00000000" not in f"{path}{body}":
                continue  # has side effects; test_walk covers it
            free = shared.by(role.value).call(method, path, body)
            assert (free.status == 403) is not ALLOWED[power][role], (name, free.body)
            bound = shared.by(f"acme-{role}").call(method, path, body)
            refused = (
                not ALLOWED[power][role] or name in ALL_CUSTOMERS or power is Permission.ADMINISTER
            )
            assert (bound.status == 403) is refused, (name, bound.body)
            if free.status == 403:
                assert free.json["code"] == "auth.forbidden"

    def test_least_privileged_role(self, served: ServedApi) -> None:
        """Each route answers 2xx to the least privileged role that may call it."""
        s = scene(served.harness, "acme")
        least = {
            Permission.READ_RUNS: "viewer", Permission.READ: "viewer", Permission.WORK: "worker",
            Permission.OPERATE: "operator", Permission.ADMINISTER: "admin",
        }  # fmt: skip
        for name in sorted(ROUTES, key=lambda name: name.startswith("DELETE")):
            path, body = CALLS[name](s)
            reply = served.by(least[ROUTES[name]]).call(method_of(name), path, body)
            assert 200 <= reply.status < 300, (name, reply.status, reply.body)

    def test_the_scheduler_token(self, shared: ServedApi) -> None:
        """Only the trigger accepts the token; with a wrong token even a valid key is refused."""
        by = shared.by("admin")
        assert by.post("/scheduler/trigger", {}, X_Scheduler_Token="wrong").status == 401
        assert by.post("/scheduler/trigger", {}, X_Scheduler_Token="").status == 401
        anonymous = shared.by(None)
        reply = anonymous.post("/scheduler/trigger", None, X_Scheduler_Token=SCHEDULER_TOKEN)
        assert reply.json["status"] == "completed"

    def test_no_token_configured(self, harness: Harness) -> None:
        """Without a configured token every token is refused, including the empty one."""
        served = ServedApi(harness, scheduler_token="")
        try:
            for token in ("", "x"):
                reply = served.by(None).post("/scheduler/trigger", {}, X_Scheduler_Token=token)
                assert reply.status == 401
        finally:
            served.stop()


class TestKeysInTime:
    """Keys become invalid by revocation, by expiry and after a rotation."""

    @pytest.fixture
    def timed(self, harness: Harness, clock: VirtualClock) -> Any:
        """Return a server that uses the test clock."""
        made = ServedApi(harness, clock=clock)
        yield made
        made.stop()

    def test_revocation(self, timed: ServedApi, clock: VirtualClock) -> None:
        """A revoked key is refused within 60 seconds everywhere, at once where it is not cached."""
        admin, viewer = timed.by("admin"), timed.by("viewer")
        other = timed.key("other", Role.VIEWER)
        assert viewer.get("/pipelines").status == 200
        listed = admin.ok("GET", "/keys?limit=1000")["items"]
        ids = {one["name"]: one["key_id"] for one in listed}
        for name in ("viewer", "other"):
            assert admin.ok("POST", f"/keys/{ids[name]}/revoke") == {"changed": True}
        assert admin.ok("POST", f"/keys/{ids['viewer']}/revoke") == {"changed": False}
        assert Client("127.0.0.1", timed.server.port, other).get("/pipelines").status == 401
        clock.advance(seconds=VALID_CACHE_SECONDS - 1)
        assert viewer.get("/pipelines").status == 200, "still cached"
        clock.advance(seconds=1)
        assert viewer.get("/pipelines").status == 401
        assert VALID_CACHE_SECONDS <= 60
        shown = admin.ok("GET", "/keys?with_revoked=true&limit=1000")["items"]
        assert {one["state"] for one in shown if one["name"] in ("viewer", "other")} == {"revoked"}

    def test_expiry(self, timed: ServedApi, clock: VirtualClock) -> None:
        """A key is refused from its expiry time on."""
        made = timed.by("admin").ok(
            "POST", "/keys", {"name": "short", "role": "viewer", "expires": "2h"}
        )
        by = Client("127.0.0.1", timed.server.port, made["key"])
        assert by.get("/pipelines").status == 200
        clock.advance(seconds=2 * 3600 - 31)
        assert by.get("/pipelines").status == 200
        clock.advance(seconds=31)
        assert by.get("/pipelines").status == 401

    def test_rotation(self, timed: ServedApi, clock: VirtualClock) -> None:
        """Both secrets are valid during the overlap, then only the new one."""
        admin = timed.by("admin")
        made = admin.ok("POST", "/keys", {"name": "turning", "role": "viewer"})
        path = f"/keys/{made['info']['key_id']}/rotate"
        newer = admin.ok("POST", path, {"overlap": "1h"})
        assert newer["info"]["state"] == "rotating"
        old = Client("127.0.0.1", timed.server.port, made["key"])
        new = Client("127.0.0.1", timed.server.port, newer["key"])
        assert (old.get("/pipelines").status, new.get("/pipelines").status) == (200, 200)
        clock.advance(seconds=3600)
        assert (old.get("/pipelines").status, new.get("/pipelines").status) == (401, 200)
        last = admin.ok("POST", path, {"overlap": "0s"})
        clock.advance(seconds=31)
        assert new.get("/pipelines").status == 401
        assert Client("127.0.0.1", timed.server.port, last["key"]).get("/pipelines").status == 200
        used = timed.harness.client.keys.get(made["info"]["key_id"]).last_used_at
        assert used is not None
        assert clock.now() - from_datetime(used) < DAY

    def test_rate(self, timed: ServedApi, clock: VirtualClock) -> None:
        """A key may use its rate, twice that in a burst; then it gets 429 until a token is free."""
        admin = timed.by("admin")
        made = admin.ok("POST", "/keys", {"name": "eager", "role": "viewer", "rate": 2})
        by = Client("127.0.0.1", timed.server.port, made["key"])
        assert [by.get("/pipelines").status for _ in range(5)] == [200] * 4 + [429]
        refused = by.get("/pipelines")
        assert refused.json["code"] == "rate.exceeded"
        assert refused.headers["retry-after"] == "1"
        assert timed.by("viewer").get("/pipelines").status == 200, "other requests are not delayed"
        clock.advance(500_000)
        assert [by.get("/pipelines").status for _ in range(2)] == [200, 429]
        slow = admin.ok("POST", "/keys", {"name": "slow", "role": "viewer", "rate": 0.1})
        by = Client("127.0.0.1", timed.server.port, slow["key"])
        assert [by.get("/pipelines").status for _ in range(2)] == [200, 429]
        assert by.get("/pipelines").headers["retry-after"] == "10"


class TestHealth:
    """Health while the database is unavailable, and while the server stops."""

    def test_database_without_writes(self, pg_server: DatabaseServer, pg_migrated_dsn: str) -> None:
        """A server that refuses writes is not ready, although it answers."""
        clock = VirtualClock(1_763_337_600_000_000)
        store = PostgresStore(pg_migrated_dsn, clock)
        name = pg_migrated_dsn.rpartition("/")[2].partition("?")[0]
        served = ServedApi(Harness(store, clock))
        setting = f"ALTER DATABASE {name} SET default_transaction_read_only ="
        try:
            by = served.by("viewer")
            for value, status in (("on", 503), ("off", 200)):
                with psycopg.connect(pg_server.dsn(), autocommit=True) as connection:
                    connection.execute(f"{setting} {value}".encode())
                _shut(pg_server, name)
                _open(pg_server, name)
                reply = by.get("/readyz")
                assert reply.status == status, reply.body
                assert (b"accept writes" in reply.body) is (status == 503)
        finally:
            served.stop()
            store.close()

    def test_database_unavailable(self, pg_server: DatabaseServer, pg_migrated_dsn: str) -> None:
        """While PostgreSQL refuses connections: 503 with Retry-After; then the server recovers."""
        clock = VirtualClock(1_763_337_600_000_000)
        store = PostgresStore(pg_migrated_dsn, clock)
        name = pg_migrated_dsn.rpartition("/")[2].partition("?")[0]
        served = ServedApi(Harness(store, clock), clock=clock)
        try:
            by = served.by("viewer")
            assert by.get("/readyz").status == 200
            assert by.get("/pauses").status == 200
            assert served.by("admin").get("/metrics").status == 200
            _shut(pg_server, name)
            clock.advance(seconds=2)  # the last check is believed for a moment
            for path in ("/readyz", "/pauses"):
                reply = by.get(path)
                assert reply.status == 503, reply.body
                assert reply.json["code"].startswith("store")
                assert int(reply.headers["retry-after"]) >= 1
                assert reply.json["request_id"] == reply.headers["x-request-id"]
            assert b"host" not in by.get("/pauses").body, (
                "the address of the database is only logged"
            )
            metrics = served.by("admin").get("/metrics")
            assert metrics.status == 200
            assert b"penstock_up 0.0" in metrics.body
            assert by.get("/healthz").status == 200
            _open(pg_server, name)
            assert by.get("/readyz").status == 200
            assert by.get("/pauses").status == 200
            assert b"penstock_up 1.0" in served.by("admin").get("/metrics").body
        finally:
            _open(pg_server, name)
            served.stop()
            store.close()

    def test_graceful_stop(self, served: ServedApi) -> None:
        """A stop answers long polls and active requests, and refuses new connections."""
        entered, go_on = threading.Event(), threading.Event()
        tick = served.api.asgi.state.trigger

        def slow(batch: int, seconds: float) -> Any:
            entered.set()
            assert go_on.wait(60)
            return tick(batch, seconds)

        served.api.asgi.state.trigger = slow
        replies: dict[str, Reply] = {}

        def call(name: str, path: str, body: Any) -> None:
            replies[name] = served.by("operator").post(path, body)

        poll = {"worker_id": "w", "wait_seconds": 50}
        threads = [
            threading.Thread(target=call, args=("poll", "/scheduler/claim-runs", poll)),
            threading.Thread(target=call, args=("work", "/scheduler/trigger", {})),
        ]
        for thread in threads:
            thread.start()
        assert entered.wait(60)
        _until(lambda: served.api.waiting.count == 1)
        stopping = threading.Thread(target=served.stop)
        stopping.start()
        threads[0].join(60)
        assert replies["poll"].json == {"claimed_runs": []}, "the waiting worker is answered"
        assert "work" not in replies, "the other request is still active"
        go_on.set()
        threads[1].join(60)
        assert replies["work"].json["status"] == "completed"
        stopping.join(60)
        assert not stopping.is_alive()
        with pytest.raises(ConnectionError):
            socket.create_connection(("127.0.0.1", served.server.port), timeout=60).close()

    def test_draining_is_not_ready(self, served: ServedApi) -> None:
        """A stopping process is alive but not ready."""
        served.api.asgi.state.is_draining = True
        reply = served.by(None).get("/readyz")
        assert (reply.status, reply.json["code"]) == (503, "draining")
        assert reply.headers["retry-after"] == "1"
        assert served.by(None).get("/healthz").status == 200

    def test_overload(self, harness: Harness) -> None:
        """More concurrent requests than the bound get 503 at once; the process stays alive."""
        served = ServedApi(harness, inflight=1)
        by = served.by("operator")
        try:
            with busy(served):
                reply = by.get("/pauses")
                assert (reply.status, reply.json["code"]) == (503, "overloaded")
                assert reply.headers["retry-after"] == "1"
                assert by.get("/healthz").status == by.get("/readyz").status == 200
            assert by.get("/pauses").status == 200
        finally:
            served.stop()


class TestRequestIds:
    """Each request has an id in its response and in the log."""

    def test_ids(self, shared: ServedApi) -> None:
        """A valid request id is kept, any other replaced; problems and log entries contain it."""
        by = shared.by("viewer")
        reply = by.get("/pipeline-runs/run_00000000", X_Request_Id="my-id.7")
        assert reply.headers["x-request-id"] == reply.json["request_id"] == "my-id.7"
        for bad in ("a b", "x" * 65, "é", "<script>", ""):
            returned = by.get("/pauses", X_Request_Id=bad).headers["x-request-id"]
            assert returned
            assert returned != bad

    def test_access_log(self, shared: ServedApi) -> None:
        """Each request emits one event with caller, path and status, and one log entry."""
        by = shared.by("acme-viewer")
        by.get("/pipeline-runs/run_00000000?", X_Request_Id="line-1")
        shared.by(None).get("/pauses", X_Request_Id="line-2")
        lines = shared.logged("line-1", "line-2")
        assert [(e.request_id, e.method, e.status, e.key, e.customer_id) for e in lines] == [
            ("line-1", "GET", 404, "acme-viewer", "acme"),
            ("line-2", "GET", 401, None, None),
        ]
        assert lines[0].path == "/api/v1/pipeline-runs/run_00000000"
        assert all(event.seconds >= 0 for event in lines)
        written: list[str] = []
        EventLog(written.append, as_json=True, level="debug")(lines[0])
        line = json.loads(written[0])
        assert (line["action"], line["request_id"], line["status"]) == ("served", "line-1", 404)

    def test_security_headers(self, shared: ServedApi) -> None:
        """Every response forbids caching and content sniffing."""
        for reply in (shared.by("viewer").get("/pauses"), shared.by(None).get("/nothing")):
            assert reply.headers["cache-control"] == "no-store"
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert "server" not in reply.headers


def _until(condition: Any) -> None:
    """Poll until a condition holds."""
    gate = threading.Event()
    for _ in range(6_000):
        if condition():
            return
        gate.wait(0.01)
    raise AssertionError("it never came to that")


def _shut(server: DatabaseServer, name: str) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )


def _open(server: DatabaseServer, name: str) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
