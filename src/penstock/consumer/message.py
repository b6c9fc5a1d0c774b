"""The message that handlers receive, pushed or pulled, and the parsing of its payload.

JSON is parsed by the strict profile. Access to a missing name rejects the message as poison:
`message.json["pipeline"]` raises Reject with the path of the missing name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from penstock.bus.envelope import Poison, PushedMessage
from penstock.bus.message import CAUSATION, CORRELATION, Delivery
from penstock.consumer.failure import Reject
from penstock.core.clock import Micros
from penstock.core.errors import InvalidInput
from penstock.core.json_profile import parse_json
from penstock.core.tracing.trace_context import (
    TRACEPARENT,
    TraceContext,
    message_context,
    span_of,
)

Via = Literal["push", "pull"]

TYPE_ATTRIBUTES: Final = ("ce-type", "event_type", "eventType")
TYPE_NAMES: Final = ("event_type", "eventType", "type")
SCHEMA_ATTRIBUTES: Final = ("schema_version", "schemaVersion")
SCHEMA_NAMES: Final = ("schemaVersion", "schema_version")


class Payload(dict[str, Any]):
    """A JSON object of a message: a dict in which a missing name rejects the message."""

    __slots__ = ("place",)

    def __init__(self, values: Mapping[str, Any], place: str) -> None:
        super().__init__(values)
        self.place = place

    def __missing__(self, name: object) -> Any:
        raise Reject(f"{self.place}.{name}: required, but missing")


@dataclass(slots=True, kw_only=True, eq=False)
class Message:
    """One delivery of a message; `attempt` and `publish_time` are None if the broker omits them."""

    id: str
    data: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)
    subscription: str = ""
    """Name of the consumer's subscription; dedupe marks and counters are stored under it."""
    origin: str | None = None
    """Subscription as named in the push envelope; None for pulled messages."""
    topic: str | None = None
    ordering_key: str | None = None
    publish_time: Micros | None = None
    attempt: int | None = None
    via: Via = "push"
    event_type: str | None = None
    schema_version: str | None = None
    json: Any = None
    """Parsed payload; its objects reject the message if a name is missing."""
    value: Any = None
    """Result of the route's `shape` for the payload; None without a shape."""
    gate: Any = None
    """Return value of the gate; None without a gate."""
    has_dead_letters: bool | None = None
    """Whether the subscription has a dead-letter policy; None if the broker did not report it."""
    delivered_under: str | None = None
    """Header `traceparent` of the request that delivered it."""
    received_s: float = 0.0
    """Monotonic time at which the consumer received it."""
    started_s: float | None = None
    """Monotonic time at which its handling, or that of its batch, started."""

    @property
    def correlation_id(self) -> str:
        """Correlation id, shared by everything that the same original cause started."""
        return self.attributes.get(CORRELATION) or self.id

    @property
    def follow_up(self) -> dict[str, str]:
        """Attributes for messages that a handler publishes, so that a trace continues in them."""
        return {
            CORRELATION: self.correlation_id,
            CAUSATION: self.id,
            TRACEPARENT: self.traceparent,
        }

    @property
    def traceparent(self) -> str:
        """W3C trace context of handling this message, for requests that a handler makes."""
        span_id = span_of("message", self.subscription, self.id, self.attempt or 0)
        return TraceContext(self.trace[0], span_id).header

    @property
    def trace(self) -> tuple[str, str | None]:
        """Trace id of the message, and the span that delivered it, if known."""
        return message_context(self.attributes, self.id, self.delivered_under)

    @property
    def text(self) -> str:
        """Data as UTF-8 text; raises Reject if it is not valid UTF-8."""
        try:
            return self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Reject(f"data: byte {error.start} is not UTF-8") from None


def of_delivery(delivery: Delivery) -> Message:
    """Return the message of a pulled delivery."""
    return Message(
        id=delivery.message_id,
        data=delivery.data,
        attributes=delivery.attributes,
        subscription=delivery.subscription,
        topic=delivery.topic,
        ordering_key=delivery.ordering_key,
        publish_time=delivery.publish_time,
        attempt=delivery.attempt,
        via="pull",
        has_dead_letters=delivery.has_dead_letters,
    )


def of_push(
    pushed: PushedMessage | Poison,
    body: bytes,
    *,
    subscription: str,
    topic: str | None,
    traceparent: str | None = None,
) -> Message:
    """Return the message of a push envelope; an invalid body gets its digest as the id.

    traceparent: the header of the push.
    """
    if isinstance(pushed, PushedMessage):
        parts: dict[str, Any] = {
            "id": pushed.message_id,
            "data": pushed.data,
            "attributes": pushed.attributes,
            "ordering_key": pushed.ordering_key,
        }
    else:
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        parts = {"id": pushed.message_id or digest, "data": body}
    return Message(
        **parts,
        subscription=subscription,
        origin=pushed.subscription,
        topic=topic,
        publish_time=pushed.publish_time,
        attempt=pushed.attempt,
        via="push",
        delivered_under=traceparent,
        # Brokers send the number of the attempt if and only if there is a dead-letter policy.
        has_dead_letters=True
        if pushed.attempt is not None
        else False
        if isinstance(pushed, PushedMessage)
        else None,
    )


def read_payload(message: Message, *, is_object: bool = True) -> None:
    """Parse the data as strict JSON into `message.json`; raise Reject if it is invalid.

    With `is_object`, the payload must be a JSON object.
    """
    if not message.data:
        raise Reject("data: expected a JSON document, got no data", is_malformed=True)
    try:
        message.json = _payloads(parse_json(message.data, "data"), "data")
    except InvalidInput as error:
        raise Reject(error.message, is_malformed=True) from None
    if is_object and not isinstance(message.json, dict):
        raise Reject(f"data: expected a JSON object, got {_kind(message.json)}")


def read_kind(message: Message) -> None:
    """Set the event type and schema version, from the attributes or else from the payload."""
    message.event_type = _found(message, TYPE_ATTRIBUTES, TYPE_NAMES)
    message.schema_version = _found(message, SCHEMA_ATTRIBUTES, SCHEMA_NAMES)


def _found(message: Message, attributes: tuple[str, ...], names: tuple[str, ...]) -> str | None:
    for name in attributes:
        if name in message.attributes:
            return message.attributes[name]
    if isinstance(message.json, dict):
        for name in names:
            value = message.json.get(name)
            if isinstance(value, str | int) and not isinstance(value, bool):
                return str(value)
    return None


def _kind(value: object) -> str:
    """Return the JSON type of a value that is not an object."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "a boolean"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "a number"


def _payloads(value: Any, place: str) -> Any:
    """Return the value with every object converted to a Payload with its path."""
    if isinstance(value, dict):
        made = {name: _payloads(part, f"{place}.{name}"[:200]) for name, part in value.items()}
        return Payload(made, place)
    if isinstance(value, list):
        return [
            _payloads(part, f"{place}[{index}]"[:200]) if isinstance(part, dict | list) else part
            for index, part in enumerate(value)
        ]
    return value
