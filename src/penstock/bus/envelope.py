"""Google's push envelope, parsed strictly: any body yields a message or a `Poison`, never an error.

Pure. The wrapped form is the JSON body that Pub/Sub posts (camelCase names; snake_case is accepted,
and conflicting values under both names are rejected). The unwrapped form has the data as the body
and everything else in headers. The reason in a `Poison` is short, names the field and never quotes
the input. Unknown names are ignored, because Google may add some. Dead-letter attributes are
ordinary data: nothing is inferred from them.
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
from penstock.core.json_profile import parse_json

REASON_MAX: Final = 300
NAMES_MAX: Final = 2_000
ID_BYTES_MAX: Final = 255
ATTRIBUTES_MAX: Final = 100
KEY_BYTES_MAX: Final = 256
VALUE_BYTES_MAX: Final = 1_024
ATTEMPT_MAX: Final = 2**31 - 1
BROKER_ATTRIBUTE_PREFIXES: Final = ("CloudPubSubDeadLetterSource", "penstock-", "googclient_")
"""Prefixes of attributes that brokers add; these do not count towards ATTRIBUTES_MAX."""
BROKER_ATTRIBUTES_MAX: Final = 32

HEADER_PREFIX: Final = "x-goog-pubsub-"
_NOT_ATTRIBUTES: Final = frozenset(
    {
        "accept", "accept-charset", "accept-encoding", "accept-language", "authorization",
        "cache-control", "connection", "content-encoding", "content-length", "cookie", "date",
        "expect", "forwarded", "from", "host", "keep-alive", "max-forwards", "origin",
        "pragma", "proxy-authorization", "referer", "te", "traceparent", "tracestate",
        "trailer", "transfer-encoding", "upgrade", "user-agent", "via",
    }
)  # fmt: skip
_NOT_ATTRIBUTE_STARTS: Final = ("x-forwarded-", "x-cloud-", "x-serverless-", "sec-", HEADER_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedMessage:
    """A message from a push envelope; `attempt` is set only under a dead-letter policy."""

    message_id: str
    data: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)
    ordering_key: str | None = None
    publish_time: Micros | None = None
    subscription: str | None = None
    attempt: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Poison:
    """A body that is not a valid message; the other fields are kept, if readable, for diagnosis."""

    reason: str
    field: str
    message_id: str | None = None
    subscription: str | None = None
    publish_time: Micros | None = None
    attempt: int | None = None
    is_misdirected: bool = False
    """Whether the message belongs to a subscription other than the expected one."""


class _OtherSubscription(InvalidInput):
    """The message belongs to another subscription."""


def decode(body: bytes, *, subscription: str | None = None) -> PushedMessage | Poison:
    """Parse a wrapped body. `subscription`: the expected subscription, by name or full path."""
    try:
        envelope = parse_json(body, "envelope", names_max=NAMES_MAX)
    except InvalidInput as error:
        return _poison(error, {})
    if not isinstance(envelope, dict):
        # Pub/Sub never pushes several messages in one request.
        return _poison(_type_error("envelope", "one object with `message`", envelope), {})
    try:
        return _pushed(envelope, subscription)
    except InvalidInput as error:
        return _poison(error, envelope)


def decode_unwrapped(
    body: bytes, headers: Mapping[str, str], *, subscription: str | None = None
) -> PushedMessage | Poison:
    """Parse an unwrapped body; `headers` have lower-case names and carry the metadata."""
    attempt = headers.get(f"{HEADER_PREFIX}delivery-attempt")
    envelope: dict[str, Any] = {
        "subscription": headers.get(f"{HEADER_PREFIX}subscription-name"),
        "deliveryAttempt": int(attempt) if attempt and _is_number(attempt) else attempt,
    }
    message: dict[str, Any] = {
        "messageId": headers.get(f"{HEADER_PREFIX}message-id"),
        "publishTime": headers.get(f"{HEADER_PREFIX}publish-time"),
        "orderingKey": headers.get(f"{HEADER_PREFIX}ordering-key"),
        "attributes": {name: text for name, text in headers.items() if _is_attribute(name)},
    }
    envelope = {name: value for name, value in envelope.items() if value is not None}
    envelope["message"] = {name: value for name, value in message.items() if value is not None}
    try:
        return _pushed(envelope, subscription, data=body)
    except InvalidInput as error:
        return _poison(error, envelope)


def encode(pushed: PushedMessage) -> bytes:
    """Return the wrapped body of a message; id and time appear under both names, as in Pub/Sub."""
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
    """Validate attributes by Pub/Sub's rules: text to text, at most 100, of bounded length."""
    if not isinstance(attributes, dict):
        raise _type_error(name, "an object with string values", attributes)
    own = 0
    for key, value in attributes.items():
        if not isinstance(key, str) or not 1 <= len(key.encode()) <= KEY_BYTES_MAX:
            raise InvalidInput(
                name, f"names of 1 to {KEY_BYTES_MAX} bytes", "an empty or longer name"
            )
        if not isinstance(value, str):
            raise _type_error(f"{name}.{key[:60]}", "a string", value)
        if len(value.encode()) > VALUE_BYTES_MAX:
            got = f"{len(value.encode())} bytes"
            raise InvalidInput(f"{name}.{key[:60]}", f"at most {VALUE_BYTES_MAX} bytes", got)
        own += not key.startswith(BROKER_ATTRIBUTE_PREFIXES)
    if own > ATTRIBUTES_MAX or len(attributes) > ATTRIBUTES_MAX + BROKER_ATTRIBUTES_MAX:
        raise InvalidInput(name, f"at most {ATTRIBUTES_MAX} attributes", f"{len(attributes)}")
    return attributes


def _pushed(
    envelope: dict[str, Any], expected: str | None, *, data: bytes | None = None
) -> PushedMessage:
    message = envelope.get("message")
    if not isinstance(message, dict):
        got = "no value" if "message" not in envelope else _json_type(message)
        raise InvalidInput("message", "an object", got)
    message_id = _text(message, "messageId", "message_id", ID_BYTES_MAX)
    if not message_id:
        raise InvalidInput("message.messageId", "the id of the message", "no value")
    attributes = check_attributes(message.get("attributes", {}))
    data = _data(message) if data is None else data
    if not data and not attributes:
        raise InvalidInput("message.data", "data, or at least one attribute", "neither")
    subscription = _subscription(envelope, expected)
    return PushedMessage(
        message_id=message_id,
        data=data,
        attributes=attributes,
        ordering_key=_text(message, "orderingKey", "ordering_key", VALUE_BYTES_MAX) or None,
        publish_time=_time(message),
        subscription=subscription,
        attempt=_attempt(envelope),
    )


def _either(owner: dict[str, Any], camel: str, snake: str, prefix: str) -> Any:
    """Return the value under either name; None if neither is present."""
    if camel in owner and snake in owner and owner[camel] != owner[snake]:
        raise InvalidInput(f"{prefix}{camel}", f"the same as {snake}", "another value")
    return owner.get(camel, owner.get(snake))


def _text(message: dict[str, Any], camel: str, snake: str, bytes_max: int) -> str | None:
    value = _either(message, camel, snake, "message.")
    if value is None and camel not in message and snake not in message:
        return None
    if not isinstance(value, str):
        raise _type_error(f"message.{camel}", "a string", value)
    if len(value.encode()) > bytes_max:
        raise InvalidInput(f"message.{camel}", f"at most {bytes_max} bytes", "more")
    return value


def _data(message: dict[str, Any]) -> bytes:
    text = message.get("data", "")
    if not isinstance(text, str):
        raise _type_error("message.data", "base64 text", text)
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        got = "the URL-safe alphabet" if set(text) & {"-", "_"} else "other text"
        raise InvalidInput("message.data", "standard base64 with padding", got) from None
    if base64.b64encode(data) != text.encode():
        raise InvalidInput("message.data", "standard base64 with padding", "non-zero padding bits")
    return data


def _time(message: dict[str, Any]) -> Micros | None:
    text = _text(message, "publishTime", "publish_time", 64)
    if text is None:
        return None
    try:
        return parse_iso(text, "message.publishTime")
    except InvalidInput:
        raise InvalidInput("message.publishTime", "an RFC 3339 time", "other text") from None


def _attempt(envelope: dict[str, Any]) -> int | None:
    value = _either(envelope, "deliveryAttempt", "delivery_attempt", "")
    if value is None and not {"deliveryAttempt", "delivery_attempt"} & envelope.keys():
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _type_error("deliveryAttempt", "a whole number from 1", value)
    if not 1 <= value <= ATTEMPT_MAX:
        raise InvalidInput("deliveryAttempt", "a whole number from 1", "a number out of range")
    return value


def _subscription(envelope: dict[str, Any], expected: str | None) -> str | None:
    if "subscription" not in envelope:
        return None
    value = envelope["subscription"]
    if not isinstance(value, str):
        raise _type_error("subscription", "a string", value)
    if not 1 <= len(value.encode()) <= VALUE_BYTES_MAX:
        raise InvalidInput(
            "subscription", f"1 to {VALUE_BYTES_MAX} bytes", "an empty or longer name"
        )
    named = value if expected is not None and "/" in expected else value.rpartition("/")[2]
    if expected is not None and named != expected:
        raise _OtherSubscription("subscription", f"{expected[:100]}", "another subscription")
    return value


def _poison(error: InvalidInput, envelope: dict[str, Any]) -> Poison:
    """Build the poison record of an invalid body; fields that cannot be read are None."""
    found = envelope.get("message")
    message = found if isinstance(found, dict) else {}
    return Poison(
        reason=error.message[:REASON_MAX],
        field=error.field[:100],
        message_id=_or_none(lambda: _text(message, "messageId", "message_id", ID_BYTES_MAX))
        or None,
        subscription=_or_none(lambda: _subscription(envelope, None)),
        publish_time=_or_none(lambda: _time(message)),
        attempt=_or_none(lambda: _attempt(envelope)),
        is_misdirected=isinstance(error, _OtherSubscription),
    )


def _or_none(read: Any) -> Any:
    try:
        return read()
    except InvalidInput:
        return None


def _type_error(path: str, expected: str, value: object) -> InvalidInput:
    return InvalidInput(path, expected, _json_type(value))


def _json_type(value: object) -> str:
    """Return the JSON type of a value, for error messages that must not quote it."""
    if value is None:
        return "null"
    names: dict[type, str] = {
        bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list",
        dict: "an object",
    }  # fmt: skip
    return names.get(type(value), "something else")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12


def _is_attribute(name: str) -> bool:
    return name not in _NOT_ATTRIBUTES and not name.startswith(_NOT_ATTRIBUTE_STARTS)
