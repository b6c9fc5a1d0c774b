"""Messages of a subscription: pull, ack, nack, extend, release.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class PullIn(TypedDict):
    """How much to take, and how long to wait for it."""

    max_messages: NotRequired[int]  # At most so many.
    wait_seconds: NotRequired[float]  # Wait so long when there is none.


class MessageOut(TypedDict):
    """A message."""

    message_id: str  # Its id.
    data: str  # Its bytes, in base64.
    attributes: dict[str, str]  # Its attributes.
    ordering_key: str | None  # Its ordering key.
    publish_time: str  # When it was published.


class DeliveryOut(TypedDict):
    """A message handed over."""

    ack_id: str  # Settles it; worth nothing after the next handing-over.
    delivery_attempt: int  # Counts from 1.
    deadline: str  # Settle or extend it before.
    message: MessageOut  # The message.


class PullOut(TypedDict):
    """What was taken."""

    received_messages: list[DeliveryOut]  # Oldest first.


class AckIn(TypedDict):
    """Deliveries that are done, or given back untried."""

    ack_ids: list[str]  # As pulled.


class SettledOut(TypedDict):
    """What became of each, in order."""

    # stale: changed nothing, because it was settled or handed over anew.
    outcomes: list[Literal["done", "stale"]]


class NackOne(TypedDict):
    """A delivery that is given back, and why."""

    ack_id: str  # As pulled.
    # poison: straight to the dead letters.
    kind: NotRequired[Literal["transient", "poison", "configuration"]]
    error_type: NotRequired[str]  # What kind of error.
    error: NotRequired[str]  # The error.
    delay_seconds: NotRequired[float | None]  # Wait at least so long.


class NackIn(TypedDict):
    """Deliveries that are given back."""

    nacks: list[NackOne]  # Each with its reason.


class ExtendIn(TypedDict):
    """Deliveries that take longer."""

    ack_ids: list[str]  # As pulled.
    ack_deadline_seconds: int  # From now; 0 gives them back.
