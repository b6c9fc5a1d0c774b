"""Push envelopes: every body yields a message or a poison with a short reason, never an error."""

import base64
import json
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.bus.envelope import (
    ATTRIBUTES_MAX,
    REASON_MAX,
    Poison,
    PushedMessage,
    check_attributes,
    decode,
    decode_unwrapped,
    encode,
)

DATA = base64.b64encode(b'{"a":1}').decode()
OMIT = object()


def body(*, envelope: dict[str, Any] | None = None, **message: Any) -> bytes:
    """Return a valid envelope with some parts replaced."""
    parts = {"data": DATA, "messageId": "7", "attributes": {"k": "v"}} | message
    present = {name: value for name, value in parts.items() if value is not OMIT}
    whole = {"message": present, "subscription": "projects/p/subscriptions/s"} | (envelope or {})
    return json.dumps({n: v for n, v in whole.items() if v is not OMIT}).encode()


VALID = {
    "camel": (body(), b'{"a":1}'),
    "snake": (body(messageId=OMIT, message_id="7"), b'{"a":1}'),
    "both agree": (body(message_id="7", publishTime="2025-11-17T00:00:00Z"), b'{"a":1}'),
    "no data": (body(data=OMIT), b""),
    "empty data": (body(data=""), b""),
    "not utf-8": (body(data=base64.b64encode(b"\xff\xfe").decode()), b"\xff\xfe"),
    "no attributes": (body(attributes=OMIT), b'{"a":1}'),
    "no subscription": (body(envelope={"subscription": OMIT}), b'{"a":1}'),
    "unknown names": (body(envelope={"news": [1]}, more={}), b'{"a":1}'),
    "nanoseconds": (body(publishTime="2025-11-17T00:00:00.123456789Z"), b'{"a":1}'),
    "dead letter": (
        body(attributes={"CloudPubSubDeadLetterSourceDeliveryCount": "5"}, data=OMIT),
        b"",
    ),
    "a hundred attributes": (body(attributes={f"k{n}": "v" for n in range(100)}), b'{"a":1}'),
    "a hundred and broker attributes": (
        body(attributes={f"k{n}": "v" for n in range(100)} | {"penstock-error": "x"}),
        b'{"a":1}',
    ),
    "attempt": (body(envelope={"deliveryAttempt": 5}), b'{"a":1}'),
    "no brackets confuse": (body(attributes={"k": "[{" * 500}), b'{"a":1}'),
}
INVALID: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "envelope"),
    "text": (b"hello", "envelope"),
    "batch": (b"[" + body() + b"]", "envelope"),
    "a number": (b"7", "envelope"),
    "no message": (b"{}", "message"),
    "message null": (b'{"message":null}', "message"),
    "message list": (b'{"message":[]}', "message"),
    "no id": (body(messageId=OMIT), "message.messageId"),
    "empty id": (body(messageId=""), "message.messageId"),
    "id null": (body(messageId=None), "message.messageId"),
    "id a number": (body(messageId=2**53 + 1), "message.messageId"),
    "id too long": (body(messageId="7" * 256), "message.messageId"),
    "ids disagree": (body(message_id="8"), "message.messageId"),
    "times disagree": (
        body(publishTime="2025-11-17T00:00:00Z", publish_time="2025-11-18T00:00:00Z"),
        "message.publishTime",
    ),
    "time": (body(publishTime="yesterday"), "message.publishTime"),
    "time without zone": (body(publishTime="2025-11-17T00:00:00"), "message.publishTime"),
    "data null": (body(data=None), "message.data"),
    "data a number": (body(data=7), "message.data"),
    "bad base64": (body(data="!!!"), "message.data"),
    "no padding": (body(data="YQ"), "message.data"),
    "url-safe": (body(data="_-8="), "message.data"),
    "line breaks": (body(data="YWJj\nYWJj"), "message.data"),
    "non-zero padding bits": (body(data="YR=="), "message.data"),
    "not ascii": (body(data="ÿÿÿÿ"), "message.data"),
    "neither data nor attributes": (body(data="", attributes={}), "message.data"),
    "attributes null": (body(attributes=None), "message.attributes"),
    "attributes list": (body(attributes=["k"]), "message.attributes"),
    "attribute a number": (body(attributes={"k": 1}), "message.attributes.k"),
    "attribute null": (body(attributes={"k": None}), "message.attributes.k"),
    "attribute nested": (body(attributes={"k": {}}), "message.attributes.k"),
    "101 attributes": (body(attributes={f"k{n}": "v" for n in range(101)}), "message.attributes"),
    "added": (body(attributes={f"penstock-{n}": "v" for n in range(200)}), "message.attributes"),
    "name of 257 bytes": (body(attributes={"k" * 257: "v"}), "message.attributes"),
    "no name": (body(attributes={"": "v"}), "message.attributes"),
    "value of 1025 bytes": (body(attributes={"k": "é" * 513}), "message.attributes.k"),
    "attempt 0": (body(envelope={"deliveryAttempt": 0}), "deliveryAttempt"),
    "attempt -1": (body(envelope={"deliveryAttempt": -1}), "deliveryAttempt"),
    "attempt text": (body(envelope={"deliveryAttempt": "5"}), "deliveryAttempt"),
    "attempt null": (body(envelope={"deliveryAttempt": None}), "deliveryAttempt"),
    "attempt true": (body(envelope={"deliveryAttempt": True}), "deliveryAttempt"),
    "attempt 1.5": (body(envelope={"deliveryAttempt": 1.5}), "deliveryAttempt"),
    "attempts disagree": (
        body(envelope={"deliveryAttempt": 1, "delivery_attempt": 2}),
        "deliveryAttempt",
    ),
    "attempt huge": (body(envelope={"deliveryAttempt": 2**31}), "deliveryAttempt"),
    "subscription a number": (body(envelope={"subscription": 7}), "subscription"),
    "subscription empty": (body(envelope={"subscription": ""}), "subscription"),
    "other subscription": (body(envelope={"subscription": "projects/p/x/t"}), "subscription"),
    "names twice": (b'{"message":{"messageId":"7","messageId":"8","data":"YQ=="}}', "envelope"),
    "names equal after NFC": ('{"é":1,"e\u0301":2,"message":{}}'.encode(), "envelope"),
    "bom": (b"\xef\xbb\xbf" + body(), "envelope"),
    "utf-16": (body().decode().encode("utf-16"), "envelope"),
    "utf-16 without bom": (body().decode().encode("utf-16-le"), "envelope"),
    "trailing garbage": (body() + b"x", "envelope"),
    "two documents": (body() + body(), "envelope"),
    "not utf-8": (b"\xff" + body(), "envelope"),
    "NaN": (b'{"message":NaN}', "envelope"),
    "infinity": (b'{"message":{"data":1e999}}', "envelope"),
    "5000 digits": (b'{"deliveryAttempt":' + b"9" * 5_000 + b"}", "envelope"),
    "minus zero": (
        body(envelope={"deliveryAttempt": 0}).replace(b": 0}", b": -0}"), "deliveryAttempt",
    ),
    "nul": (body(attributes={"k": "\x00"}), "envelope.message.attributes.k"),
    "lone surrogate": (body(attributes={"k": "\ud800"}), "envelope.message.attributes.k"),
    "deep": (b'{"message":' * 100_000, "envelope"),
    "deep lists": (b"[" * 100_000, "envelope"),
    "million names": (b"{" + b",".join(b'"%d":0' % n for n in range(1_000_000)) + b"}", "envelope"),
    "ten megabytes": (b'{"message":{"data":"' + b"!" * 10_000_000 + b'"}}', "message.messageId"),
    "ten megabytes of lists": (b"[" + b"[]," * 3_300_000 + b"1]", "envelope"),
    "unterminated string": (b'{"a":"' + b'\\"' * 2_000_000, "envelope"),
}  # fmt: skip


class TestCorpus:
    """A corpus of valid and invalid bodies."""

    @pytest.mark.parametrize("name", VALID)
    def test_valid(self, name: str) -> None:
        """All spellings that Google and others use are accepted."""
        given_body, data = VALID[name]
        decoded = decode(given_body, subscription="s")
        assert isinstance(decoded, PushedMessage), decoded
        assert (decoded.message_id, decoded.data) == ("7", data)

    @pytest.mark.parametrize("name", INVALID)
    def test_invalid(self, name: str) -> None:
        """The poison names the field, and its reason is short."""
        given_body, field = INVALID[name]
        decoded = decode(given_body, subscription="s")
        assert isinstance(decoded, Poison)
        assert decoded.field == field
        assert 0 < len(decoded.reason) <= REASON_MAX

    def test_all_fields_are_decoded(self) -> None:
        """Every field of the envelope is in the message."""
        whole = body(
            envelope={"deliveryAttempt": 3}, orderingKey="o", publishTime="2025-11-17T00:00:00.5Z"
        )
        assert decode(whole) == PushedMessage(
            message_id="7",
            data=b'{"a":1}',
            attributes={"k": "v"},
            ordering_key="o",
            publish_time=1_763_337_600_500_000,
            subscription="projects/p/subscriptions/s",
            attempt=3,
        )

    def test_poison_keeps_readable_fields(self) -> None:
        """A poison keeps the ids that could be read."""
        decoded = decode(body(envelope={"deliveryAttempt": 4}, data="!"))
        assert isinstance(decoded, Poison)
        assert (decoded.message_id, decoded.attempt) == ("7", 4)
        assert decoded.subscription == "projects/p/subscriptions/s"

    @pytest.mark.parametrize(
        ("expected", "is_accepted"),
        [(None, True), ("s", True), ("projects/p/subscriptions/s", True), ("t", False),
         ("projects/q/subscriptions/s", False), ("S", False), ("", False)],
    )  # fmt: skip
    def test_subscriptions(self, expected: str | None, is_accepted: bool) -> None:
        """The expected subscription is a name or a full path."""
        assert isinstance(decode(body(), subscription=expected), PushedMessage) is is_accepted

    def test_reasons_quote_no_values(self) -> None:
        """The reason never quotes the input."""
        for whole in (body(data="hunter2!"), body(messageId=None, attributes={"k": ["hunter2!"]})):
            decoded = decode(whole)
            assert isinstance(decoded, Poison)
            assert "hunter2" not in decoded.reason


class TestUnwrapped:
    """The body is the data, and headers carry the rest."""

    HEADERS: ClassVar = {
        "x-goog-pubsub-message-id": "7",
        "x-goog-pubsub-subscription-name": "projects/p/subscriptions/s",
        "x-goog-pubsub-publish-time": "2025-11-17T00:00:00Z",
        "x-goog-pubsub-ordering-key": "o",
        "x-goog-pubsub-delivery-attempt": "2",
        "event_type": "beat",
        "content-type": "application/json",
        "authorization": "Bearer x",
        "x-forwarded-for": "10.0.0.1",
        "host": "h",
    }

    def test_decode(self) -> None:
        """Metadata and attributes are decoded; standard HTTP headers are not attributes."""
        assert decode_unwrapped(b"\xff", self.HEADERS, subscription="s") == PushedMessage(
            message_id="7",
            data=b"\xff",
            attributes={"event_type": "beat", "content-type": "application/json"},
            ordering_key="o",
            publish_time=1_763_337_600_000_000,
            subscription="projects/p/subscriptions/s",
            attempt=2,
        )

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"x-goog-pubsub-message-id": None}, "message.messageId"),
            ({"x-goog-pubsub-delivery-attempt": "0"}, "deliveryAttempt"),
            ({"x-goog-pubsub-delivery-attempt": "-1"}, "deliveryAttempt"),
            ({"x-goog-pubsub-delivery-attempt": "٣"}, "deliveryAttempt"),
            ({"x-goog-pubsub-publish-time": "no"}, "message.publishTime"),
            ({"x-goog-pubsub-subscription-name": "t"}, "subscription"),
            ({"k": "v" * 1025}, "message.attributes.k"),
        ],
    )
    def test_invalid(self, change: dict[str, str | None], field: str) -> None:
        """The same rules apply to headers."""
        changed = {n: v for n, v in {**self.HEADERS, **change}.items() if v is not None}
        decoded = decode_unwrapped(b"x", changed, subscription="s")
        assert isinstance(decoded, Poison)
        assert decoded.field == field


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=9,
)
NAMES = st.sampled_from(
    [
        "message", "messageId", "message_id", "data", "attributes", "orderingKey", "publishTime",
        "publish_time", "subscription", "deliveryAttempt", "delivery_attempt",
    ]
)  # fmt: skip


class TestProperties:
    """Properties of all bodies."""

    @settings(deadline=None)
    @given(st.binary(max_size=300) | st.builds(lambda v: json.dumps(v).encode(), JSON))
    def test_any_bytes(self, given_body: bytes) -> None:
        """Arbitrary bytes are poison."""
        decoded = decode(given_body)
        assert isinstance(decoded, Poison)
        assert len(decoded.reason) <= REASON_MAX

    @settings(max_examples=60, deadline=None)
    @given(st.dictionaries(NAMES, JSON, max_size=4), st.dictionaries(NAMES, JSON, max_size=6))
    def test_any_parts(self, envelope: dict[str, Any], message: dict[str, Any]) -> None:
        """An envelope with arbitrary values yields a message or a poison, deterministically."""
        whole = json.dumps({**envelope, "message": message}).encode()
        decoded = decode(whole)
        assert isinstance(decoded, PushedMessage | Poison)
        assert decode(whole) == decoded

    @settings(max_examples=40, deadline=None)
    @given(
        st.builds(
            PushedMessage,
            message_id=TEXTS.filter(bool),
            data=st.binary(min_size=1, max_size=50),
            attributes=st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=3).filter(
                lambda made: isinstance(decode(body(attributes=made)), PushedMessage)
            ),
            ordering_key=TEXTS.filter(bool) | st.none(),
            publish_time=st.integers(0, 4_102_444_800_000_000) | st.none(),
            subscription=TEXTS.filter(bool) | st.none(),
            attempt=st.integers(1, 100) | st.none(),
        )
    )
    def test_round_trip(self, pushed: PushedMessage) -> None:
        """Decoding reverses encoding."""
        assert decode(encode(pushed)) == pushed


def test_the_limit_of_attributes_is_googles() -> None:
    """A publisher may set up to a hundred attributes."""
    assert len(check_attributes({f"k{n}": "" for n in range(ATTRIBUTES_MAX)})) == 100
