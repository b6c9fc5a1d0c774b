"""Parsers of what peers send: requests, messages, tokens, responses, rows of a warehouse."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.requests import Request

from penstock.access import api_keys, run_credentials
from penstock.bus import ack_id, envelope
from penstock.bus.binding import parse_message_object
from penstock.bus.push import webhook
from penstock.bus.push.push_config import retry_after
from penstock.bus.schemas import avro
from penstock.bus.transports.nats import naming
from penstock.bus.transports.nats.headers import read_headers
from penstock.bus.transports.pubsub import tickets
from penstock.consumer.failure import Reject
from penstock.consumer.message import Message, read_kind, read_payload
from penstock.core import cursor, ids
from penstock.core.clock import SECOND
from penstock.core.errors import ApiError, InvalidInput, NotFound
from penstock.core.json_profile import parse_json
from penstock.core.naming import SubscriptionKey
from penstock.core.tracing.trace_context import parse_traceparent
from penstock.egress import keyset, oidc
from penstock.egress.http_client import HttpResponse
from penstock.egress.policy import check_address
from penstock.entities.report import split_result
from penstock.pipelines.declare.needs import same_day
from penstock.probes.protocol import ProbeFailed, ProbeRequest, QueryResults
from penstock.probes.question import ProbeQueries, read_observation
from penstock.probes.timestamps import parse_timestamp
from penstock.pubsub_wire.names import parse_name, parse_project
from penstock.remote.client import RemoteClient
from penstock.remote.problems import error_of
from penstock.runs.external import api_fastpath
from penstock.server.routing.endpoint import read_json
from penstock.web.live.stream import parse_position
from penstock.web.live.topics import parse_topics
from penstock.web.login.oidc import PendingLogin
from penstock.web.login.sign_in import read_form
from penstock.web.pages.data import bytes_text
from penstock.web.security import previewed
from penstock.worker.endpoints.reply import reply_of
from tests.prove.parsers.parser import KEY, NOW, Parser, mapping, texts

QUESTION: Final = {"list": "runs", "customer": "acme"}
GRANT: Final = run_credentials.RunGrant(
    run_id=1, token=2, customer_id="acme", expires_at=NOW + SECOND
)
AVRO: Final = json.dumps(
    {"type": "record", "name": "Game", "fields": [
        {"name": "id", "type": "string"}, {"name": "points", "type": ["null", "int"]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}}]}
)  # fmt: skip
ENVELOPE: Final = (
    b'{"message":{"data":"e30=","messageId":"17","attributes":{"a":"b"},'
    b'"publishTime":"2025-11-17T02:00:00Z","orderingKey":"k"},"subscription":"projects/p/'
    b'subscriptions/s","deliveryAttempt":3}'
)
JWT: Final = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.eyJpc3MiOiJhIiwiYXVkIjoiYiJ9.c2ln"
JWKS: Final = b'{"keys":[{"kid":"a","kty":"RSA","alg":"RS256","use":"sig","n":"AQAB","e":"AQAB"}]}'
NEED: Final = same_day(
    "raw.box", partition="day", max_age="1d", expect="SELECT 3", checks={"pairs": "SELECT 1"}
)
PENDING: Final = PendingLogin(state="s", nonce="n", verifier="v", wanted="/", until=1_763_337_600)


def _payload(data: bytes) -> object:
    message = Message(id="1", data=data)
    read_payload(message, is_object=False)
    read_kind(message)
    return message


def _posted(
    read: Callable[[Request], Awaitable[object]], content_type: bytes
) -> Callable[[bytes], object]:
    """Give a function of a request a body that has arrived."""

    def call(body: bytes) -> object:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def received() -> object:
            headers = [(b"content-type", content_type)]
            return await read(Request({"type": "http", "headers": headers}, receive))

        return asyncio.run(received())

    return call


def _worker_request(verb: str) -> Callable[[bytes], object]:
    headers = {b"content-type": b"application/json"}
    return lambda body: api_fastpath._read(api_fastpath.OPERATIONS[verb], headers, body)


def _responded(status: int) -> Callable[[bytes], object]:
    """Give the body of an endpoint's response, and its beginning as a header."""

    def call(body: bytes) -> object:
        headers = {"retry-after": body[:20].decode("latin-1")}
        response = HttpResponse(status=status, headers=headers, body=body)
        return reply_of(response, NOW, has_callback=False)

    return call


class _Served:
    """A connection of the API's client to a server that responds with one body."""

    url = "http://127.0.0.1"

    def __init__(self, body: bytes) -> None:
        self._body = body

    def send(self, *_: Any, **__: Any) -> bytes:
        """Return the body."""
        return self._body


def _read_by_client(body: bytes) -> object:
    served: Any = _Served(body)
    return RemoteClient(served).runs.list(customer="acme")


def _observed(cells: Mapping[str, Any]) -> object:
    """Give the rows of a gate's queries: the last two are written by users."""
    expected = cells.get("expected")
    rows = (
        [tuple(row) if isinstance(row, list) else (row,) for row in expected]
        if isinstance(expected, list)
        else []
    )
    newest = cells.get("newest")
    fetched = QueryResults(
        results=[
            [(3, None if newest is None else str(newest), None)],
            rows,
            [(cells.get("fault"),)],
        ]
    )
    asked = ProbeQueries(dependency=NEED, statements=())
    request = ProbeRequest(dependencies=[NEED], partition="2025-11-17")
    return read_observation(asked, fetched, request=request, probed_at=NOW, took_us=1)


WIRE: Final[dict[str, Parser]] = {
    "time of a warehouse": Parser(
        lambda t: parse_timestamp(t, "loaded_at"),
        "text",
        ("2025-11-17", "1763337600", "1763337600.5"),
        (ProbeFailed,),
    ),
    "public id": Parser(
        lambda v: ids.decode("run", v), "value", (ids.encode("run", 7), ids.encode("run", 1 << 50))
    ),
    "page cursor": Parser(
        lambda v: cursor.verify_cursor(KEY, QUESTION, v),
        "value",
        (cursor.sign_cursor(KEY, QUESTION, [1, "a"]),),
    ),
    "ack id": Parser(ack_id.decode, "value", (ack_id.encode(SubscriptionKey(1), 2, 3),)),
    "ack id of NATS": Parser(
        lambda v: naming.decode_ack_id(v, "ack_id"),
        "value",
        (naming.encode_ack_id(naming.Ticket("s", "r.1")),),
    ),
    "ack id of Pub/Sub": Parser(
        lambda v: tickets.decode(v, "ack_id"),
        "value",
        (tickets.encode(tickets.PubsubTicket("s", "17", "raw")),),
    ),
    "API key": Parser(
        api_keys.parse, "value", (api_keys.format_key(5, "s" * api_keys.SECRET_CHARS),), ()
    ),
    "credential of a run": Parser(
        lambda t: run_credentials.verify(KEY, t, NOW),
        "text",
        (run_credentials.issue(KEY, GRANT),),
        (),
    ),
    "JSON": Parser(parse_json, "bytes", (b'{"a":[1,2.5,null,"x"]}', b"[]", b'"\\ud83d\\ude00"')),
    "message body": Parser(parse_message_object, "bytes", (b'{"a":1}', b"")),
    "push envelope": Parser(envelope.decode, "bytes", (ENVELOPE,), ()),
    "unwrapped push": Parser(
        texts(lambda headers: envelope.decode_unwrapped(b"{}", headers)),
        "value",
        ({"x-goog-pubsub-message-id": "1", "x-goog-pubsub-delivery-attempt": "3", "a": "b"},),
        (),
    ),
    "webhook signature": Parser(
        texts(lambda headers: webhook.verify([KEY], headers, b"{}", NOW)),
        "value",
        ({"webhook-id": "1", "webhook-timestamp": "1763337600", "webhook-signature": "v1,abc"},),
        (),
    ),
    "Retry-After": Parser(
        lambda t: retry_after(t, NOW), "text", ("120", "Mon, 17 Nov 2025 02:00:00 GMT"), ()
    ),
    "Cache-Control": Parser(keyset.fresh_seconds, "text", ("public, max-age=3600",), ()),
    "NATS headers": Parser(
        texts(read_headers),
        "value",
        ({"Penstock-Ordering-Key": "ImEi", "a": "b"},),
        (ValueError, InvalidInput),
    ),
    "trace context": Parser(
        parse_traceparent, "text", ("00-" + "a" * 32 + "-" + "b" * 16 + "-01",), ()
    ),
    "token header": Parser(oidc.read_header, "value", (JWT,), (oidc.InvalidToken,)),
    "token claims": Parser(
        oidc.read_claims,
        "bytes",
        (b'{"iss":"a","aud":"b","exp":1763337600}',),
        (oidc.InvalidToken,),
    ),
    "key set": Parser(keyset.read_keys, "bytes", (JWKS,)),
    "Avro message": Parser(
        lambda b: avro.check_message(avro.parse(AVRO), b, "binary"),
        "bytes",
        (b"\x02a\x02\x06\x02\x02x\x00\x00",),
        (avro.AvroMismatch,),
    ),
    "Avro message in JSON": Parser(
        lambda b: avro.check_message(avro.parse(AVRO), b, "json"),
        "bytes",
        (b'{"id":"a","points":{"int":3},"tags":["x"],"kind":"A"}',),
        (avro.AvroMismatch,),
    ),
    "Pub/Sub name": Parser(
        lambda t: parse_name(t, "topics", "topic"), "text", ("projects/p/topics/t",)
    ),
    "Pub/Sub project": Parser(parse_project, "text", ("projects/p",)),
    "IP address": Parser(
        check_address, "text", ("93.184.216.34", "2606:2800:220:1::1", "::ffff:1.2.3.4")
    ),
    "result with entities": Parser(
        split_result,
        "text",
        ('{"entities_changed":{"players":[1,2]}}', '{"everything_changed":true}'),
    ),
    "token of a preview": Parser(
        lambda t: previewed(KEY, "session", "cancel", {}, t), "text", ("1763337600.3.abc",), ()
    ),
    "position of a live page": Parser(parse_position, "text", ("1.5.7", "0.0.-1"), ()),
    "topics of a live page": Parser(parse_topics, "text", ("runs,flows", "run:run_7h2kq0v3")),
    "payload of a consumer": Parser(
        _payload, "bytes", (b'{"type":"a","schemaVersion":2,"deep":[{"a":1}]}', b"[1]"), (Reject,)
    ),
    "body of a request": Parser(
        _posted(read_json, b"application/json; charset=utf-8"),
        "bytes",
        (b'{"pipeline_template":"nba"}', b""),
    ),
    "posted form": Parser(
        _posted(read_form, b"application/x-www-form-urlencoded"),
        "bytes",
        (b"key=a%20b&next=/",),
        (),
    ),
    "start by a worker": Parser(_worker_request("start"), "bytes", (b'{"worker_id":"w"}', b"")),
    "failure by a worker": Parser(
        _worker_request("fail"),
        "bytes",
        (b'{"worker_id":"w","fencing_token":1,"error_type":"TIMEOUT","error_details":{"a":1}}',),
    ),
    "result of an endpoint": Parser(
        _responded(200), "bytes", (b'{"result":{"a":1}}', b'{"error_type":"TIMEOUT"}', b""), ()
    ),
    "refusal of an endpoint": Parser(
        _responded(503), "bytes", (b'{"error_type":"TIMEOUT","retry_after_seconds":5}',), ()
    ),
    "problem of the API": Parser(
        lambda b: error_of(409, b, "the API"),
        "bytes",
        (b'{"code":"conflict","detail":"d","errors":[{"field":"a"}],"about":{"from":"b"}}',),
        (),
    ),
    "response of the API": Parser(
        _read_by_client, "bytes", (b'{"items":[],"next_cursor":"a","more":[[1]]}',), (ApiError,)
    ),
    "content of a message on a page": Parser(bytes_text, "bytes", (b'{"a":[1]}', b"text"), ()),
    "cookie of a login": Parser(
        lambda t: PendingLogin.decode(KEY, t), "text", (PENDING.encode(KEY),), ()
    ),
    "rows of a probe": Parser(
        mapping(_observed),
        "value",
        ({"newest": "2025-11-17T02:00:00Z", "expected": [[3]], "fault": 0},),
        (ProbeFailed,),
    ),
    "public id in a path": Parser(
        lambda t: ids.decode_or_not_found("run", "run", t),
        "text",
        (ids.encode("run", 7),),
        (NotFound,),
    ),
    "public id in a search": Parser(
        lambda v: ids.decode_or_none("run", v), "value", (ids.encode("run", 7),), ()
    ),
}
