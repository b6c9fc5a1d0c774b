"""Incoming pushes: authentication, storage and refusals, on each engine."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.assembly.push import build_push_auth, build_pusher, signing_keys
from penstock.audit.telemetry import Events, PushAccepted, PushPosted
from penstock.bus.message import NewMessage, SubscriptionSpec, TopicSpec
from penstock.bus.push.push_config import OidcToken, PushConfig
from penstock.bus.store.messages import message_publish
from penstock.bus.store.topics import (
    SubscriptionOptions,
    subscription_declare,
    topic_declare,
    topic_find,
)
from penstock.core.clock import SystemClock
from penstock.egress.oidc import SigningKey
from penstock.egress.tokens import new_signing_key
from penstock.server.push_auth import PushAuth
from tests.bus.incoming.inlet import (
    AUDIENCE,
    FULL,
    NAME,
    Inlet,
    envelope,
    google,
    issuer_keys,
    token,
)
from tests.conftest import ENGINES
from tests.kits.egress import Receiver, ScriptedResponse
from tests.kits.push import serialize_push
from tests.kits.served import Serve
from tests.server.kit import ServedApi


@pytest.fixture(scope="module")
def keys() -> Iterator[Receiver]:
    """Serve the issuer's keys."""
    with issuer_keys() as made:
        yield made


@pytest.fixture(scope="module", params=ENGINES)
def opened(request: pytest.FixtureRequest, serve: Serve, keys: Receiver) -> Iterator[Inlet]:
    with serve(request.param) as served:
        made = Inlet(served, keys)
        for topic in ("orders", "orders.dlq"):
            made.reads(topic)
        yield made


@pytest.fixture
def inlet(opened: Inlet) -> Inlet:
    opened.install()
    opened.drained("orders")
    opened.drained("orders.dlq")
    return opened


class TestAccepted:
    """Accepted pushes are stored before the response."""

    def test_a_message_is_published_once(self, inlet: Inlet) -> None:
        """Payload and attributes are unchanged; the same message again is a duplicate."""
        before = len(inlet.keys.got)
        for _ in range(3):
            assert inlet.push(envelope("m1", b"\x00\xff")).status == 204
        (got,) = inlet.drained("orders")
        assert (got.data, dict(got.attributes)) == (b"\x00\xff", {"kind": "order"})
        outcomes = [e.outcome for e in inlet.served.received if isinstance(e, PushAccepted)]
        assert outcomes == ["published", "duplicate", "duplicate"]
        assert len(inlet.keys.got) == before + 1, "keys are fetched once"

    def test_the_same_message_from_many_at_once(self, inlet: Inlet) -> None:
        bearer = token()
        replies: list[int] = []
        threads = [
            threading.Thread(
                target=lambda: replies.append(inlet.push(envelope("race"), bearer).status)
            )
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert set(replies) <= {204, 503}
        assert 204 in replies
        assert len(inlet.drained("orders")) == 1

    def test_topics_are_created(self, inlet: Inlet) -> None:
        """The topic in the settings is created if it does not exist."""
        assert inlet.push(envelope("m1") | {"subscription": "other"}, name="other").status == 204
        assert inlet.store.read(lambda tx: topic_find(tx, "others")) is not None

    def test_keys_are_kept_while_their_server_is_away(self, inlet: Inlet) -> None:
        assert inlet.push(envelope("k1")).status == 204
        respond, inlet.keys.respond = inlet.keys.respond, lambda _: ScriptedResponse(500)
        try:
            assert inlet.push(envelope("k2")).status == 204
        finally:
            inlet.keys.respond = respond


class TestRefused:
    """Refusals store nothing and hide the reason from the sender; events contain it."""

    def test_tokens(self, inlet: Inlet) -> None:
        admin = inlet.served.keys["admin"]
        stranger = SigningKey(key_id=google().key_id, pem=new_signing_key().pem)
        cases = [
            (401, "three parts", admin), (401, "three parts", "x"),
            (401, "signature", token(stranger)), (401, "kid", token(new_signing_key())),
            (401, "iss", token(iss="https://evil.example.com")), (401, "exp", token(exp=1, iat=0)),
            (403, "aud", token(aud=AUDIENCE + "/")), (403, "aud", token(aud=[AUDIENCE])),
            (403, "email", token(email="other@evil.iam.gserviceaccount.com")),
            (403, "email_verified", token(email_verified="true")),
        ]  # fmt: skip
        for status, reason, bearer in cases:
            inlet.served.received.clear()
            reply = inlet.push(envelope("bad"), bearer)
            assert reply.status == status, (reason, reply.body)
            assert reply.json["code"] in ("auth.required", "auth.forbidden")
            assert reason not in reply.json["detail"]
            assert inlet.reasons[0].startswith(reason) or reason in inlet.reasons[0]
        assert inlet.drained("orders") == []

    def test_without_a_token_or_a_subscription(self, inlet: Inlet) -> None:
        """Unknown subscriptions are answered like bad tokens: their names stay unknown."""
        path = f"/pubsub/push/{NAME}"
        for headers in ({}, {"Authorization": "Basic x"}, {"Authorization": "Bearer"}):
            reply = inlet.by.call("POST", path, envelope("bad"), dict(headers))
            assert (reply.status, reply.headers["www-authenticate"][:6]) == (401, "Bearer")
        unknown = inlet.push(envelope("bad"), name="unknown")
        assert unknown.status == 401
        assert {**unknown.json, "request_id": 0} == {**reply.json, "request_id": 0}
        assert inlet.by.get(path).status == 405

    def test_a_flood_of_key_ids_asks_the_issuer_once(self, inlet: Inlet) -> None:
        before = len(inlet.keys.got)
        for n in range(30):
            forged = SigningKey(key_id=f"k{n}", pem=google().pem)
            assert inlet.push(envelope("bad"), token(forged)).status == 401
        assert len(inlet.keys.got) == before + 1

    def test_unavailable_keys(self, inlet: Inlet) -> None:
        """Without the issuer's keys no token can be verified, so the sender is asked to retry."""
        respond, inlet.keys.respond = inlet.keys.respond, lambda _: ScriptedResponse(500)
        try:
            reply = inlet.push(envelope("later"))
            assert (reply.status, reply.headers["retry-after"]) == (503, "10")
        finally:
            inlet.keys.respond = respond

    def test_the_body_is_not_read_before_the_token(self, inlet: Inlet) -> None:
        """A request of 15 MB is refused before its body is sent; 20 MB are always refused."""
        for size, bearer, status in ((15_000_000, "x", b"401"), (20_000_000, token(), b"413")):
            head = (
                f"POST /pubsub/push/{NAME} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n"
                f"Authorization: Bearer {bearer}\r\n\r\n"
            )
            with socket.create_connection(("127.0.0.1", inlet.served.server.port), 20) as line:
                line.sendall(head.encode())
                assert line.recv(65_536).split(b" ")[1] == status

    def test_large_messages(self, inlet: Inlet) -> None:
        """Ten megabytes of data, as Pub/Sub allows, fit through."""
        assert inlet.push(envelope("large", b"x" * 10_000_000)).status == 204
        (got,) = inlet.drained("orders")
        assert len(got.data) == 10_000_000


POISON: tuple[Any, ...] = (
    b"", b"{", b"[]", b"null", b"7", b'"x"', b"\xff\xfe{}", b"\xef\xbb\xbf{}", b"{} x",
    {}, {"message": None, "subscription": FULL}, {"message": [], "subscription": FULL},
    {"message": {"data": "aGk="}, "subscription": FULL},
    {"message": {"messageId": "1", "data": "%%%"}, "subscription": FULL},
    {"message": {"messageId": "1", "data": None}, "subscription": FULL},
    {"message": {"messageId": "1", "message_id": "2", "data": "aGk="}, "subscription": FULL},
    {"message": {"messageId": 1, "data": "aGk="}, "subscription": FULL},
    {"message": {"messageId": "1", "data": "aGk=", "attributes": {"a": 1}}, "subscription": FULL},
    {"message": {"messageId": "1", "data": "aGk="}},
    {"message": {"messageId": "1", "data": "aGk="}, "subscription": "projects/p/subscriptions/zz"},
    [envelope("1"), envelope("2")], b'{"message":{},"message":{}}', b"[" * 100_000,
    b'{"a":NaN}', b'{"a":1e999}', b'{"a":' + b"9" * 5000 + b"}", b'{"a":"\\u0000"}',
)  # fmt: skip


class TestPoison:
    """Envelopes that are not valid messages."""

    def test_without_a_policy_it_is_kept_and_accepted(self, inlet: Inlet) -> None:
        """It is accepted to end its redelivery; payload and reason are stored once."""
        raw = [body if isinstance(body, bytes) else json.dumps(body).encode() for body in POISON]
        for body in raw * 2:
            reply = inlet.push(body)
            assert reply.status == 204, (body[:80], reply.body)
        kept = inlet.drained("orders.dlq")
        assert sorted(one.data for one in kept) == sorted(raw)
        assert all(one.attributes["penstock-error-kind"] == "poison" for one in kept)
        assert inlet.drained("orders") == []
        listed = inlet.by.__class__(
            "127.0.0.1", inlet.served.server.port, inlet.served.keys["admin"]
        )
        shown = listed.ok("GET", "/dead-letters?limit=200")
        assert sum("POISON_ENVELOPE" in json.dumps(one) for one in shown["items"]) >= len(raw)

    def test_with_a_policy_it_is_refused(self, inlet: Inlet) -> None:
        """It is refused, so the sender's dead-letter topic receives it; nothing is stored."""
        inlet.install(dead_letters=True)
        for body in POISON:
            reply = inlet.push(body)
            assert reply.status == 400, (body, reply.body)
            assert reply.json["errors"][0]["field"]
        inlet.install()
        broken = {**envelope("1"), "deliveryAttempt": 3}
        broken["message"] = {**broken["message"], "data": "%"}
        assert inlet.push(broken).status == 400, "only a sender with a policy counts attempts"
        assert inlet.drained("orders.dlq") == inlet.drained("orders") == []

    def test_another_message_under_the_same_id(self, inlet: Inlet) -> None:
        """A different message with the same id is poison."""
        assert inlet.push(envelope("twice", b"one")).status == 204
        assert inlet.push(envelope("twice", b"two")).status == 204
        assert [one.data for one in inlet.drained("orders")] == [b"one"]
        assert len(inlet.drained("orders.dlq")) == 1


class TestBothEnds:
    """Penstock pushes to Penstock: what one signs the other verifies with the keys it publishes."""

    def test_there_and_back(self, inlet: Inlet) -> None:
        home = f"http://127.0.0.1:{inlet.served.server.port}"
        endpoint = f"{home}/pubsub/push/{NAME}"
        settings = inlet.settings(
            issuer=home,
            keys_url=f"{home}/.well-known/jwks.json",
            audience=endpoint,
            email="push@penstock.example.com",
            subscription="mirror",
        )
        inlet.served.api.asgi.state.receiving = build_push_auth(inlet.store, settings)
        spec = PushConfig(endpoint=endpoint, oidc=OidcToken(email="push@penstock.example.com"))

        def declare(tx: Any) -> None:
            topic_declare(tx, TopicSpec(name="far"))
            extras = SubscriptionOptions(kind="push", push=serialize_push(spec))
            subscription_declare(tx, SubscriptionSpec(name="mirror", topic="far"), extras=extras)
            message_publish(tx, "far", [NewMessage(data=b"sent", attributes={"n": "1"})])

        inlet.store.write(declare)
        events, received = Events(), list[Any]()
        events.subscribe(received.append)
        pusher = build_pusher(
            inlet.store, settings, events, jitter=lambda: 0.0, clock=inlet.served.harness.clock
        )
        # Tokens use the test clock, which is in 2025; so does the verifier.
        now = SystemClock().now() - inlet.served.harness.clock.now()
        inlet.served.harness.clock.advance(now)
        assert pusher.run_once().started == 1
        posted = [event for event in received if isinstance(event, PushPosted)]
        assert [(event.outcome, event.status) for event in posted] == [("ack", 204)], received
        (got,) = inlet.drained("orders")
        assert (got.data, dict(got.attributes)) == (b"sent", {"n": "1"})

    def test_rotation(self, inlet: Inlet) -> None:
        """The new key and the one before are published; a third rotation drops the oldest."""
        keys = signing_keys(inlet.store, inlet.settings())
        first = keys.current()
        assert signing_keys(inlet.store, inlet.settings()).current() == first, (
            "one key for all processes"
        )
        second = keys.rotate("tester")
        published = inlet.by.ok("GET", "/.well-known/jwks.json")["keys"]
        assert [key["kid"] for key in published] == [second.key_id, first.key_id]
        assert all(set(key) == {"kty", "n", "e", "kid", "use", "alg"} for key in published)
        third = keys.rotate("tester")
        assert keys.current() == third
        assert [key.key_id for key in keys.published()] == [third.key_id, second.key_id]
        found = inlet.by.ok("GET", "/.well-known/openid-configuration")
        home = f"http://127.0.0.1:{inlet.served.server.port}"
        assert (found["issuer"], found["jwks_uri"]) == (home, f"{home}/.well-known/jwks.json")


def test_endpoints_are_checked_when_declared(inlet: Inlet) -> None:
    """The API refuses endpoints that the egress settings forbid."""
    asked = {"name": "hook", "topic": "quiet", "kind": "push"}
    inside, outside = "http://10.0.0.1/x", "https://hooks.example.com/x"
    by = inlet.served.by("operator")
    by.ok("POST", "/topics", {"name": "quiet"})
    assert by.ok("POST", "/subscriptions", {**asked, "push": {"push_endpoint": inside}})
    inlet.served.api.asgi.state.receiving = PushAuth()
    for endpoint in (inside, "https://169.254.169.254/", "https://u:p@example.com/", 7):
        reply = by.post("/subscriptions", {**asked, "push": {"push_endpoint": endpoint}})
        assert (reply.status, reply.json["errors"][0]["field"]) == (400, "push.push_endpoint")
    for push in (None, {}, {"push_endpoint": outside, "signing_secrets": ["whsec_literal"]}):
        reply = by.post("/subscriptions", {**asked, "push": push})
        assert reply.status == 400
        assert b"whsec_literal" not in reply.body
    made = by.ok("POST", "/subscriptions", {**asked, "push": {"push_endpoint": outside}})
    assert made["push"] == {"push_endpoint": outside}


def test_refused_without_settings(served: ServedApi) -> None:
    """Without `incoming_push` every push is refused, and no tokens are issued."""
    reply = served.by(None).call(
        "POST", f"/pubsub/push/{NAME}", envelope("1"), {"Authorization": f"Bearer {token()}"}
    )
    assert reply.status == 401
    assert served.by(None).ok("GET", "/.well-known/jwks.json") == {"keys": []}
