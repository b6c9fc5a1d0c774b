"""Topics and messages: publish, find a message again.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict


class TopicIn(TypedDict):
    """A topic to make."""

    name: str  # Its name, once per customer.
    retention_seconds: NotRequired[int]  # How long messages are kept.


class TopicOut(TypedDict):
    """A topic."""

    name: str  # Its name.
    retention_seconds: int  # How long messages are kept.
    created_at: str  # When it was made.
    created_by: str  # By whom.


class TopicPage(TypedDict):
    """A page of a list."""

    items: list[TopicOut]  # The things on this page.
    next_cursor: str | None  # Give it as `cursor` for the next page; null on the last one.


class TopicDetailOut(TypedDict):
    """A topic with those who take its messages."""

    name: str  # Its name.
    retention_seconds: int  # How long messages are kept.
    created_at: str  # When it was made.
    created_by: str  # By whom.
    subscriptions: list[str]  # Names of its subscriptions.


class Done(TypedDict):
    """It was done."""

    status: Literal["done"]  # Always `done`.


class OutgoingIn(TypedDict):
    """A message to publish."""

    data: NotRequired[str]  # Its bytes, in base64.
    attributes: NotRequired[dict[str, str]]  # Text to text.
    ordering_key: NotRequired[str | None]  # Kept in order with its likes.
    dedupe_id: NotRequired[str | None]  # Publishing it again answers the first message's id.


class PublishIn(TypedDict):
    """Messages to publish, all or none."""

    messages: list[OutgoingIn]  # In order.


class PublishOut(TypedDict):
    """They are accepted and durable."""

    message_ids: list[str]  # Their ids, in order.


class PlaceOut(TypedDict):
    """Where a message is for one subscription."""

    subscription: str  # Which one.
    state: str  # ready, leased, delayed, behind; or acked, dead_lettered, expired, purged.
    round: int  # Which round of deliveries; a replay starts the next.
    attempts: int  # Handings-over in this round.
    replays: int  # How often it was replayed.
    at: str  # When it is due, runs out, or ended.
    last_error: str | None  # Why it was last given back.


class MessageDetailOut(TypedDict):
    """A message, and where it is."""

    message_id: str  # Its id.
    data: str  # Its bytes, in base64.
    attributes: dict[str, str]  # Its attributes.
    ordering_key: str | None  # Its ordering key.
    publish_time: str  # When it was published.
    topic: str  # Where it was published.
    expires_at: str  # Until when it is kept.
    deliveries: list[PlaceOut]  # One per subscription and round.
