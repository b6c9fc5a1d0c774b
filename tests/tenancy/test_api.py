"""Tenant isolation on every route (I33), and secrets that never leak (I34)."""

import io
import itertools
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import pytest

from penstock.access.api_keys import Permission, Role
from penstock.core.redact import MASK
from tests.conftest import ENGINES
from tests.kits.dump import columns_holding, tables
from tests.kits.served import Serve
from tests.server.access_table import ALL_CUSTOMERS, ROUTES
from tests.server.alert_scene import ALERT_BODIES, ALERT_CALLS
from tests.server.flow_scene import FLOW_BODIES, FLOW_CALLS
from tests.server.kit import Reply, ServedApi
from tests.server.scene import CALLS, NIGHTLY, Scene, method_of, scene
from tests.server.test_document import DOCUMENT

A, B = "acme", "globex"
FOREIGN = sorted(
    name for name in ROUTES if "{" in name.replace("{pipeline}", "").replace("{kind}", "")
)
"""Routes whose path names a customer's resource."""

READS = sorted(name for name in ROUTES if name.startswith("GET"))

INDIRECT: Mapping[str, Any] = {
    "POST /api/v1/pipeline-configs/bulk": lambda s: [{**NIGHTLY, "customer_id": s.customer}],
    "POST /api/v1/pipeline-runs/heartbeat": lambda s: {
        "heartbeats": [{"run_id": s.runs["running"], **s.held("running")}]
    },
    "POST /api/v1/pipeline-runs/complete": lambda s: {
        "completions": [{"run_id": s.runs["completes"], **s.held("completes")}]
    },
    "POST /api/v1/pauses": lambda s: {"scope": "customer", "subject": s.customer},
    "POST /api/v1/pauses/resume": lambda s: {"scope": "config", "subject": s.config},
    "POST /api/v1/topics": lambda _: {"name": "their-topic"},
    "POST /api/v1/subscriptions": lambda s: {"name": "their-reader", "topic": s.bus.topic},
    **{name: lambda s, name=name: FLOW_CALLS[name](s.flows)[1] for name in FLOW_BODIES},
    **{name: lambda s, name=name: ALERT_CALLS[name](s.alerts)[1] for name in ALERT_BODIES},
}
"""Routes whose body names a customer's resource."""


class Databases:
    """Customer A in two databases: alone, and beside a customer B that was added later."""

    def __init__(self, alone: ServedApi, beside: ServedApi) -> None:
        self.alone, self.beside = alone, beside
        self.a = scene(alone.harness, A)
        assert scene(beside.harness, A) == self.a, "A is the same in both databases"
        self.b = scene(beside.harness, B)

    def ask(self, key: str, method: str, path: str, body: Any = None) -> tuple[Reply, Reply]:
        """Send the same request to both databases."""
        return (
            self.alone.by(key).call(method, path, body),
            self.beside.by(key).call(method, path, body),
        )


@pytest.fixture(scope="module", params=ENGINES)
def databases(request: pytest.FixtureRequest, serve: Serve) -> Iterator[Databases]:
    """Return both databases on one engine."""
    with serve(request.param) as alone, serve(request.param) as beside:
        yield Databases(alone, beside)


def plain(reply: Reply, known: str = "") -> tuple[int, bytes]:
    """Return a response without values that always differ: ids, tokens, secrets."""
    body = re.sub(rb'"request_id":"[^"]*"', b'"request_id":""', reply.body)
    body = re.sub(rb'"(fencing_token|n)":[0-9]+', rb'"\1":0', body)
    body = re.sub(rb"pnk_[0-9a-z_]+", b"pnk", body)
    body = re.sub(rb'"message_ids":\["[0-9]+"\]', b'"message_ids":[]', body)
    body = re.sub(rb'"(correlation_id|previous|hash)":"[^"]*"', rb'"\1":""', body)
    body = re.sub(rb'"next_cursor":"[^"]*"', b'"next_cursor":""', body)

    def named(found: re.Match[bytes]) -> bytes:
        return found[0] if found[0].decode() in known else found[1] + b"_new"

    return reply.status, re.sub(
        rb"\b(run|cfg|key|alert|dl|flow|dec|ovr|int|bf|sil|notice|evt)_[0-9a-z]{8,13}\b",
        named,
        body,
    )


def rows_of(served: ServedApi, whose: str) -> dict[str, list[str]]:
    """Return every row of a customer, including rows of its runs and configs."""

    def where(table: str, columns: list[str]) -> str | None:
        number = f"(SELECT customer FROM customers WHERE customer_id = '{whose}')"
        runs = f"SELECT run_id FROM runs WHERE customer = {number}"
        configs = f"SELECT config_id FROM configs WHERE customer = {number}"
        if "customer" in columns:
            return f"customer = {number}"
        if "run_id" in columns:
            return f"run_id IN ({runs})"
        if table == "leases":
            return f"subject IN ({runs})"
        return f"config_id IN ({configs})" if "config_id" in columns else None

    return dumped(served, where)


def everything(served: ServedApi) -> dict[str, list[str]]:
    """Return every row of every table."""
    return dumped(served, lambda *_: "1 = 1")


def dumped(served: ServedApi, where: Callable[..., str | None]) -> dict[str, list[str]]:
    """Return the matching rows of each table, without the time of a key's last use."""
    names = [name for name in tables(served.harness.store) if name != "api_keys"]

    def body(tx: Any) -> dict[str, list[str]]:
        kept = {}
        for name in names:
            cursor = tx._connection.execute(f"SELECT * FROM {name} WHERE 1 = 0")
            chosen = where(name, [column[0] for column in cursor.description])
            if chosen is not None:
                rows = tx._connection.execute(f"SELECT * FROM {name} WHERE {chosen}").fetchall()
                kept[name] = sorted(map(repr, rows))
        return kept

    return served.harness.store.read(body)


def known_ids(s: Scene) -> str:
    """Return the ids of a scene as one string."""
    return " ".join([s.config, s.failing, s.key, s.spare_key, s.flows.ids, *s.runs.values()])


def asked(path: str, query: str) -> str:
    """Return a path with more query parameters."""
    return path + ("&" if "?" in path else "?") + query if query else path


class TestReads:
    """A customer's view does not depend on whether another customer exists."""

    def test_every_route_has_a_call(self) -> None:
        """Every route must be covered here."""
        assert set(CALLS) == set(ROUTES)

    @pytest.mark.parametrize("role", list(Role))
    def test_reads(self, databases: Databases, role: Role) -> None:
        """Each read by a restricted key is byte-equal with and without the other customer."""
        ids = known_ids(databases.a)
        for route in READS:
            path, _ = CALLS[route](databases.a)
            paged = "limit" in _parameters(route)
            for query in ("", "limit=2") if paged else ("",):
                alone, beside = databases.ask(f"{A}-{role}", "GET", asked(path, query))
                assert plain(alone, ids) == plain(beside, ids), route
                assert B.encode() not in beside.body, route
                if route in ALL_CUSTOMERS:
                    assert beside.status == 403, route
                elif (
                    role.has_permission(ROUTES[route])
                    and ROUTES[route] is not Permission.ADMINISTER
                ):
                    assert beside.status == 200, route

    @pytest.mark.parametrize(
        ("route", "query"),
        [
            ("GET /api/v1/alerts", f"?customer_id={B}"),
            ("GET /api/v1/dead-letters", f"?customer_id={B}"),
            ("GET /api/v1/flows", f"&customer_id={B}"),
            ("GET /api/v1/overrides", f"?customer_id={B}"),
            ("GET /api/v1/interventions", f"?customer_id={B}"),
            ("GET /api/v1/gates/decisions", f"&customer_id={B}"),
            ("GET /api/v1/alerts", "?customer_id=unknown"),
            ("GET /api/v1/dead-letters", "?customer_id=unknown"),
        ],
    )
    def test_filters(self, databases: Databases, route: str, query: str) -> None:
        """A filter for another customer finds nothing, whether it exists or not."""
        path, _ = CALLS[route](databases.a)
        alone, beside = databases.ask(f"{A}-admin", "GET", path + query)
        assert plain(alone) == plain(beside)
        assert beside.status == 404

    def test_explain_other_customer(self, databases: Databases) -> None:
        """A partition of another customer is not found, whether the customer exists or not."""
        path, _ = CALLS["GET /api/v1/explain"](databases.b)
        alone, beside = databases.ask(f"{A}-viewer", "GET", path)
        assert plain(alone) == plain(beside)
        assert beside.status == 404

    def test_foreign_ids(self, databases: Databases) -> None:
        """An id of another customer is answered like an unknown one, and nothing changes."""
        ids = known_ids(databases.b)
        before = everything(databases.beside)
        for route in FOREIGN:
            path, body = CALLS[route](databases.b)
            alone, beside = databases.ask(f"{A}-operator", method_of(route), path, body)
            assert plain(alone, ids) == plain(beside, ids), route
            is_refused = ROUTES[route] is Permission.ADMINISTER or route in ALL_CUSTOMERS
            expected = 403 if is_refused else 404
            assert beside.status == expected, (route, beside.body)
        assert everything(databases.beside) == before

    def test_foreign_ids_in_bodies(self, databases: Databases) -> None:
        """Ids of another customer in a body are not found either, item by item."""
        ids = known_ids(databases.b)
        before = rows_of(databases.beside, B)
        for route, make in INDIRECT.items():
            path, _ = CALLS[route](databases.b)
            alone, beside = databases.ask(f"{A}-operator", "POST", path, make(databases.b))
            assert plain(alone, ids) == plain(beside, ids), route
            assert beside.status == 404 or b"not_found" in beside.body, (route, beside.body)
        assert rows_of(databases.beside, B) == before

    def test_dashboard_counts_own_runs(self, databases: Databases) -> None:
        """A restricted key sees its customer's counts, an unrestricted one all customers'."""
        own = databases.beside.by(f"{A}-viewer").ok("GET", "/dashboard/pipeline-status")
        all_of_it = databases.beside.by("viewer").ok("GET", "/dashboard/pipeline-status")
        assert all_of_it["running_runs"] == 2 * own["running_runs"] > 0
        assert all_of_it["failed_today"] == 2 * own["failed_today"] > 0


class TestCursors:
    """A cursor is valid only for its list, filter and customer."""

    def test_foreign_and_forged_cursors(self, databases: Databases) -> None:
        """Cursors of another customer, list or filter, and forged ones, all get the same 400."""
        served, a = databases.beside, databases.a
        mine = served.by(f"{A}-viewer")
        tried = 0
        for route in READS:
            if "cursor" not in _parameters(route) or route in ALL_CUSTOMERS:
                continue
            if ROUTES[route] is Permission.ADMINISTER:
                continue
            path, _ = CALLS[route](a)
            page = mine.ok("GET", asked(path, "limit=1"))
            if page["next_cursor"] is None:
                continue
            tried += 1
            good = page["next_cursor"]
            assert mine.get(asked(path, f"limit=1&cursor={good}")).status == 200
            free = served.by("viewer").get(asked(path, f"limit=1&cursor={good}"))
            other = served.by(f"{B}-viewer").get(asked(path, f"limit=1&cursor={good}"))
            theirs, _ = CALLS[route](databases.b)
            cross = served.by("viewer").get(asked(theirs, f"limit=1&cursor={good}"))
            bent = [good[:-1], good + "A", good[1:], "A" * len(good), good.swapcase()]
            refused = [mine.get(asked(path, f"limit=1&cursor={text}")) for text in bent]
            refused += [free] if free.status != 200 else []
            assert other.status in (400, 404), other.body
            for reply in (*refused, cross):
                assert (reply.status, reply.json["code"]) == (400, "input.invalid"), reply.body
                assert reply.json["errors"][0]["field"] == "cursor"
        assert tried >= 6

    def test_another_filter(self, databases: Databases) -> None:
        """A cursor of one filter is refused with another filter."""
        mine = databases.beside.by(f"{A}-viewer")
        page = mine.ok("GET", f"/customers/{A}/pipeline-runs?limit=1&state=RUNNING")
        bent = f"/customers/{A}/pipeline-runs?limit=1&state=PENDING&cursor={page['next_cursor']}"
        assert mine.get(bent).status == 400


class TestWrites:
    """A customer changes only its own data."""

    @pytest.mark.parametrize("engine", ENGINES)
    def test_every_write(self, engine: str, serve: Serve) -> None:
        """Each write of A is answered alike with and without B, and leaves B's rows unchanged."""
        with serve(engine) as alone, serve(engine) as beside:
            databases = Databases(alone, beside)
            ids = known_ids(databases.a)
            for route in sorted(ROUTES, key=lambda name: name.startswith("DELETE")):
                if method_of(route) == "GET":
                    continue
                path, body = CALLS[route](databases.a)
                before = rows_of(beside, B)
                one, two = databases.ask(f"{A}-admin", method_of(route), path, body)
                assert plain(one, ids) == plain(two, ids), route
                assert rows_of(beside, B) == before, route
                refused = route in ALL_CUSTOMERS or ROUTES[route] is Permission.ADMINISTER
                assert (two.status == 403) is refused, (route, two.body)
                assert refused or two.status < 300, (route, two.body)


def _parameters(route: str) -> set[str]:
    method, _, path = route.partition(" ")
    operation = DOCUMENT["paths"][path][method.lower()]
    return {one["name"] for one in operation.get("parameters", [])}


class TestSecrets:
    """Canary secrets appear in no log entry, response or column."""

    CANARY = "c4n4ry-0f-the-mine-9e1b7"
    PASSWORD = f"password={CANARY}"
    NAMED: ClassVar = {"db_password": CANARY}
    DSN = f"postgres://user:{CANARY}@host/db"

    def test_canaries(self, served: ServedApi) -> None:
        """Secrets in any field are refused or masked, and never stored."""
        log = io.StringIO()
        handler = logging.StreamHandler(log)
        root = logging.getLogger()
        root.addHandler(handler)
        level = root.level
        root.setLevel(logging.DEBUG)
        try:
            replies = list(self.put(served))
        finally:
            root.removeHandler(handler)
            root.setLevel(level)
        for reply in replies:
            assert self.CANARY.encode() not in reply.body, reply.body
            assert self.CANARY not in json.dumps(reply.headers)
        assert self.CANARY not in log.getvalue()
        assert not [event for event in served.received if self.CANARY in repr(event)]
        assert columns_holding(served.harness.store, self.CANARY) == []

    def put(self, served: ServedApi) -> Iterator[Reply]:
        """Send the canary in every field; return all responses."""
        s = scene(served.harness, A)
        by = served.by("admin")
        for secret in (self.NAMED, {"deep": [{"apiKey": self.CANARY}]}, {"url": self.DSN}):
            for reply in (
                by.post(f"/customers/{A}/pipeline-configs", {**NIGHTLY, "parameters": secret}),
                by.patch(f"/pipeline-configs/{s.config}", {"parameters": secret}),
                by.post(
                    f"/customers/{A}/pipeline-runs",
                    {"pipeline_template": "outside", "parameters": secret},
                ),
            ):
                assert reply.status == 400, reply.body
                yield reply
            bulk = {**NIGHTLY, "customer_id": A, "parameters": secret}
            reply = by.post("/pipeline-configs/bulk", [bulk])
            assert reply.lines[0]["status"] == "refused"
            yield reply
        path = f"/pipeline-runs/{s.runs['fails']}/fail"
        details = {**self.NAMED, "message": f"{self.PASSWORD} {self.DSN}", "url": self.DSN}
        yield by.post(path, s.held("fails", error_type="BROKEN", error_details=details))
        path = f"/pipeline-runs/{s.runs['completes']}/complete"
        yield by.post(path, s.held("completes", result_summary=details))
        detail = by.get(f"/pipeline-runs/{s.runs['completes']}")
        assert detail.json["run"]["result_summary"]["db_password"] == MASK
        yield detail
        yield by.get(f"/pipeline-runs/{s.runs['fails']}")
        wrong = [
            ("POST", "/scheduler/claim-runs", {"worker_id": self.NAMED}),
            ("POST", f"/customers/{A}/pipeline-configs", {**NIGHTLY, "timezone": self.PASSWORD}),
            ("POST", f"/customers/{A}/pipeline-configs", {**NIGHTLY, "retry_config": self.NAMED}),
            ("POST", f"/customers/{A}/pipeline-configs", {**NIGHTLY, "db_password": self.CANARY}),
            ("POST", "/schedules/preview", {"schedule_cron": self.DSN}),
            ("POST", "/keys", {"name": "x", "role": self.PASSWORD}),
            ("POST", "/pauses", {"scope": "customer", "subject": self.DSN}),
            ("GET", f"/customers/{A}/pipeline-runs?start_date=token%3D{self.CANARY}"[:100], None),
        ]
        for method, path, body in wrong:
            reply = by.call(method, path, body)
            assert reply.status == 400, (path, reply.body)
            yield reply
        for name in ("dead-letters", "alerts", f"customers/{A}/audit", "openapi.json"):
            yield by.get(f"/{name}")
        bad = f"pnk_{'0' * 8}_{self.CANARY}"
        yield by.call("GET", "/keys", headers={"Authorization": f"Bearer {bad}"})
        yield by.call("GET", "/keys", headers={"Authorization": f"Basic {self.CANARY}"})
        yield by.call("POST", "/scheduler/trigger", {}, headers={"X-Scheduler-Token": self.CANARY})

    def test_keys_are_stored_nowhere(self, served: ServedApi) -> None:
        """A key is returned once; it is not logged, stored or repeated."""
        by = served.by("admin")
        body = {"name": "worker", "role": "worker"}
        made = by.post("/keys", body, Idempotency_Key="make-it")
        text = made.json["key"]
        secret = text.rpartition("_")[2][:40]
        again = by.post("/keys", body, Idempotency_Key="make-it")
        assert again.json == {"key": None, "info": made.json["info"]}
        rotated = by.post(f"/keys/{made.json['info']['key_id']}/rotate", Idempotency_Key="turn")
        newer = rotated.json["key"].rpartition("_")[2][:40]
        listed = by.get("/keys")
        # A key in the wrong header is neither returned nor logged.
        echoed = by.call("GET", "/keys", headers={"X-Request-Id": text[:64]})
        for value in (secret, newer):
            assert columns_holding(served.harness.store, value) == []
            assert value.encode() not in listed.body + again.body
            assert not [event for event in served.received if value in repr(event)]
            assert value not in json.dumps(echoed.headers)

    def test_audit(self, served: ServedApi) -> None:
        """Each change of a config adds one entry to the audit chain; a refused change adds none."""
        by = served.by("operator")
        made = by.ok("POST", f"/customers/{A}/pipeline-configs", NIGHTLY)
        path = f"/pipeline-configs/{made['config_id']}"
        wanted = 1
        for body, status in (
            ({"priority": 3}, 200),
            ({"priority": 99}, 400),
            ({"is_active": False}, 200),
            ({"priority": 4, "version": 1}, 409),
            ({"is_active": True}, 200),
        ):
            assert by.patch(path, body).status == status
            wanted += status == 200
        items = [{**NIGHTLY, "customer_id": A}, {**NIGHTLY, "customer_id": "-"}]
        assert [one["status"] for one in by.post("/pipeline-configs/bulk", items).lines] == [
            "created", "refused",
        ]  # fmt: skip
        by.ok("POST", "/pauses", {"scope": "customer", "subject": A})
        by.ok("POST", "/pauses", {"scope": "customer", "subject": A})
        by.ok("POST", "/pauses/resume", {"scope": "customer", "subject": A})
        assert by.delete(path).status == 204
        assert by.delete(path).status == 404
        wanted += 4
        links = by.ok("GET", f"/customers/{A}/audit?limit=1000")["items"]
        assert len(links) == wanted == served.harness.column("SELECT count(*) FROM audit")[0]
        assert [link["n"] for link in links] == list(range(1, wanted + 1))
        assert {link["changed_by"] for link in links} == {"key:operator"}
        for before, after in itertools.pairwise(links):
            assert after["previous"] == before["hash"]
