"""Rules of push: configuration, requests, verdicts, signatures and adaptive concurrency."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bus.envelope import PushedMessage, decode, decode_unwrapped
from penstock.bus.incoming.inbound_push import parse_incoming
from penstock.bus.message import Delivery
from penstock.bus.push import webhook
from penstock.bus.push.adaptive_concurrency import (
    PAUSE_MAX_US,
    ConcurrencyWindow,
    additional_requests,
    failed,
    succeeded,
)
from penstock.bus.push.push_config import (
    OidcToken,
    PushConfig,
    PushVerdict,
    build_request,
    parse_push,
    parse_stored_push,
    retry_after,
    slows_endpoint,
    verdict_of,
)
from penstock.core.clock import MINUTE, SECOND, iso
from penstock.core.errors import InvalidInput, SettingsError
from penstock.egress.oidc import GOOGLE_KEYS
from penstock.egress.policy import EgressRules
from tests.kits.push import push_to_json, serialize_push

NOW = 1_763_337_600_000_000
URL = "https://hooks.example.com/in"


def delivery(**changed: Any) -> Delivery:
    given: dict[str, Any] = {
        "ack_id": "a", "message_id": "m1", "subscription": "s", "topic": "t", "data": b"\x00\xff{}",
        "attributes": {"kind": "order"}, "ordering_key": "k", "publish_time": NOW, "attempt": 3,
        "deadline": NOW, **changed,
    }  # fmt: skip
    return Delivery(**given)


class TestSpec:
    """Validation of push configurations."""

    def test_round_trip(self) -> None:
        given = {
            "push_endpoint": URL,
            "oidc_token": {"service_account_email": "p@x.example.com", "audience": "us"},
            "signing_secrets": [{"$secret": "hook_new"}, {"$secret": "hook_old"}],
            "no_wrapper": {"write_metadata": True},
        }
        spec = parse_push(given)
        assert spec == PushConfig(
            endpoint=URL,
            oidc=OidcToken(email="p@x.example.com", audience="us"),
            signing_secrets=("hook_new", "hook_old"),
            is_wrapped=False,
            writes_metadata=True,
        )
        assert parse_stored_push(serialize_push(spec)) == spec
        assert push_to_json(spec) == given
        assert spec.audience == "us"
        assert parse_push({"push_endpoint": URL}).audience == URL

    @pytest.mark.parametrize(
        ("field", "wrong"),
        [
            ("push", "x"), ("push", {"endpoint": URL}), ("push_endpoint", {}),
            ("push_endpoint", {"push_endpoint": "http://example.com"}),
            ("push_endpoint", {"push_endpoint": "https://10.0.0.1/"}),
            ("oidc_token", {"oidc_token": {}}), ("oidc_token", {"oidc_token": "x"}),
            ("oidc_token", {"oidc_token": {"service_account_email": "a@b", "key": 1}}),
            ("email", {"oidc_token": {"service_account_email": "a b@c"}}),
            ("audience", {"oidc_token": {"service_account_email": "a@b.c", "audience": "x\n"}}),
            ("signing_secrets", {"signing_secrets": "whsec_abc"}),
            ("signing_secrets", {"signing_secrets": ["whsec_abc"]}),
            ("signing_secrets", {"signing_secrets": [{"$secret": "a"}] * 5}),
            ("signing_secrets", {"signing_secrets": [{"$secret": "A b"}]}),
            ("no_wrapper", {"no_wrapper": True}),
            ("write_metadata", {"no_wrapper": {"write_metadata": 1}}),
        ],
    )  # fmt: skip
    def test_wrong(self, field: str, wrong: Any) -> None:
        """The error names the field and never quotes a literal secret."""
        given = wrong
        if isinstance(wrong, dict) and field not in ("push", "push_endpoint"):
            given = {"push_endpoint": URL, **wrong}
        with pytest.raises(InvalidInput) as refused:
            parse_push(given)
        assert field in refused.value.field
        assert "whsec_" not in refused.value.message


class TestRequest:
    """Requests and verdicts."""

    def test_wrapped(self) -> None:
        """Wrapped requests use Google's envelope with both spellings of its names."""
        spec = PushConfig(endpoint=URL)
        made = build_request(
            spec, delivery(), subscription="projects/p/subscriptions/s", has_policy=True
        )
        message = json.loads(made.body)["message"]
        assert message["messageId"] == message["message_id"] == "m1"
        assert message["publishTime"] == message["publish_time"] == iso(NOW)
        assert base64.b64decode(message["data"]) == b"\x00\xff{}"
        assert json.loads(made.body)["deliveryAttempt"] == 3
        read = decode(made.body, subscription="s")
        assert isinstance(read, PushedMessage)
        assert (read.data, read.attributes, read.ordering_key) == (
            b"\x00\xff{}",
            {"kind": "order"},
            "k",
        )
        without = build_request(spec, delivery(), subscription="s", has_policy=False)
        assert "deliveryAttempt" not in json.loads(without.body)

    def test_ids_of_the_cause(self) -> None:
        """Correlation and causation id are headers, too, unless they are not valid as headers."""
        given = {"correlation_id": "c-1", "causation_id": "run_7h2kq0v3"}
        sent = replace(delivery(), attributes=given)
        for spec in (
            PushConfig(endpoint=URL),
            PushConfig(endpoint=URL, is_wrapped=False, writes_metadata=True),
        ):
            made = build_request(spec, sent, subscription="s", has_policy=True)
            assert made.headers["ce-correlationid"] == "c-1"
            assert made.headers["ce-causationid"] == "run_7h2kq0v3"
        odd = replace(delivery(), attributes={"correlation_id": "a b\r\nHost: evil"})
        made = build_request(PushConfig(endpoint=URL), odd, subscription="s", has_policy=True)
        assert set(made.headers) == {"Content-Type", "User-Agent"}

    def test_unwrapped(self) -> None:
        """Unwrapped requests have the data only, or also the metadata as headers."""
        spec = PushConfig(endpoint=URL, is_wrapped=False)
        made = build_request(spec, delivery(), subscription="s", has_policy=True)
        assert made.body == b"\x00\xff{}"
        assert set(made.headers) == {"Content-Type", "User-Agent"}
        full = PushConfig(endpoint=URL, is_wrapped=False, writes_metadata=True)
        made = build_request(full, delivery(), subscription="s", has_policy=True)
        small = {name.lower(): value for name, value in made.headers.items()}
        read = decode_unwrapped(made.body, small, subscription="s")
        assert isinstance(read, PushedMessage)
        assert (read.message_id, read.attempt, read.ordering_key) == ("m1", 3, "k")
        assert read.attributes["kind"] == "order"

    def test_attributes_with_reserved_header_names(self) -> None:
        """They are omitted and counted."""
        bad = {
            "Host": "evil", "authorization": "x", "Transfer-Encoding": "chunked", "a\r\nb": "c",
            "x-goog-pubsub-message-id": "forged", "webhook-id": "forged", "two": "a\r\nHost: evil",
            "ü": "x", "umlaut": "ü", "": "x", "Content-Length": "0", "connection": "upgrade",
            "good": "yes", "Good": "no", "content-type": "text/csv",
        }  # fmt: skip
        spec = PushConfig(endpoint=URL, is_wrapped=False, writes_metadata=True)
        given = delivery(attributes=bad, ordering_key="a\nb")
        made = build_request(spec, given, subscription="s", has_policy=False)
        assert made.headers["good"] == "yes"
        assert made.headers["Content-Type"] == "text/csv"
        assert made.headers["x-goog-pubsub-message-id"] == "m1"
        assert made.headers["penstock-omitted-attributes"] == "13"
        assert not {"Host", "authorization", "webhook-id", "two", "Good"} & set(made.headers)
        assert all("\n" not in value for value in made.headers.values())

    @pytest.mark.parametrize(
        ("status", "verdict"),
        [(s, PushVerdict.ACK) for s in (102, 200, 201, 202, 204)]
        + [
            (s, PushVerdict.NACK)
            for s in (100, 101, 203, 205, 206, 301, 302, 304, 400, 401, 403, 404)
        ]
        + [(s, PushVerdict.NACK) for s in (408, 422, 429, 500, 502, 503, 504)]
        + [(410, PushVerdict.GONE)],
    )
    def test_verdicts(self, status: int, verdict: PushVerdict) -> None:
        assert verdict_of(status) is verdict

    def test_only_an_endpoint_in_trouble_is_slowed(self) -> None:
        """Overload, server errors, timeouts and silence; no status that judges the message."""
        statuses = [None, *range(100, 600)]
        assert [s for s in statuses if slows_endpoint(s)] == [None, 408, 429, *range(500, 600)]

    @pytest.mark.parametrize(
        ("header", "wanted"),
        [
            (None, None), ("", None), ("soon", None), ("-5", None), ("1.5", None), ("0", 0),
            ("7", 7 * SECOND), ("99999999999999999999", 10 * MINUTE), ("86400", 10 * MINUTE),
            ("Mon, 17 Nov 2025 00:00:30 GMT", 30 * SECOND), ("x" * 100, None),
            ("Mon, 17 Nov 2025 00:00:30", 30 * SECOND), ("Mon, 17 Nov 2014 00:00:30 GMT", 0),
            ("Mon, 99 Nov 2025 00:00:30 GMT", None),
        ],
    )  # fmt: skip
    def test_retry_after(self, header: str | None, wanted: int | None) -> None:
        assert retry_after(header, NOW) == wanted


class TestSignatures:
    """Standard Webhooks."""

    SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

    def test_the_example_of_the_specification(self) -> None:
        body = b'{"test": 2432232314}'
        made = webhook.sign(
            [webhook.parse_secret(self.SECRET)],
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            body,
            1614265330 * SECOND,
        )
        assert made["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        assert made["webhook-timestamp"] == "1614265330"

    def test_rotation(self) -> None:
        """Requests are signed with both secrets, and a receiver accepts either."""
        old, new = (
            webhook.parse_secret(webhook.PREFIX + base64.b64encode(c * 32).decode())
            for c in (b"a", b"b")
        )
        made = webhook.sign([new, old], "m1", b"x", NOW)
        for keys in ([old], [new], [old, new]):
            assert webhook.verify(keys, made, b"x", NOW + 299 * SECOND) == "m1"

    def test_invalid_signatures(self) -> None:
        key = webhook.parse_secret(self.SECRET)
        made = webhook.sign([key], "m1", b"x", NOW)
        mark = made["webhook-signature"]
        wrong: list[tuple[dict[str, str], bytes, int]] = [
            (made, b"y", NOW), (made, b"x", NOW + 301 * SECOND), (made, b"x", NOW - 301 * SECOND),
            ({**made, "webhook-id": "m2"}, b"x", NOW),
            ({**made, "webhook-timestamp": "x"}, b"x", NOW),
            ({**made, "webhook-signature": mark.replace("v1,", "v2,")}, b"x", NOW),
            ({**made, "webhook-signature": ""}, b"x", NOW), ({}, b"x", NOW),
            ({**made, "webhook-timestamp": "١" * 3}, b"x", NOW),
            ({**made, "webhook-signature": " ".join(["v1,x"] * 16 + [mark])}, b"x", NOW),
        ]  # fmt: skip
        for headers, body, now in wrong:
            assert webhook.verify([key], headers, body, now) is None
        assert webhook.verify([], made, b"x", NOW) is None

    @pytest.mark.parametrize(
        "secret", ["x", "whsec_", "whsec_%%", "whsec_YQ==", None, "whsec_" + "A" * 400]
    )
    def test_secrets(self, secret: object) -> None:
        with pytest.raises(InvalidInput) as refused:
            webhook.parse_secret(secret)
        assert "whsec_A" not in str(refused.value)


class TestWindow:
    """Slow start, additive increase, multiplicative decrease, and fair sharing."""

    @given(st.lists(st.booleans(), max_size=400), st.integers(1, 50))
    def test_within_bounds(self, successes: list[bool], most: int) -> None:
        """For any responses the size is between one and the maximum; a success never lowers it."""
        window = ConcurrencyWindow(size_max=most)
        for is_good in successes:
            after = succeeded(window) if is_good else failed(window)
            assert 1 <= after.max_in_flight <= most
            assert (after.size >= window.size) if is_good else (after.size <= window.size)
            assert 0 <= after.pause_us <= PAUSE_MAX_US
            assert after.pause_us == 0 or not is_good
            window = after

    def test_slow_start_doubles_each_epoch_then_adds_one(self) -> None:
        window = ConcurrencyWindow()
        sizes = []
        for _ in range(4):
            for _ in range(window.max_in_flight):
                window = succeeded(window)
            sizes.append(window.max_in_flight)
        assert sizes == [2, 4, 8, 16]
        window = failed(window)
        assert (window.max_in_flight, window.threshold) == (8, 8.0)
        for _ in range(9):
            window = succeeded(window)
        assert window.max_in_flight == 9

    def test_an_epoch_is_halved_once(self) -> None:
        """Sixteen requests that fail together halve the window once."""
        window = ConcurrencyWindow(size=16.0)
        for _ in range(16):
            window = failed(window)
        assert window.max_in_flight == 8
        window = failed(window)
        assert window.max_in_flight == 4

    def test_an_endpoint_that_is_down_gets_one_request_a_minute(self) -> None:
        window = ConcurrencyWindow(size=100.0)
        waits = []
        for _ in range(400):
            window = failed(window)
            waits.append(window.pause_us)
        assert waits[:2] == [0, 0]
        assert waits == sorted(waits)
        assert (window.max_in_flight, waits[-1]) == (1, PAUSE_MAX_US)
        assert succeeded(window).pause_us == 0

    @given(st.integers(2, 64), st.data())
    def test_slow_endpoints_do_not_exclude_others(self, most: int, data: st.DataObject) -> None:
        """Even if some endpoints never respond, every other one can start its first request."""
        count = data.draw(st.integers(1, most))
        order = data.draw(st.lists(st.integers(0, count - 1), max_size=100))
        held = [0] * count
        for endpoint in order:
            free = most - sum(held)
            idle = sum(1 for i, n in enumerate(held) if n == 0 and i != endpoint)
            took = additional_requests(
                ConcurrencyWindow(size=1000.0), held=held[endpoint], free=free, idle=idle
            )
            assert 0 <= took <= free
            assert took >= 1 or held[endpoint] >= 1
            held[endpoint] += took

    def test_requests_in_flight_follow_the_window(self) -> None:
        assert additional_requests(ConcurrencyWindow(size=3.9), held=1, free=100) == 2
        assert additional_requests(ConcurrencyWindow(size=3.9), held=5, free=100) == 0
        assert additional_requests(ConcurrencyWindow(size=100.0), held=0, free=16) == 8
        assert additional_requests(ConcurrencyWindow(), held=0, free=0) == 0


class TestIncoming:
    """The table of inbound push subscriptions."""

    ROW: Final = {
        "topic": "orders",
        "audience": "https://us.example.com",
        "email": "a@b.example.com",
    }

    def test_defaults(self) -> None:
        (one,) = parse_incoming({"orders-sub": self.ROW}).values()
        assert (one.subscription, one.keys_url) == ("orders-sub", GOOGLE_KEYS)
        assert one.expected.audience == "https://us.example.com"
        other = parse_incoming({"x": {**self.ROW, "issuer": "https://p.example.com/"}})["x"]
        assert other.keys_url == "https://p.example.com/.well-known/jwks.json"

    @pytest.mark.parametrize(
        ("field", "table"),
        [
            ("incoming_push", []), ("incoming_push.x", {"x": 7}),
            ("incoming_push.a/b", {"a/b": ROW}), ("topic", {"x": {**ROW, "topic": ""}}),
            ("topic", {"x": {**ROW, "topic": "a b"}}),
            ("audience", {"x": {**ROW, "audience": 7}}), ("incoming_push.x", {"x": {"aud": "x"}}),
            ("email", {"x": {"topic": "a", "audience": "b"}}),
            ("dead_letters", {"x": {**ROW, "dead_letters": "yes"}}),
        ],
    )  # fmt: skip
    def test_wrong(self, field: str, table: Any) -> None:
        with pytest.raises(SettingsError) as refused:
            parse_incoming(table)
        assert field in refused.value.field

    def test_the_keys_url_must_satisfy_the_egress_rules(self) -> None:
        row = {**self.ROW, "issuer": "http://localhost:8080"}
        with pytest.raises(InvalidInput, match="keys_url"):
            parse_incoming({"x": row})
        assert parse_incoming({"x": row}, EgressRules(allow_http=True, allow_private=True))
