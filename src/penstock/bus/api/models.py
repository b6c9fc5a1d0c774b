"""Topics, subscriptions, messages and deliveries in requests and answers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.server.models import Asked, JsonObject, Time, Told

DAY_SECONDS = 86_400


class TopicIn(Asked):
    """A topic to make."""

    name: str = Field(
        description="Its name, once per customer.", examples=["rosters"], max_length=255
    )
    retention_seconds: int = Field(
        default=7 * DAY_SECONDS, description="How long messages are kept.", ge=600,
        le=31 * DAY_SECONDS,
    )  # fmt: skip


class TopicOut(Told):
    """A topic."""

    name: str = Field(description="Its name.")
    retention_seconds: int = Field(description="How long messages are kept.")
    created_at: Time = Field(description="When it was made.")
    created_by: str = Field(description="By whom.")


class TopicDetailOut(TopicOut):
    """A topic with those who take its messages."""

    subscriptions: list[str] = Field(description="Names of its subscriptions.")


class SubscriptionIn(Asked):
    """A subscription to make, or to change."""

    name: str = Field(
        description="Its name, once per customer.", examples=["rosters-to-table"], max_length=255
    )
    topic: str = Field(description="The topic it takes from; for good.", max_length=255)
    kind: Literal["pull", "push", "bound"] = Field(default="pull", description="How it is served.")
    ack_deadline_seconds: int = Field(
        default=60, description="How long a message is held.", ge=10, le=600
    )
    min_backoff_seconds: float = Field(
        default=10, description="The first wait after a failure.", gt=0, le=600
    )
    max_backoff_seconds: float = Field(
        default=600, description="The longest wait after a failure.", gt=0, le=600
    )
    max_delivery_attempts: int = Field(
        default=5, description="After so many it is a dead letter.", ge=5, le=100
    )
    dead_letters: bool = Field(
        default=True, description="Whether poison and exhausted messages become dead letters."
    )
    dead_letter_topic: str | None = Field(
        default=None, description="Their topic; `<name>.dlq` unless said.", max_length=255
    )
    retention_seconds: int = Field(
        default=7 * DAY_SECONDS, description="How long unacked messages are kept.", ge=600,
        le=31 * DAY_SECONDS,
    )  # fmt: skip
    enable_message_ordering: bool = Field(
        default=False, description="One in flight per ordering key, in publish order; for good."
    )
    filter: str | None = Field(
        default=None, description="Only messages whose attributes fit.", max_length=256,
        examples=['attributes.league = "nba"'],
    )  # fmt: skip
    push: JsonObject | None = Field(
        default=None, description="Where and how messages are posted (kind push)."
    )
    binding: JsonObject | None = Field(
        default=None, description="What messages start or report (kind bound)."
    )
    auto_replay: JsonObject | None = Field(
        default=None, description="When dead letters are replayed without a person; null: never."
    )
    replays_max: int = Field(
        default=3, description="How often a message is replayed.", ge=0, le=100
    )
    version: int | None = Field(
        default=None, description="The version that is changed; another one is refused.", ge=1
    )


class SubscriptionOut(Told):
    """A subscription."""

    name: str = Field(description="Its name.")
    topic: str = Field(description="The topic it takes from.")
    kind: Literal["pull", "push", "bound"] = Field(description="How it is served.")
    ack_deadline_seconds: float = Field(description="How long a message is held.")
    min_backoff_seconds: float = Field(description="The first wait after a failure.")
    max_backoff_seconds: float = Field(description="The longest wait after a failure.")
    max_delivery_attempts: int = Field(description="After so many it is a dead letter.")
    dead_letter_topic: str | None = Field(description="Where those go; null: no dead letters.")
    retention_seconds: int = Field(description="How long unacked messages are kept.")
    enable_message_ordering: bool = Field(description="One in flight per ordering key.")
    filter: str | None = Field(description="Only messages whose attributes fit.")
    push: JsonObject | None = Field(description="Where and how messages are posted.")
    binding: JsonObject | None = Field(description="What messages start or report.")
    auto_replay: JsonObject | None = Field(description="When dead letters replay by themselves.")
    replays_max: int = Field(description="How often a message is replayed.")
    is_paused: bool = Field(description="Whether nothing is handed over for now.")
    version: int = Field(description="Changes with every change.")
    created_at: Time = Field(description="When it was made.")
    created_by: str = Field(description="By whom.")


class BacklogOut(Told):
    """What waits in a subscription; a count stops at 10,000."""

    ready: int = Field(description="Waiting to be taken.")
    leased: int = Field(description="Handed over, not settled.")
    delayed: int = Field(description="Waiting for a retry.")
    behind_ordering_key: int = Field(description="Behind another message of their key.")
    oldest_publish_time: Time | None = Field(description="When the oldest was published.")


class SumsOut(Told):
    """What became of the messages a subscription was given."""

    accepted: int = Field(description="Given to it.")
    delivered: int = Field(description="Handed over, repeats counted.")
    acked: int = Field(description="Settled by an ack.")
    nacked: int = Field(description="Given back.")
    lapsed: int = Field(description="Not settled before the deadline.")
    dead_lettered: int = Field(description="Now dead letters.")
    expired: int = Field(description="Removed by retention.")
    purged: int = Field(description="Removed by request.")
    replayed: int = Field(description="Delivered anew by a replay.")


class SubscriptionDetailOut(Told):
    """A subscription, what waits in it and what became of the rest."""

    subscription: SubscriptionOut = Field(description="As declared.")
    backlog: BacklogOut = Field(description="What waits.")
    sums: SumsOut = Field(description="What became of the rest.")


class OutgoingIn(Asked):
    """A message to publish."""

    data: str = Field(default="", description="Its bytes, in base64.")
    attributes: dict[str, str] = Field(default_factory=dict, description="Text to text.")
    ordering_key: str | None = Field(default=None, description="Kept in order with its likes.")
    dedupe_id: str | None = Field(
        default=None, description="Publishing it again answers the first message's id."
    )


class PublishIn(Asked):
    """Messages to publish, all or none."""

    messages: list[OutgoingIn] = Field(description="In order.", min_length=1, max_length=1_000)


class PublishOut(Told):
    """They are accepted and durable."""

    message_ids: list[str] = Field(description="Their ids, in order.")


class PullIn(Asked):
    """How much to take, and how long to wait for it."""

    max_messages: int = Field(default=100, description="At most so many.", ge=1, le=1_000)
    wait_seconds: float = Field(
        default=0, description="Wait so long when there is none.", ge=0, le=60
    )


class MessageOut(Told):
    """A message."""

    message_id: str = Field(description="Its id.")
    data: str = Field(description="Its bytes, in base64.")
    attributes: dict[str, str] = Field(description="Its attributes.")
    ordering_key: str | None = Field(description="Its ordering key.")
    publish_time: Time = Field(description="When it was published.")


class DeliveryOut(Told):
    """A message handed over."""

    ack_id: str = Field(description="Settles it; worth nothing after the next handing-over.")
    delivery_attempt: int = Field(description="Counts from 1.")
    deadline: Time = Field(description="Settle or extend it before.")
    message: MessageOut = Field(description="The message.")


class PullOut(Told):
    """What was taken."""

    received_messages: list[DeliveryOut] = Field(description="Oldest first.")


class AckIn(Asked):
    """Deliveries that are done, or given back untried."""

    ack_ids: list[str] = Field(description="As pulled.", min_length=1, max_length=1_000)


class ExtendIn(AckIn):
    """Deliveries that take longer."""

    ack_deadline_seconds: int = Field(description="From now; 0 gives them back.", ge=0, le=600)


class NackOne(Asked):
    """A delivery that is given back, and why."""

    ack_id: str = Field(description="As pulled.", max_length=255)
    kind: Literal["transient", "poison", "configuration"] = Field(
        default="transient", description="poison: straight to the dead letters."
    )
    error_type: str = Field(default="", description="What kind of error.", max_length=100)
    error: str = Field(default="", description="The error.", max_length=10_000)
    delay_seconds: float | None = Field(
        default=None, description="Wait at least so long.", ge=0, le=600
    )


class NackIn(Asked):
    """Deliveries that are given back."""

    nacks: list[NackOne] = Field(
        description="Each with its reason.", min_length=1, max_length=1_000
    )


class SettledOut(Told):
    """What became of each, in order."""

    outcomes: list[Literal["done", "stale"]] = Field(
        description="stale: changed nothing, because it was settled or handed over anew."
    )


class SeekIn(Asked):
    """Where to go."""

    time: str = Field(description="What was published since comes again.", max_length=64)


class SeekOut(Told):
    """What the seek did."""

    time: Time = Field(description="Where it went.")
    purged: int = Field(description="Older ones that will not be delivered.")
    delivered_again: int = Field(description="Settled ones that are delivered anew.")


class PurgeOut(Told):
    """What was dropped."""

    purged: int = Field(description="How many deliveries.")


class PausedIn(Asked):
    """Whether to stop handing over."""

    is_paused: bool = Field(description="True: nothing is handed over until it is false again.")


class PlaceOut(Told):
    """Where a message is for one subscription."""

    subscription: str = Field(description="Which one.")
    state: str = Field(
        description="ready, leased, delayed, behind; or acked, dead_lettered, expired, purged."
    )
    round: int = Field(description="Which round of deliveries; a replay starts the next.")
    attempts: int = Field(description="Handings-over in this round.")
    replays: int = Field(description="How often it was replayed.")
    at: Time = Field(description="When it is due, runs out, or ended.")
    last_error: str | None = Field(description="Why it was last given back.")


class MessageDetailOut(MessageOut):
    """A message, and where it is."""

    topic: str = Field(description="Where it was published.")
    expires_at: Time = Field(description="Until when it is kept.")
    deliveries: list[PlaceOut] = Field(description="One per subscription and round.")
