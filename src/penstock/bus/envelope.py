"""Google's push envelope, read strictly: whatever arrives is a message or poison, never an error.

Pure. The wrapped form is the JSON body that Pub/Sub posts (camelCase names, snake_case accepted,
and refused where both are given and disagree); the unwrapped form is the data as the body, with
the rest in headers. Reasons of poison are short, name the field, and never quote what was sent.
Names that nobody knows are passed over, because Google adds some. Attributes that speak of dead
letters are data like any other: nothing is concluded from them.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.core.clock import Micros, iso, parse_iso
from penstock.core.errors import InvalidInput
from penstock.core.json_profile import parse

REASON_MAX: Final = 300
NAMES_MAX: Final = 2_000
ID_BYTES_MAX: Final = 255
ATTRIBUTES_MAX: Final = 100
KEY_BYTES_MAX: Final = 256
VALUE_BYTES_MAX: Final = 1_024
ATTEMPT_MAX: Final = 2**31 - 1
ADDED: Final = ("CloudPubSubDeadLetterSource", "penstock-", "googclient_")
"""Attributes that a broker adds on the way; they do not count towards the publisher's hundred."""
ADDED_MAX: Final = 32

HEADER: Final = "x-goog-pubsub-"
_NOT_ATTRIBUTES: Final = frozenset(
    {
        "accept", "accept-charset", "accept-encoding", "accept-language", "authorization",
        "cache-control", "connection", "content-encoding", "content-length", "cookie", "date",
        "expect", "forwarded", "from", "host", "keep-alive", "max-forwards", "origin",
        "pragma", "proxy-authorization", "referer", "te", "traceparent", "tracestate",
        "trailer", "transfer-encoding", "upgrade", "user-agent", "via",
    }
)  # fmt: skip
_NOT_ATTRIBUTE_STARTS: Final = ("x-forwarded-", "x-cloud-", "x-serverless-", "sec-", HEADER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """A message as an envelope carried it. `attempt` is there when a dead-letter policy is."""

    message_id: str
    data: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)
    ordering_key: str | None = None
    publish_time: Micros | None = None
    subscription: str | None = None
    attempt: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Poison:
    """A body that is no message. The ids are what could be read all the same, for the record."""

    reason: str
    field: str
    message_id: str | None = None
    subscription: str | None = None
    publish_time: Micros | None = None
    attempt: int | None = None


def decode(body: bytes, *, subscription: str | None = None) -> Pushed | Poison:
    """Read a wrapped body. `subscription` is the one expected: its name, or its full path."""
    try:
        envelope = parse(body, "envelope", names_max=NAMES_MAX)
    except InvalidInput as error:
        return _poison(error, {})
    if not isinstance(envelope, dict):
        # Pub/Sub never pushes several messages at once.
        return _poison(_wrong("envelope", "one object with `message`", envelope), {})
    try:
        return _pushed(envelope, subscription)
    except InvalidInput as error:
        return _poison(error, envelope)


def decode_unwrapped(
    body: bytes, headers: Mapping[str, str], *, subscription: str | None = None
) -> Pushed | Poison:
    """Read an unwrapped body with its headers (names in small letters), metadata written."""
    attempt = headers.get(f"{HEADER}delivery-attempt")
    envelope: dict[str, Any] = {
        "subscription": headers.get(f"{HEADER}subscription-name"),
        "deliveryAttempt": int(attempt) if attempt and _is_number(attempt) else attempt,
    }
    message: dict[str, Any] = {
        "messageId": headers.get(f"{HEADER}message-id"),
        "publishTime": headers.get(f"{HEADER}publish-time"),
        "orderingKey": headers.get(f"{HEADER}ordering-key"),
        "attributes": {name: text for name, text in headers.items() if _is_attribute(name)},
    }
    envelope = {name: value for name, value in envelope.items() if value is not None}
    envelope["message"] = {name: value for name, value in message.items() if value is not None}
    try:
        return _pushed(envelope, subscription, data=body)
    except InvalidInput as error:
        return _poison(error, envelope)


def encode(pushed: Pushed) -> bytes:
    """The wrapped body of a message, as Pub/Sub spells it, with both names of id and time."""
    message: dict[str, Any] = {"messageId": pushed.message_id, "message_id": pushed.message_id}
    if pushed.data:
        message["data"] = base64.b64encode(pushed.data).decode("ascii")
    if pushed.attributes:
        message["attributes"] = dict(pushed.attributes)
    if pushed.publish_time is not None:
        message["publishTime"] = message["publish_time"] = iso(pushed.publish_time)
    if pushed.ordering_key:
        message["orderingKey"] = pushed.ordering_key
    envelope: dict[str, Any] = {"message": message}
    if pushed.subscription is not None:
        envelope["subscription"] = pushed.subscription
    if pushed.attempt is not None:
        envelope["deliveryAttempt"] = pushed.attempt
    return json.dumps(envelope, ensure_ascii=False, separators=(",", ":")).encode()


def check_attributes(attributes: object, name: str = "message.attributes") -> dict[str, str]:
    """Attributes as Pub/Sub allows them: text to text, a hundred at most, of bounded lengths."""
    if not isinstance(attributes, dict):
        raise _wrong(name, "an object of texts", attributes)
    own = 0
    for key, value in attributes.items():
        if not isinstance(key, str) or not 1 <= len(key.encode()) <= KEY_BYTES_MAX:
            raise InvalidInput(name, f"names of 1 to {KEY_BYTES_MAX} bytes", "a longer or none")
        if not isinstance(value, str):
            raise _wrong(f"{name}.{key[:60]}", "a text", value)
        if len(value.encode()) > VALUE_BYTES_MAX:
            got = f"{len(value.encode())} bytes"
            raise InvalidInput(f"{name}.{key[:60]}", f"at most {VALUE_BYTES_MAX} bytes", got)
        own += not key.startswith(ADDED)
    if own > ATTRIBUTES_MAX or len(attributes) > ATTRIBUTES_MAX + ADDED_MAX:
        raise InvalidInput(name, f"at most {ATTRIBUTES_MAX} attributes", f"{len(attributes)}")
    return attributes


def _pushed(envelope: dict[str, Any], expected: str | None, *, data: bytes | None = None) -> Pushed:
    message = envelope.get("message")
    if not isinstance(message, dict):
        got = "nothing" if "message" not in envelope else _kind(message)
        raise InvalidInput("message", "an object", got)
    message_id = _text(message, "messageId", "message_id", ID_BYTES_MAX)
    if not message_id:
        raise InvalidInput("message.messageId", "the id of the message", "nothing")
    attributes = check_attributes(message.get("attributes", {}))
    data = _data(message) if data is None else data
    if not data and not attributes:
        raise InvalidInput("message.data", "data, or at least one attribute", "neither")
    subscription = _subscription(envelope, expected)
    return Pushed(
        message_id=message_id,
        data=data,
        attributes=attributes,
        ordering_key=_text(message, "orderingKey", "ordering_key", VALUE_BYTES_MAX) or None,
        publish_time=_time(message),
        subscription=subscription,
        attempt=_attempt(envelope),
    )


def _both(owner: dict[str, Any], camel: str, snake: str, place: str) -> Any:
    """The value under either name; None when there is neither."""
    if camel in owner and snake in owner and owner[camel] != owner[snake]:
        raise InvalidInput(f"{place}{camel}", f"the same as {snake}", "another value")
    return owner.get(camel, owner.get(snake))


def _text(message: dict[str, Any], camel: str, snake: str, bytes_max: int) -> str | None:
    value = _both(message, camel, snake, "message.")
    if value is None and camel not in message and snake not in message:
        return None
    if not isinstance(value, str):
        raise _wrong(f"message.{camel}", "a text", value)
    if len(value.encode()) > bytes_max:
        raise InvalidInput(f"message.{camel}", f"at most {bytes_max} bytes", "more")
    return value


def _data(message: dict[str, Any]) -> bytes:
    text = message.get("data", "")
    if not isinstance(text, str):
        raise _wrong("message.data", "base64 text", text)
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        got = "the URL-safe alphabet" if set(text) & {"-", "_"} else "something else"
        raise InvalidInput("message.data", "standard base64 with padding", got) from None
    if base64.b64encode(data) != text.encode():
        raise InvalidInput("message.data", "standard base64 with padding", "stray bits at the end")
    return data


def _time(message: dict[str, Any]) -> Micros | None:
    text = _text(message, "publishTime", "publish_time", 64)
    if text is None:
        return None
    try:
        return parse_iso(text, "message.publishTime")
    except InvalidInput:
        raise InvalidInput("message.publishTime", "an RFC 3339 time", "another text") from None


def _attempt(envelope: dict[str, Any]) -> int | None:
    value = _both(envelope, "deliveryAttempt", "delivery_attempt", "")
    if value is None and not {"deliveryAttempt", "delivery_attempt"} & envelope.keys():
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong("deliveryAttempt", "a whole number from 1", value)
    if not 1 <= value <= ATTEMPT_MAX:
        raise InvalidInput("deliveryAttempt", "a whole number from 1", "one out of range")
    return value


def _subscription(envelope: dict[str, Any], expected: str | None) -> str | None:
    if "subscription" not in envelope:
        return None
    value = envelope["subscription"]
    if not isinstance(value, str):
        raise _wrong("subscription", "a text", value)
    if not 1 <= len(value.encode()) <= VALUE_BYTES_MAX:
        raise InvalidInput("subscription", f"1 to {VALUE_BYTES_MAX} bytes", "more or none")
    named = value if expected is not None and "/" in expected else value.rpartition("/")[2]
    if expected is not None and named != expected:
        raise InvalidInput("subscription", f"{expected[:100]}", "another subscription")
    return value


def _poison(error: InvalidInput, envelope: dict[str, Any]) -> Poison:
    """What is known of a body that is no message; each part only where it is sound by itself."""
    found = envelope.get("message")
    message = found if isinstance(found, dict) else {}
    return Poison(
        reason=error.message[:REASON_MAX],
        field=error.field[:100],
        message_id=_tried(lambda: _text(message, "messageId", "message_id", ID_BYTES_MAX)) or None,
        subscription=_tried(lambda: _subscription(envelope, None)),
        publish_time=_tried(lambda: _time(message)),
        attempt=_tried(lambda: _attempt(envelope)),
    )


def _tried(read: Any) -> Any:
    try:
        return read()
    except InvalidInput:
        return None


def _wrong(place: str, expected: str, value: object) -> InvalidInput:
    return InvalidInput(place, expected, _kind(value))


def _kind(value: object) -> str:
    """What a JSON value is, in a word; never the value."""
    if value is None:
        return "null"
    names: dict[type, str] = {
        bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list",
        dict: "an object",
    }  # fmt: skip
    return names.get(type(value), "something else")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12


def _is_attribute(name: str) -> bool:
    return name not in _NOT_ATTRIBUTES and not name.startswith(_NOT_ATTRIBUTE_STARTS)
