"""The push envelope of external subscriptions, for the OpenAPI document.

`bus.envelope` parses the requests; it is stricter and names the invalid field.
"""

from __future__ import annotations

from typing import Annotated

from penstock.core.records.record import Meta, Record, field


class EnvelopeMessage(Record):
    """The message of a push envelope."""

    message_id: Annotated[str, Meta(max_length=255)] = field(name="messageId")
    """Id of the message; a repeated id is treated as a duplicate."""
    data: bytes = b""
    """Payload of the message, base64-encoded."""
    attributes: dict[str, str] = field(default_factory=dict)
    """Attributes of the message, string values by name."""
    ordering_key: Annotated[str, Meta(max_length=1024)] = field(name="orderingKey", default="")
    """Messages with the same key keep their order; empty for no order."""
    publish_time: str = field(name="publishTime", default="")
    """Time of the original publication (RFC 3339)."""


class PushEnvelope(Record):
    """The push envelope of Google Cloud Pub/Sub."""

    message: EnvelopeMessage
    """The pushed message."""
    subscription: str
    """Full name of the subscription that pushes."""
    delivery_attempt: Annotated[int, Meta(ge=1)] | None = field(
        name="deliveryAttempt", default=None
    )
    """Number of the attempt, counted from 1; present if the sender has a dead-letter policy."""
