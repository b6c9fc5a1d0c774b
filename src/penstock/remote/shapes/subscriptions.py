"""Subscriptions: make and change them; pause, seek, purge.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class SubscriptionIn(TypedDict):
    """A subscription to make, or to change."""

    name: str  # Its name, once per customer.
    topic: str  # The topic it takes from; for good.
    kind: NotRequired[Literal["pull", "push", "bound"]]  # How it is served.
    ack_deadline_seconds: NotRequired[int]  # How long a message is held.
    min_backoff_seconds: NotRequired[float]  # The first wait after a failure.
    max_backoff_seconds: NotRequired[float]  # The longest wait after a failure.
    max_delivery_attempts: NotRequired[int]  # After so many it is a dead letter.
    dead_letters: NotRequired[bool]  # Whether poison and exhausted messages become dead letters.
    dead_letter_topic: NotRequired[str | None]  # Their topic; `<name>.dlq` unless said.
    retention_seconds: NotRequired[int]  # How long unacked messages are kept.
    # One in flight per ordering key, in publish order; for good.
    enable_message_ordering: NotRequired[bool]
    filter: NotRequired[str | None]  # Only messages whose attributes fit.
    push: NotRequired[dict[str, Any] | None]  # Where and how messages are posted (kind push).
    binding: NotRequired[dict[str, Any] | None]  # What messages start or report (kind bound).
    # When dead letters are replayed without a person; null: never.
    auto_replay: NotRequired[dict[str, Any] | None]
    replays_max: NotRequired[int]  # How often a message is replayed.
    version: NotRequired[int | None]  # The version that is changed; another one is refused.


class SubscriptionOut(TypedDict):
    """A subscription."""

    name: str  # Its name.
    topic: str  # The topic it takes from.
    kind: Literal["pull", "push", "bound"]  # How it is served.
    ack_deadline_seconds: float  # How long a message is held.
    min_backoff_seconds: float  # The first wait after a failure.
    max_backoff_seconds: float  # The longest wait after a failure.
    max_delivery_attempts: int  # After so many it is a dead letter.
    dead_letter_topic: str | None  # Where those go; null: no dead letters.
    retention_seconds: int  # How long unacked messages are kept.
    enable_message_ordering: bool  # One in flight per ordering key.
    filter: str | None  # Only messages whose attributes fit.
    push: dict[str, Any] | None  # Where and how messages are posted.
    binding: dict[str, Any] | None  # What messages start or report.
    auto_replay: dict[str, Any] | None  # When dead letters replay by themselves.
    replays_max: int  # How often a message is replayed.
    is_paused: bool  # Whether nothing is handed over for now.
    version: int  # Changes with every change.
    created_at: str  # When it was made.
    created_by: str  # By whom.


class SubscriptionPage(TypedDict):
    """A page of a list."""

    items: list[SubscriptionOut]  # The things on this page.
    next_cursor: str | None  # Give it as `cursor` for the next page; null on the last one.


class BacklogOut(TypedDict):
    """What waits in a subscription; a count stops at 10,000."""

    ready: int  # Waiting to be taken.
    leased: int  # Handed over, not settled.
    delayed: int  # Waiting for a retry.
    behind_ordering_key: int  # Behind another message of their key.
    oldest_publish_time: str | None  # When the oldest was published.


class SumsOut(TypedDict):
    """What became of the messages a subscription was given."""

    accepted: int  # Given to it.
    delivered: int  # Handed over, repeats counted.
    acked: int  # Settled by an ack.
    nacked: int  # Given back.
    lapsed: int  # Not settled before the deadline.
    dead_lettered: int  # Now dead letters.
    expired: int  # Removed by retention.
    purged: int  # Removed by request.
    replayed: int  # Delivered anew by a replay.


class SubscriptionDetailOut(TypedDict):
    """A subscription, what waits in it and what became of the rest."""

    subscription: SubscriptionOut  # As declared.
    backlog: BacklogOut  # What waits.
    sums: SumsOut  # What became of the rest.


class PausedIn(TypedDict):
    """Whether to stop handing over."""

    is_paused: bool  # True: nothing is handed over until it is false again.


class SeekIn(TypedDict):
    """Where to go."""

    time: str  # What was published since comes again.


class SeekOut(TypedDict):
    """What the seek did."""

    time: str  # Where it went.
    purged: int  # Older ones that will not be delivered.
    delivered_again: int  # Settled ones that are delivered anew.


class PurgeOut(TypedDict):
    """What was dropped."""

    purged: int  # How many deliveries.


class ListSubscriptionsQuery(TypedDict, total=False):
    """Which part of the list, and how it is narrowed (list_subscriptions)."""

    limit: int | None  # Page size.
    cursor: str | None  # The `next_cursor` of the page before.
    topic: str | None  # Only of this topic.
    kind: Literal["pull", "push", "bound"] | None  # Only served like this.
    customer_id: str | None  # Whose it is; the house's own without.
