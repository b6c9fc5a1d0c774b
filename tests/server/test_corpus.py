"""Tables of invalid input: refused alike on both engines, without changes or hangs."""

import json
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.server.overload import middleware
from penstock.server.overload.message_cost import HEAD_MAX
from tests.kits.served import Serve
from tests.server.kit import ServedApi
from tests.server.pair import Pair, verdict
from tests.server.scene import NIGHTLY, Scene, scene

PATIENCE = 60.0
"""Seconds within which every response must arrive."""

CONFIGS, RUNS = "/customers/acme/pipeline-configs", "/customers/acme/pipeline-runs"
CLAIM = "/scheduler/claim-runs"


def _deep(lists: int) -> bytes:
    """Return a run with nested parameters."""
    opened, closed = b"[" * lists, b"]" * lists
    return b'{"pipeline_template": "outside", "parameters": {"x": ' + opened + closed + b"}}"


JSON: dict[str, tuple[bytes, int]] = {
    "nan": (b'{"pipeline_template": "outside", "parameters": {"x": NaN}}', 400),
    "infinity": (b'{"pipeline_template": "outside", "parameters": {"x": Infinity}}', 400),
    "minus infinity": (b'{"pipeline_template": "outside", "parameters": {"x": -Infinity}}', 400),
    "1e999": (b'{"pipeline_template": "outside", "parameters": {"x": 1e999}}', 400),
    "minus zero": (b'{"pipeline_template": "outside", "parameters": {"x": -0, "y": -0.0}}', 201),
    "5000 digits": (
        b'{"pipeline_template": "outside", "parameters": {"x": ' + b"9" * 5000 + b"}}",
        400,
    ),
    "2^53 + 1": (
        b'{"pipeline_template": "outside", "parameters": {"x": 9007199254740993}}',
        201,
    ),
    "2^63": (b'{"pipeline_template": "outside", "parameters": {"x": 9223372036854775808}}', 400),
    "nul": (b'{"pipeline_template": "outside", "partition": "a\\u0000b"}', 400),
    "nul in a name": (b'{"pipeline_template": "outside", "parameters": {"a\\u0000": 1}}', 400),
    "lone surrogate": (b'{"pipeline_template": "outside", "partition": "\\ud800"}', 400),
    "surrogate pair": (b'{"pipeline_template": "outside", "partition": "\\ud83d\\ude00"}', 201),
    "same name twice": (b'{"pipeline_template": "pair", "pipeline_template": "outside"}', 400),
    "same name after NFC": (
        '{"pipeline_template": "outside", "parameters": {"é": 1, "e\u0301": 2}}'.encode(),
        400,
    ),
    "depth 32": (_deep(30), 201),
    "depth 64": (_deep(62), 400),
    "depth 65": (_deep(63), 400),
    "depth 100,000": (b'{"a":' * 100_000, 400),
    "depth 100,000, lists": (b"[" * 100_000 + b"]" * 100_000, 400),
    "brackets in texts": (
        b'{"pipeline_template": "outside", "parameters": {"x": "' + b"[{" * 1000 + b'"}}',
        201,
    ),
    "a million names": (
        b'{"pipeline_template": "outside", "parameters": {'
        + b",".join(b'"%d":1' % n for n in range(90_000)) + b"}}",
        400,
    ),
    "byte order mark": (b'\xef\xbb\xbf{"pipeline_template": "outside"}', 400),
    "UTF-16": ('{"pipeline_template": "outside"}'.encode("utf-16"), 400),
    "latin-1": ('{"pipeline_template": "outside", "partition": "é"}'.encode("latin-1"), 400),
    "overlong": (b'{"pipeline_template": "outside", "partition": "\xc0\x80"}', 400),
    "rubbish behind it": (b'{"pipeline_template": "outside"} x', 400),
    "two documents": (b'{"pipeline_template": "outside"}{}', 400),
    "nothing": (b"", 400),
    "white space": (b" \n ", 400),
    "null": (b"null", 400),
    "a list": (b'[{"pipeline_template": "outside"}]', 400),
    "a text": (b'"outside"', 400),
    "single quotes": (b"{'pipeline_template': 'outside'}", 400),
    "a comment": (b'{"pipeline_template": "outside" /* x */}', 400),
    "a trailing comma": (b'{"pipeline_template": "outside",}', 400),
    "an unknown field": (b'{"pipeline_template": "outside", "__proto__": {}}', 400),
    "wrong types": (b'{"pipeline_template": 7}', 400),
    "a number as text": (b'{"pipeline_template": "outside", "execution_priority": "5"}', 400),
    "a truth as number": (b'{"pipeline_template": "outside", "execution_priority": true}', 400),
    "a fraction": (b'{"pipeline_template": "outside", "execution_priority": 5.5}', 400),
    "too large": (b'{"pipeline_template": "outside", "partition": "' + b"x" * 1_048_576 + b'"}',
                  413),
}  # fmt: skip

NAMES = (
    "'; DROP TABLE runs; --", "%_", "a%", "_", "\u202egnp.exe", "a\u200bb", "x" * 10_000,
    "__proto__", "../../etc/passwd", "<script>alert(1)</script>", "{{7*7}}", "${7*7}",
    "=cmd|'/C calc'!A0", "<!channel>", "a\nb", "a\tb", "\x7f", "﷽", "ＡＣＭＥ", "🦄", "", " ",
    ".", "..", "acme ", " acme", "ACME", "acme\x00", "null", "undefined", "0", "-1", "1e9",
    "CON", "a/b", "a\\b", "a;b", "a?b", "a#b", "a%00b", "\ufeffacme", "e\u0301", "\ufffd",
)  # fmt: skip

QUERIES = (
    "limit=0", "limit=-1", "limit=1001", "limit=99999999999999999999", "limit=1.5", "limit=",
    "limit=abc", "limit=1&limit=2", "offset=-1", "offset=9001", "offset=9000", "offset=1e3",
    "cursor=", "cursor=x", "cursor=AAAA", "cursor=" + "A" * 513, "cursor=%00", "cursor=%ff",
    "cursor=..%2f..", "sort=password", "order_by=1;drop", "fields=*", "state=running",
    "state=NOPE", "state=", "state=PENDING%00", "start_date=yesterday", "start_date=2025-13-01",
    "start_date=2025-02-30", "start_date=2025-01-01T00:00:00", "end_date=0000-00-00",
    "end_date=99999-01-01", "start_date=9999-12-31", "end_date=0001-01-01", "start_date=%00",
    "start_date=2025-11-17T25:00:00Z", "start_date=1763337600", "limit=%31", "limit=１",
    "limit[$gt]=1", "limit=1%20OR%201=1", "&", "=", "=1", "%", "%zz", "a" * 5000,
)  # fmt: skip

PATHS = (
    "/api/v1/../keys", "/api/v1/..%2fkeys", "/api/v1/%2e%2e/keys", "//api/v1/keys", "/api//v1/keys",
    "/api/v1/keys/", "/api/v1/keys//", "/API/V1/keys", "/api/v1/keys%00", "/api/v1/keys%2f",
    "/api/v1/keys;a=b", "/api/v1/keys.json", "/api/v2/keys", "/api/v1/pipeline-runs/%00",
    "/api/v1/pipeline-runs/" + "x" * 5000, "/api/v1/pipeline-runs/..", "/api/v1/customers//metrics",
    "/api/v1/customers/%2e%2e/metrics", "/api/v1/customers/acme%2fmetrics", "/docs", "/redoc",
    "/.env", "/api/v1/pipeline-runs/run_%ff%fe", "/api/v1/\\keys", "/openapi.json/", "/healthz/x",
    "/api%2fv1%2fkeys", "/api/v1%2Fkeys", "%2Fapi/v1/keys", "/api/v1/pipeline-runs%2f",
)  # fmt: skip

METHODS = ("HEAD", "OPTIONS", "TRACE", "PUT", "CONNECT", "PROPFIND", "SEARCH", "PURGE")


class Both(Pair):
    """A customer with every kind of resource, on both engines."""

    def __init__(self, sqlite: ServedApi, postgres: ServedApi) -> None:
        self.scene: Scene = scene(sqlite.harness, "acme")
        assert scene(postgres.harness, "acme") == self.scene
        super().__init__(sqlite, postgres)


@pytest.fixture(scope="module")
def both(serve: Serve) -> Iterator[Both]:
    """A customer with every kind of resource, on both engines."""
    with serve("sqlite") as sqlite, serve("postgres") as postgres:
        yield Both(sqlite, postgres)


@pytest.mark.postgres
class TestCorpora:
    """The tables of RELIABILITY 5d."""

    def test_json(self, both: Both) -> None:
        """Each document of the table is accepted or refused as listed."""
        for name, (body, expected) in JSON.items():
            reply = both.ask("POST", RUNS, body)
            assert reply.status == expected, (name, reply.body)

    @pytest.mark.parametrize(
        "kind", ["text/plain", "application/xml", "application/x-www-form-urlencoded",
                 "multipart/form-data; boundary=x", "application/json-patch+json", ""],
    )  # fmt: skip
    def test_media_types(self, both: Both, kind: str) -> None:
        """Any media type other than JSON gets 415."""
        reply = both.ask("POST", RUNS, b'{"pipeline_template": "outside"}', Content_Type=kind)
        assert reply.status == 415

    def test_names(self, both: Both) -> None:
        """Hostile names in every field are stored unchanged or refused with the field's name."""
        places: list[Callable[[str], tuple[str, Any]]] = [
            lambda name: (RUNS, {"pipeline_template": name}),
            lambda name: (RUNS, {"pipeline_template": "outside", "partition": name}),
            lambda name: (RUNS, {"pipeline_template": "outside", "ordering_key": name}),
            lambda name: (RUNS, {"pipeline_template": "outside", "correlation_id": name}),
            lambda name: (CLAIM, {"worker_id": name, "processors": ["outside"]}),
            lambda name: (CLAIM, {"worker_id": "w", "pool": name}),
            lambda name: (CONFIGS, {**NIGHTLY, "provider": name, "domain": name}),
            lambda name: (CONFIGS, {**NIGHTLY, "timezone": name}),
            lambda name: (CONFIGS, {**NIGHTLY, "reason": name}),
            lambda name: (CONFIGS, {"pipeline_template": "nightly", "event_topic": name}),
            lambda name: ("/keys", {"name": name, "role": "viewer"}),
            lambda name: ("/pauses", {"scope": "customer", "subject": name}),
            lambda name: ("/pauses", {"scope": "config", "subject": name}),
            lambda name: ("/pipeline-configs/bulk", [{**NIGHTLY, "customer_id": name}]),
        ]
        for place in places:
            for name in NAMES:
                path, body = place(name)
                both.ask("POST", path, body)

    def test_cursors_and_filters(self, both: Both) -> None:
        """Forged, huge, negative and unknown parameters of every list."""
        for path in (RUNS, CONFIGS, "/pipeline-configs", "/dead-letters", "/alerts", "/keys"):
            for query in QUERIES:
                both.ask("GET", f"{path}?{_encoded(query)}")

    def test_paths(self, both: Both) -> None:
        """Manipulated paths are not found, or equal the plain path."""
        for path in PATHS:
            for served in (both.sqlite, both.postgres):
                reply = raw(served, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert reply[0] in (400, 401, 404), (path, reply)

    @pytest.mark.parametrize(
        "line",
        ["GET /api/v1/keys", "GET /api%2fv1%2fkeys", "GET /api/v1%2Fkeys",
         "POST /api/v1/pipeline-runs/run_00000001%2fheartbeat"],
    )  # fmt: skip
    def test_encoded_slashes(self, both: Both, line: str) -> None:
        """A path with an encoded slash is another path than the one it decodes to."""
        for served in (both.sqlite, both.postgres):
            key = f"Authorization: Bearer {served.keys['admin']}"
            reply = raw(served, f"{line} HTTP/1.1\r\nHost: x\r\n{key}\r\nConnection: close\r\n\r\n")
            assert reply[0] == (404 if "%2f" in line.lower() else 200), reply

    def test_ids(self, both: Both) -> None:
        """Malformed ids are not found."""
        for name in NAMES:
            encoded = _encoded(name).replace("/", "%2f").replace("?", "%3f").replace("#", "%23")
            for path in ("/pipeline-runs/", "/pipeline-configs/", "/pipelines/"):
                assert both.ask("GET", path + (encoded or "x")).status in (400, 404), name

    def test_methods(self, both: Both) -> None:
        """Unsupported methods get 405 with the supported ones."""
        for method in METHODS[:-2]:
            if method == "CONNECT":
                continue
            reply = both.ask(method, "/keys")
            assert reply.status == 405, method
            assert reply.headers["allow"] == "GET, POST"
        reply = both.ask("POST", "/pauses", {}, X_HTTP_Method_Override="DELETE", X_Method="GET")
        assert reply.status == 400, "headers do not change the method"

    def test_state_abuse(self, both: Both) -> None:
        """Repeated, foreign and late changes get a 409 with the reason."""
        s = both.scene
        stale = {"fencing_token": 999_999}
        gone = f"/pipeline-runs/{s.runs['dead']}"
        table: list[tuple[str, Any, tuple[int, ...]]] = [
            (f"/pipeline-runs/{s.runs['running']}/heartbeat", stale, (409,)),
            (f"/pipeline-runs/{s.runs['running']}/complete", stale, (409,)),
            (f"/pipeline-runs/{s.runs['running']}/complete", {}, (409,)),
            (f"/pipeline-runs/{s.runs['running']}/complete", {"worker_id": "w-acme"}, (409,)),
            (f"/pipeline-runs/{s.runs['running']}/start", s.held("running"), (200,)),
            (f"/pipeline-runs/{s.runs['running']}/cancelled", s.held("running"), (409,)),
            (f"/pipeline-runs/{s.runs['claimed']}/complete", s.held("claimed"), (409,)),
            (f"/pipeline-runs/{s.runs['claimed']}/claim", {"worker_id": "w"}, (409,)),
            (f"/pipeline-runs/{s.runs['ready']}/start", {"worker_id": "w"}, (409,)),
            (f"/pipeline-runs/{s.runs['ready']}/retry", None, (409,)),
            (f"/pipeline-runs/{s.runs['later']}/claim", {"worker_id": "w"}, (409,)),
            (f"{gone}/cancel", {}, (409,)),
            (f"{gone}/claim", {"worker_id": "w"}, (409,)),
            (f"{gone}/start", {"worker_id": "w-acme"}, (409,)),
            (f"/dead-letters/{s.runs['ready']}/discard", {"reason": "x"}, (404,)),
            (f"/dead-letters/{s.runs['dead']}/discard", {"reason": ""}, (400,)),
            (f"/pipeline-runs/{s.runs['fails']}/fail", s.held("fails", error_type="X"), (200,)),
            (f"/pipeline-runs/{s.runs['fails']}/fail", s.held("fails", error_type="X"), (200,)),
            (f"/pipeline-runs/{s.runs['fails']}/complete", s.held("fails"), (409,)),
            (f"/pipeline-runs/{s.runs['stops']}/cancelled", s.held("stops"), (200,)),
            (f"/pipeline-runs/{s.runs['stops']}/complete", s.held("stops"), (409,)),
            (f"/pipeline-runs/{s.runs['stops']}/cancel", {}, (409,)),
            (CLAIM, {"worker_id": "w", "claim_duration_seconds": 9}, (400,)),
            (CLAIM, {"worker_id": "w", "claim_duration_seconds": -1}, (400,)),
            (CLAIM, {"worker_id": "w", "claim_duration_seconds": 3601}, (400,)),
            (CLAIM, {"worker_id": "w", "max_claims": 0}, (400,)),
            (CLAIM, {"worker_id": "w", "wait_seconds": 61}, (400,)),
            (RUNS, {"pipeline_template": "outside", "scheduled_time": "1969-01-01T00:00:00Z"},
             (400,)),
            (RUNS, {"pipeline_template": "outside", "scheduled_time": "9999-01-01T00:00:00Z"},
             (400,)),
            (RUNS, {"pipeline_template": "outside", "scheduled_time": "2025-11-17"}, (201,)),
            ("/pipeline-runs/heartbeat", {"heartbeats": []}, (400,)),
            ("/pipeline-runs/heartbeat", {"heartbeats": [{"run_id": "no"}] * 2}, (200,)),
            ("/pipeline-runs/complete", {"completions": [{"run_id": "x"}] * 1001}, (400,)),
        ]  # fmt: skip
        for path, body, expected in table:
            reply = both.ask("POST", path, body)
            assert reply.status in expected, (path, body, reply.body)


@pytest.mark.postgres
def test_fast_path_refuses_alike(both: Both) -> None:
    """The worker fast path and the regular routes refuse the same input alike."""
    wrong: list[Any] = [
        {}, {"fencing_token": 1}, {"fencing_token": -1}, {"fencing_token": "1"},
        {"fencing_token": 2**62}, {"worker_id": "x" * 256}, {"worker_id": 7}, {"status": "NO"},
        {"result_summary": []}, {"error_type": ""}, {"error_type": "X"}, {"stages": {"a": -1}},
        {"progress_percentage": 101}, {"estimated_completion_time": "soon"},
        {"error_type": "X", "retry_after_seconds": -1}, {"execution_context": {"zone": "z"}},
        {"records_processed": 2**63 - 1}, {"stages": {"a": 1e300}}, [], 7, None, "x",
    ]  # fmt: skip
    bodies = [body for body, _ in JSON.values() if len(body) < 16_384]
    bodies += [json.dumps(body).encode() for body in wrong]
    runs = ("no-run", both.scene.runs["dead"])
    for verb in ("start", "heartbeat", "complete", "fail"):
        for run in runs:
            path = f"/pipeline-runs/{run}/{verb}"
            for number, body in enumerate(bodies):
                quick = both.ask("POST", path, body)
                slow = both.ask("POST", path, body, Idempotency_Key=f"{verb}{run}{number}")
                assert verdict(quick) == verdict(slow), (path, body)
                assert quick.status >= 400, (path, body)


class TestWire:
    """Requests that are malformed at the HTTP level."""

    def auth(self, served: ServedApi) -> str:
        """Return request headers with a key."""
        return f"Host: x\r\nAuthorization: Bearer {served.keys['admin']}\r\n"

    def test_lengths(self, shared: ServedApi) -> None:
        """Wrong, repeated or contradictory lengths are refused, and nothing is smuggled in."""
        head = f"POST /api/v1/pauses/resume HTTP/1.1\r\n{self.auth(shared)}"
        head += "Content-Type: application/json\r\n"
        body = '{"scope":"all"}'
        before = shared.harness.counts()
        for lengths in (
            "Content-Length: -1\r\n", "Content-Length: x\r\n", "Content-Length: 1e3\r\n",
            "Content-Length: 15\r\nContent-Length: 16\r\n", "Content-Length: 15, 15\r\n",
            "Content-Length: 9999999999999999999999\r\n", "Content-Length: +15\r\n",
            "Content-Length: 15\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked, identity\r\n", "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding : chunked\r\n", "Content-Encoding: gzip\r\nContent-Length: 15\r\n",
            "Content-Encoding: br\r\nContent-Length: 15\r\n",
        ):  # fmt: skip
            status, _ = raw(shared, f"{head}{lengths}\r\n{body}")
            assert status in (400, 413, 415, 501), lengths
        assert shared.harness.counts() == before

    def test_gzip_bomb(self, shared: ServedApi) -> None:
        """A compressed body is refused without reading it."""
        reply = shared.by("admin").post(RUNS, b"\x1f\x8b" + b"\0" * 1000, Content_Encoding="gzip")
        assert (reply.status, reply.json["code"]) == (415, "request.media_type")

    def test_smuggling(self, shared: ServedApi) -> None:
        """A second request inside a body is part of the body; trailers are not headers."""
        inner = "GET /api/v1/keys HTTP/1.1\r\nHost: x\r\n\r\n"
        head = f"POST /api/v1/schedules/preview HTTP/1.1\r\n{self.auth(shared)}"
        head += f"Content-Type: application/json\r\nContent-Length: {len(inner)}\r\n"
        assert raw(shared, f"{head}Connection: close\r\n\r\n{inner}")[0] == 400
        chunked = (
            "POST /api/v1/scheduler/trigger HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            f"2\r\n{{}}\r\n0\r\nAuthorization: Bearer {shared.keys['admin']}\r\n\r\n"
        )
        assert raw(shared, chunked)[0] == 401

    def test_long_heads(self, shared: ServedApi) -> None:
        """Headers over 64 KB are refused: one header, many headers, or the path."""
        long = "x" * (HEAD_MAX + 1)
        many = "".join(f"X-{n}: {'y' * 100}\r\n" for n in range(HEAD_MAX // 100))
        for head in (
            f"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: {long}\r\n\r\n",
            f"GET /healthz HTTP/1.1\r\nHost: x\r\n{many}\r\n",
            f"GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n",
            f"GET /healthz HTTP/1.1\r\nX-Endless: {long}{long}{long}",
        ):
            status, _ = raw(shared, head)
            assert status in (0, 400, 414, 431), head[:40]
        fine = f"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: {'x' * 60_000}\r\nConnection: close"
        assert raw(shared, f"{fine}\r\n\r\n")[0] == 200

    def test_not_http(self, shared: ServedApi) -> None:
        """Other protocols and HTTP versions are refused; the server continues."""
        for text in (
            "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "GET / HTTP/9.9\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET\r\n\r\n", "GET /healthz\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET /healthz HTTP/1.1\r\nBad Header: x\r\n\r\n",
            "GET /healthz HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n",
            "GET /h\u00e4lthz HTTP/1.1\r\nHost: x\r\n\r\n",
        ):  # fmt: skip
            status, _ = raw(shared, text)
            assert status in (0, 400, 404, 405), text
        upgrade = "GET /api/v1/keys HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
        assert raw(shared, f"{upgrade}Connection: Upgrade\r\n\r\n")[0] in (0, 400, 401, 426)
        assert shared.by(None).get("/healthz").status == 200

    def test_slow_body(self, shared: ServedApi, monkeypatch: pytest.MonkeyPatch) -> None:
        """A body that does not arrive in time ends the connection."""
        monkeypatch.setattr(middleware, "BODY_SECONDS", 0.2)
        head = f"POST {'/api/v1'}{RUNS} HTTP/1.1\r\n{self.auth(shared)}"
        head += "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        status, rest = raw(shared, head)
        assert status == 408
        assert b"request.timeout" in rest
        assert b"connection: close" in rest.lower()

    def test_large_body(self, shared: ServedApi) -> None:
        """A large body is refused by its length, or when its chunks exceed the bound."""
        head = f"POST /api/v1{RUNS} HTTP/1.1\r\n{self.auth(shared)}"
        head += "Content-Type: application/json\r\n"
        for length, is_closed in ((1_048_577, False), (1_000_000_000, True)):
            status, rest = raw(shared, f"{head}Content-Length: {length}\r\n\r\n{{")
            assert (status, b"connection: close" in rest.lower()) == (413, is_closed)
        chunk = "10000\r\n" + " " * 65_536 + "\r\n"
        status, _ = raw(shared, f"{head}Transfer-Encoding: chunked\r\n\r\n{chunk * 18}")
        assert status in (0, 413)

    def test_disconnect_within_body(self, shared: ServedApi) -> None:
        """A client that disconnects within its body changes nothing."""
        before = shared.harness.counts()
        head = f"POST /api/v1{RUNS} HTTP/1.1\r\n{self.auth(shared)}"
        head += "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
        with socket.create_connection(("127.0.0.1", shared.server.port), timeout=PATIENCE) as line:
            line.sendall(f'{head}{{"pipeline_template": "outside"'.encode())
        assert shared.by("admin").get("/pauses").status == 200
        assert shared.harness.counts() == before


def raw(served: ServedApi, text: str) -> tuple[int, bytes]:
    """Send bytes; return the status, 0 if the connection was closed, and the response."""
    with socket.create_connection(("127.0.0.1", served.server.port), timeout=PATIENCE) as line:
        try:
            line.sendall(text.encode("latin-1"))
            got = b""
            while not _is_whole(got) and (more := line.recv(65_536)):
                got += more
        except ConnectionError:
            return 0, b""
    if not got:
        return 0, b""
    status = int(got.split(b" ", 2)[1])
    assert status < 500 or status == 501, got
    return status, got


def _is_whole(got: bytes) -> bool:
    """Whether a response has arrived with its body, which may be sent after the head."""
    head, is_separated, body = got.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return bool(is_separated) and len(body) >= (int(length[1]) if length else 0)


def _encoded(text: str) -> str:
    """Encode a value for a URL, leaving reserved characters unchanged."""
    return "".join(
        c if " " < c < "\x7f" else "".join(f"%{b:02x}" for b in c.encode()) for c in text
    )
