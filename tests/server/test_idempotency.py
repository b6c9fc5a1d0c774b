"""Idempotent requests, pagination, and optimistic locking."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.core.clock import DAY
from penstock.core.ids import decode
from penstock.schedules.api.bulk import PART
from tests.kits.configs import new_configs
from tests.kits.effort import effort
from tests.server.access_table import ROUTES
from tests.server.kit import Client, Reply, ServedApi
from tests.server.scene import CALLS, NIGHTLY, scene

ITEMS = effort(2_500, 10_000)
POSTS = sorted((n for n in ROUTES if n.startswith("POST")), key=lambda name: "pauses" in name)
"""Pauses last: they keep other calls from what they want."""


def dumped(served: ServedApi) -> dict[str, int]:
    """Return the row counts of all tables that a request may write."""
    return served.harness.counts() | served.harness.counts("api_keys", "leases", "progress")


class TestEveryPost:
    """An Idempotency-Key on each POST of the table."""

    def test_each(self, shared: ServedApi) -> None:
        """A repeat gets the same response and does nothing; a different body or path gets 422."""
        s = scene(shared.harness, "acme")
        by = shared.by("admin")
        for number, route in enumerate(POSTS):
            path, body = CALLS[route](s)
            key = f"repeat-{number}"
            first = by.post(path, body, Idempotency_Key=key)
            assert first.status < 300, (route, first.body)
            before = dumped(shared)
            again = by.post(path, body, Idempotency_Key=key)
            assert again.status == first.status, (route, again.body)
            if route in ("POST /api/v1/keys", "POST /api/v1/keys/{key_id}/rotate"):
                assert again.json == {**first.json, "key": None}, "a key is returned once"
            else:
                assert again.body == first.body, route
            if "bulk" not in route:
                assert again.headers["idempotency-replayed"] == "true", route
            assert again.headers.get("etag") == first.headers.get("etag")
            assert dumped(shared) == before, route
            bent = path if "?" in path else f"{path}?"
            other = by.call("POST", bent, json.dumps(body).encode() + b" ",
                            {"Idempotency-Key": key})  # fmt: skip
            if body is not None:
                assert (other.status, other.json["code"]) == (422, "request.key_reused"), route
            assert dumped(shared) == before, route

    def test_keys_are_per_caller(self, shared: ServedApi) -> None:
        """The same Idempotency-Key of two API keys does not collide."""
        path, body = "/customers/acme/pipeline-runs", {"pipeline_template": "outside"}
        made = [
            shared.by(name).ok("POST", path, body, Idempotency_Key="mine")["run_id"]
            for name in ("admin", "operator", "acme-admin", "acme-operator", "admin")
        ]
        assert made[0] == made[4]
        assert len(set(made)) == 4

    @pytest.mark.parametrize("key", ["", "x" * 256, "é", "a\tb"])
    def test_bad_keys(self, shared: ServedApi, key: str) -> None:
        """An empty, long or unprintable Idempotency-Key gets a 400 that names it."""
        before = dumped(shared)
        reply = shared.by("admin").post("/schedules/preview", {}, Idempotency_Key=key)
        assert reply.status == 400
        assert reply.json["errors"][0]["field"].lower() == "idempotency-key"
        assert dumped(shared) == before

    def test_refused_request_is_not_stored(self, shared: ServedApi) -> None:
        """After a 4xx the same key can be used for a corrected request."""
        by = shared.by("admin")
        path = "/customers/acme/pipeline-runs"
        assert by.post(path, {"pipeline_template": "no"}, Idempotency_Key="try").status == 400
        reply = by.post(path, {"pipeline_template": "outside"}, Idempotency_Key="try")
        assert reply.status == 201

    def test_expires_after_a_day(self, served: ServedApi) -> None:
        """A key can be reused after 24 hours, once the sweeper has run."""
        by, path = served.by("admin"), "/customers/acme/pipeline-runs"
        body = {"pipeline_template": "outside"}
        first = by.ok("POST", path, body, Idempotency_Key="daily")
        served.harness.clock.advance(DAY + 1)
        expired = served.harness.column("SELECT count(*) FROM requests WHERE expires_at < "
                                     f"{served.harness.clock.now()}")  # fmt: skip
        assert expired == [1]
        assert first["run_id"]


class TestCrashes:
    """Concurrent duplicates, and lost responses."""

    def test_concurrent(self, served: ServedApi) -> None:
        """Twenty equal concurrent requests create one run and get the same response."""
        path, body = "/customers/acme/pipeline-runs", {"pipeline_template": "outside"}
        start = threading.Barrier(20)
        replies: list[Reply] = []

        def call() -> None:
            by = served.by("operator")
            start.wait(60)
            replies.append(by.post(path, body, Idempotency_Key="once"))

        in_parallel(20, call)
        good = [reply for reply in replies if reply.status == 201]
        assert {reply.status for reply in replies} <= {201, 409}
        assert len({reply.body for reply in good}) == 1
        assert served.harness.counts("runs") == {"runs": 1}
        assert served.by("operator").post(path, body, Idempotency_Key="once").body == good[0].body

    def test_lost_response(self, served: ServedApi) -> None:
        """A repeat after a lost response gets the stored response."""
        path, body = "/customers/acme/pipeline-runs", {"pipeline_template": "outside"}
        raw = json.dumps(body).encode()
        key = served.keys["operator"]
        with socket.create_connection(("127.0.0.1", served.server.port), timeout=60) as line:
            head = (
                f"POST /api/v1{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
                f"Content-Type: application/json\r\nIdempotency-Key: lost\r\n"
                f"Content-Length: {len(raw)}\r\n\r\n"
            )
            line.sendall(head.encode() + raw)
            until(lambda: served.harness.counts("runs") == {"runs": 1})
        again = served.by("operator").post(path, body, Idempotency_Key="lost")
        assert again.status == 201
        assert again.headers["idempotency-replayed"] == "true"
        assert served.harness.counts("runs") == {"runs": 1}

    def test_bulk_continues(self, served: ServedApi) -> None:
        """The client disconnects after the first chunk; a repeat creates the rest."""
        items: list[dict[str, Any]] = [
            {**NIGHTLY, "customer_id": f"c{n % 100}"} for n in range(ITEMS)
        ]
        items[777] = {**NIGHTLY, "customer_id": "c1", "priority": 99}
        raw = "\n".join(map(json.dumps, items)).encode()
        key = served.keys["operator"]
        line = socket.create_connection(("127.0.0.1", served.server.port), timeout=60)
        head = (
            f"POST /api/v1/pipeline-configs/bulk HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {key}\r\nContent-Type: application/x-ndjson\r\n"
            f"Idempotency-Key: bulk\r\nContent-Length: {len(raw)}\r\n\r\n"
        )
        line.sendall(head.encode() + raw)
        assert line.recv(100).startswith(b"HTTP/1.1 200")
        line.close()
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": "bulk"}
        again = served.by("operator").call("POST", "/pipeline-configs/bulk", raw, headers)
        assert [one["index"] for one in again.lines] == list(range(ITEMS))
        assert [one["index"] for one in again.lines if one["status"] == "refused"] == [777]
        made = ITEMS - 1
        until(lambda: served.harness.counts("configs")["configs"] == made)
        assert served.harness.counts("configs", "audit") == {"configs": made, "audit": made}
        third = served.by("operator").call("POST", "/pipeline-configs/bulk", raw, headers)
        assert third.body == again.body
        assert served.harness.counts("configs") == {"configs": made}

    def test_bulk_refusals(self, served: ServedApi) -> None:
        """Too many items, no array, or another body under the same key get an error status."""
        by = served.by("operator")
        item = {**NIGHTLY, "customer_id": "acme", "reason": "moved shared"}
        assert by.post("/pipeline-configs/bulk", [item] * 10_001).status == 400
        assert by.post("/pipeline-configs/bulk", item).status == 400
        assert by.post("/pipeline-configs/bulk", b"<a/>", Content_Type="text/xml").status == 415
        assert by.post("/pipeline-configs/bulk", [], Idempotency_Key="k").status == 400
        wide = {**item, "parameters": {f"p{n}": n for n in range(40)}}
        made = by.post("/pipeline-configs/bulk", [wide] * (PART + 1), Idempotency_Key="k2")
        assert {one["status"] for one in made.lines} == {"created"}
        other = by.post("/pipeline-configs/bulk", [item], Idempotency_Key="k2")
        assert (other.status, other.json["code"]) == (422, "request.key_reused")
        (link, *_) = by.ok("GET", "/customers/acme/audit?limit=1")["items"]
        assert link["change_reason"] == "moved shared"


class TestVersions:
    """ETags of configs."""

    def test_etags(self, served: ServedApi) -> None:
        """A change of an outdated version is refused; an unchanged config gets 304."""
        by = served.by("operator")
        made = by.post("/customers/acme/pipeline-configs", NIGHTLY)
        path = f"/pipeline-configs/{made.json['config_id']}"
        assert made.headers["etag"] == '"1"'
        for tag in ('"1"', 'W/"1"', '"0", "1"', "*"):
            reply = by.get(path, If_None_Match=tag)
            assert (reply.status, reply.body, reply.headers["etag"]) == (304, b"", '"1"'), tag
        changed = by.patch(path, {"priority": 8}, If_Match='"1"')
        assert (changed.status, changed.headers["etag"]) == (200, '"2"')
        assert by.get(path, If_None_Match='"1"').status == 200
        for body, headers in (
            ({"priority": 1}, {"If_Match": '"1"'}),
            ({"priority": 1, "version": 1}, {}),
        ):
            stale = by.patch(path, body, **headers)
            assert (stale.status, stale.json["code"]) == (409, "stale_version")
            assert stale.json["about"]["current"] == 2
        for tag in ("two", '"²"', '"1", "2"', '"' + "9" * 60 + '"', '"-1"', '""'):
            assert by.patch(path, {"priority": 1}, If_Match=tag).status == 400, tag
        assert by.patch(path, {"priority": 1, "version": 1}, If_Match='"2"').status == 400
        assert by.patch(path, {"priority": 9, "version": 2}, If_Match='"2"').status == 200
        assert by.patch(path, {"priority": 3}, If_Match="*").json["version"] == 4
        stale = by.delete(path, If_Match='"3"')
        assert (stale.status, stale.json["code"]) == (409, "stale_version")
        assert by.delete(path, If_Match="x").status == 400
        assert by.delete(path, If_Match='"4"').status == 204

    def test_concurrent_changes(self, served: ServedApi) -> None:
        """Of ten concurrent changes of the same version, one succeeds."""
        by = served.by("operator")
        made = by.ok("POST", "/customers/acme/pipeline-configs", NIGHTLY)
        path, statuses = f"/pipeline-configs/{made['config_id']}", list[int]()
        start = threading.Barrier(10)

        def call() -> None:
            start.wait(60)
            statuses.append(served.by("operator").patch(path, {"priority": 2, "version": 1}).status)

        in_parallel(10, call)
        assert sorted(statuses) == [200] + [409] * 9


class TestPages:
    """Lists by cursor and by offset."""

    @pytest.mark.parametrize("limit", [1, 7, 1000])
    def test_complete_while_rows_are_added(self, served: ServedApi, limit: int) -> None:
        """Every config and run is listed once, even if rows are added in the meantime."""
        harness, by = served.harness, served.by("acme-viewer")
        given = new_configs([("acme", NIGHTLY)] * 25)
        made = harness.client.configs.create_many(given)
        ids = {decode("cfg", config.config_id) for config in made}
        harness.config("globex")
        seen: list[int] = []
        for page in pages(by, f"/customers/acme/pipeline-configs?limit={limit}"):
            seen += [decode("cfg", item["config_id"]) for item in page]
            harness.config("acme")
            harness.config("globex")
            if len(seen) >= 25:
                break
        assert ids <= set(seen)
        assert len(seen) == len(set(seen))

    def test_runs(self, served: ServedApi) -> None:
        """Active and ended runs, newest first, are the same by cursor and by offset."""
        harness, by = served.harness, served.by("viewer")
        done = [harness.submit() for _ in range(13)]
        harness.drain()
        live = [harness.submit() for _ in range(8)]
        wanted = live[::-1] + done[::-1]
        path = "/customers/acme/pipeline-runs"
        listed = [decode("run", one["run_id"]) for p in pages(by, f"{path}?limit=5") for one in p]
        assert listed == wanted
        skipped: list[int] = []
        for offset in range(0, 25, 5):
            page = by.ok("GET", f"{path}?limit=5&offset={offset}")["items"]
            skipped += [decode("run", one["run_id"]) for one in page]
        assert skipped == wanted
        seen: list[int] = []
        for page in pages(by, f"{path}?limit=5"):
            seen += [decode("run", one["run_id"]) for one in page]
            harness.submit()  # newer than the remaining pages
        assert seen == wanted

    def test_states_and_dates(self, served: ServedApi) -> None:
        """Filters narrow a list; a window before the first run is empty."""
        harness, by = served.harness, served.by("viewer")
        harness.submit()
        harness.drain()
        harness.submit()
        path = "/customers/acme/pipeline-runs"
        assert len(by.ok("GET", f"{path}?state=COMPLETED")["items"]) == 1
        assert len(by.ok("GET", f"{path}?state=PENDING")["items"]) == 1
        assert by.ok("GET", f"{path}?end_date=2025-11-17")["items"] == []
        assert len(by.ok("GET", f"{path}?start_date=2025-11-17&end_date=2025-11-18")["items"]) == 2
        assert len(by.ok("GET", f"{path}?start_date=2025-11-17T00:00:00Z")["items"]) == 2


def pages(by: Client, path: str) -> Iterator[list[Any]]:
    """Yield every page of a list."""
    cursor = ""
    for _ in range(100):
        page = by.ok("GET", f"{path}{cursor}")
        yield page["items"]
        if page["next_cursor"] is None:
            return
        cursor = f"&cursor={page['next_cursor']}"
    raise AssertionError("the list has no end")


def in_parallel(n: int, call: Callable[[], None]) -> None:
    """Run a function in several threads and wait for all of them."""
    threads = [threading.Thread(target=call) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def until(condition: Callable[[], bool]) -> None:
    """Poll until a condition holds."""
    gate = threading.Event()
    for _ in range(6_000):
        if condition():
            return
        gate.wait(0.01)
    raise AssertionError("it never came to that")
