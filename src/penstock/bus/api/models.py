"""Request and response bodies of topics, subscriptions, messages and deliveries."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.server.models import JsonObject, RequestModel, ResponseModel, Time
from penstock.server.openapi import texts

DAY_SECONDS = 86_400


class TopicIn(RequestModel):
    """A topic to create."""

    name: str = Field(
        description="Name of the topic, unique per customer.", examples=["rosters"], max_length=255
    )
    retention_seconds: int = Field(
        default=7 * DAY_SECONDS, description=texts.TOPIC_RETENTION, ge=600,
        le=31 * DAY_SECONDS,
    )  # fmt: skip


class TopicOut(ResponseModel):
    """A topic that messages are published to."""

    name: str = Field(description="Name of the topic, unique per customer.")
    retention_seconds: int = Field(description=texts.TOPIC_RETENTION)
    created_at: Time = Field(description=texts.CREATED_AT)
    created_by: str = Field(description=texts.CREATED_BY)


class TopicDetailOut(TopicOut):
    """A topic with its subscriptions."""

    subscriptions: list[str] = Field(description="Names of the subscriptions to the topic.")


class SubscriptionIn(RequestModel):
    """A subscription to create or change."""

    name: str = Field(
        description="Name of the subscription, unique per customer.",
        examples=["rosters-to-table"],
        max_length=255,
    )
    topic: str = Field(description="Name of the topic; it cannot be changed later.", max_length=255)
    kind: Literal["pull", "push", "bound"] = Field(
        default="pull", description=texts.SUBSCRIPTION_KIND
    )
    ack_deadline_seconds: int = Field(default=60, description=texts.ACK_DEADLINE, ge=10, le=600)
    min_backoff_seconds: float = Field(default=10, description=texts.MIN_BACKOFF, gt=0, le=600)
    max_backoff_seconds: float = Field(default=600, description=texts.MAX_BACKOFF, gt=0, le=600)
    max_delivery_attempts: int = Field(default=5, description=texts.MAX_ATTEMPTS, ge=5, le=100)
    dead_letters: bool = Field(
        default=True, description="Whether poison and exhausted messages become dead letters."
    )
    dead_letter_topic: str | None = Field(
        default=None,
        description="Topic for dead letters; `<name>.dlq` when omitted.",
        max_length=255,
    )
    retention_seconds: int = Field(
        default=7 * DAY_SECONDS, description=texts.UNACKED_RETENTION, ge=600,
        le=31 * DAY_SECONDS,
    )  # fmt: skip
    enable_message_ordering: bool = Field(
        default=False,
        description="Deliver messages of an ordering key one at a time, in publish order. It "
        "cannot be changed later.",
    )
    filter: str | None = Field(
        default=None, description=texts.FILTER, max_length=256,
        examples=['attributes.league = "nba"'],
    )  # fmt: skip
    push: JsonObject | None = Field(
        default=None,
        description="Endpoint and authentication for kind `push`; null for other kinds.",
    )
    binding: JsonObject | None = Field(
        default=None,
        description="What messages start or report for kind `bound`; null for other kinds.",
    )
    auto_replay: JsonObject | None = Field(default=None, description=texts.AUTO_REPLAY)
    replays_max: int = Field(default=3, description=texts.REPLAYS_MAX, ge=0, le=100)
    version: int | None = Field(
        default=None,
        description="Version that the change is based on; the request fails if it is outdated.",
        ge=1,
    )


class SubscriptionOut(ResponseModel):
    """A subscription to a topic."""

    name: str = Field(description="Name of the subscription, unique per customer.")
    topic: str = Field(description="Name of the topic it receives messages from.")
    kind: Literal["pull", "push", "bound"] = Field(description=texts.SUBSCRIPTION_KIND)
    ack_deadline_seconds: float = Field(description=texts.ACK_DEADLINE)
    min_backoff_seconds: float = Field(description=texts.MIN_BACKOFF)
    max_backoff_seconds: float = Field(description=texts.MAX_BACKOFF)
    max_delivery_attempts: int = Field(description=texts.MAX_ATTEMPTS)
    dead_letter_topic: str | None = Field(
        description="Topic for dead letters; null if it keeps none."
    )
    retention_seconds: int = Field(description=texts.UNACKED_RETENTION)
    enable_message_ordering: bool = Field(
        description="Whether messages of an ordering key are delivered one at a time."
    )
    filter: str | None = Field(description=texts.FILTER)
    push: JsonObject | None = Field(
        description="Endpoint and authentication of a push subscription; null for other kinds."
    )
    binding: JsonObject | None = Field(
        description="What messages of a bound subscription start or report; null for other kinds."
    )
    auto_replay: JsonObject | None = Field(description=texts.AUTO_REPLAY)
    replays_max: int = Field(description=texts.REPLAYS_MAX)
    is_paused: bool = Field(description="Whether delivery is paused.")
    version: int = Field(description="Version, incremented by every change.")
    created_at: Time = Field(description=texts.CREATED_AT)
    created_by: str = Field(description=texts.CREATED_BY)


class BacklogOut(ResponseModel):
    """Unsettled deliveries of a subscription; each count stops at 10,000."""

    ready: int = Field(description="Number of deliveries ready to be pulled.")
    leased: int = Field(description="Number of deliveries that consumers hold.")
    delayed: int = Field(description="Number of deliveries waiting for their retry time.")
    behind_ordering_key: int = Field(
        description="Number of deliveries waiting behind another of their ordering key."
    )
    oldest_publish_time: Time | None = Field(
        description="Publish time of the oldest of them; null if there are none."
    )


class DeliveryCountersOut(ResponseModel):
    """Counters of a subscription's deliveries."""

    accepted: int = Field(description="Number of messages that it received from its topic.")
    delivered: int = Field(description="Number of delivery attempts, redeliveries included.")
    acked: int = Field(description="Number of deliveries that were acknowledged.")
    nacked: int = Field(description="Number of deliveries that were nacked.")
    lapsed: int = Field(description="Number of deliveries whose ack deadline passed.")
    dead_lettered: int = Field(description="Number of deliveries that became dead letters.")
    expired: int = Field(description="Number of deliveries removed by retention.")
    purged: int = Field(description="Number of deliveries removed by a purge or seek.")
    replayed: int = Field(description="Number of deliveries repeated by a replay or seek.")


class SubscriptionDetailOut(ResponseModel):
    """A subscription with its backlog and counters."""

    subscription: SubscriptionOut = Field(description="Settings of the subscription.")
    backlog: BacklogOut = Field(description="Deliveries that are not settled.")
    sums: DeliveryCountersOut = Field(description="Counters of its deliveries.")


class MessageIn(RequestModel):
    """A message to publish."""

    data: str = Field(default="", description=texts.MESSAGE_DATA)
    attributes: dict[str, str] = Field(default_factory=dict, description=texts.MESSAGE_ATTRIBUTES)
    ordering_key: str | None = Field(
        default=None, description="Messages with the same key are delivered in publish order."
    )
    dedupe_id: str | None = Field(
        default=None,
        description="Publishing the same id again returns the id of the first message.",
    )


class PublishIn(RequestModel):
    """Messages to publish in one transaction."""

    messages: list[MessageIn] = Field(
        description="Messages in publish order; all are stored or none.",
        min_length=1,
        max_length=1_000,
    )


class PublishOut(ResponseModel):
    """The ids of messages that were stored."""

    message_ids: list[str] = Field(description="Message ids, in the order of the request.")


class PullIn(RequestModel):
    """Options of a pull request."""

    max_messages: int = Field(
        default=100, description="Maximum number of messages to return.", ge=1, le=1_000
    )
    wait_seconds: float = Field(
        default=0, description="Seconds to wait for a message if none is ready.", ge=0, le=60
    )


class MessageOut(ResponseModel):
    """A published message."""

    message_id: str = Field(description="Id that was assigned when the message was published.")
    data: str = Field(description=texts.MESSAGE_DATA)
    attributes: dict[str, str] = Field(description=texts.MESSAGE_ATTRIBUTES)
    ordering_key: str | None = Field(description=texts.ORDERING_KEY)
    publish_time: Time = Field(description=texts.PUBLISH_TIME)


class DeliveryOut(ResponseModel):
    """A message leased to a consumer."""

    ack_id: str = Field(
        description="Id to settle this delivery with; invalid once it is redelivered."
    )
    delivery_attempt: int = Field(description="Number of the delivery attempt, counted from 1.")
    deadline: Time = Field(description="Time by which the delivery must be settled or extended.")
    message: MessageOut = Field(description="The message that is delivered.")


class PullOut(ResponseModel):
    """Messages leased by a pull."""

    received_messages: list[DeliveryOut] = Field(
        description="Leased messages, oldest first; empty if none is ready."
    )


class AckIn(RequestModel):
    """Deliveries to acknowledge or to release."""

    ack_ids: list[str] = Field(
        description="Ack ids as returned by pull.", min_length=1, max_length=1_000
    )


class ExtendIn(AckIn):
    """Deliveries whose deadline is to be moved."""

    ack_deadline_seconds: int = Field(
        description="New deadline in seconds from now; 0 returns them to the subscription.",
        ge=0,
        le=600,
    )


class NackItem(RequestModel):
    """A delivery to return, with the reason."""

    ack_id: str = Field(description="Ack id as returned by pull.", max_length=255)
    kind: Literal["transient", "poison", "configuration"] = Field(
        default="transient",
        description="Class of the failure; `poison` makes it a dead letter immediately.",
    )
    error_type: str = Field(
        default="",
        description="Short name of the error's kind, up to 100 characters.",
        max_length=100,
    )
    error: str = Field(
        default="", description="Error message, kept with the delivery.", max_length=10_000
    )
    delay_seconds: float | None = Field(
        default=None,
        description="Minimum seconds until redelivery; the backoff applies when omitted.",
        ge=0,
        le=600,
    )


class NackIn(RequestModel):
    """Deliveries to return."""

    nacks: list[NackItem] = Field(
        description="Deliveries with their reasons.", min_length=1, max_length=1_000
    )


class SettlementOut(ResponseModel):
    """The outcome of each item, in the order of the request."""

    outcomes: list[Literal["done", "stale"]] = Field(
        description="`stale` means that nothing changed because the delivery was settled or "
        "redelivered."
    )


class SeekIn(RequestModel):
    """The time to seek to."""

    time: str = Field(
        description="ISO 8601 time; messages published since then are delivered again.",
        max_length=64,
    )


class SeekOut(ResponseModel):
    """The effect of a seek."""

    time: Time = Field(description="Time that the subscription was set to.")
    purged: int = Field(description="Number of older deliveries that were removed.")
    delivered_again: int = Field(
        description="Number of settled deliveries that are delivered again."
    )


class PurgeOut(ResponseModel):
    """The effect of a purge."""

    purged: int = Field(description="Number of deliveries that were removed.")


class PausedIn(RequestModel):
    """Whether delivery is to be paused."""

    is_paused: bool = Field(description="True pauses delivery, false resumes it.")


class DeliveryStateOut(ResponseModel):
    """The state of a message in one subscription."""

    subscription: str = Field(description="Name of the subscription.")
    state: str = Field(
        description="ready, leased, delayed or behind; once settled acked, dead_lettered, "
        "expired or purged."
    )
    round: int = Field(description=texts.DELIVERY_GENERATION)
    attempts: int = Field(description="Number of delivery attempts in this generation.")
    replays: int = Field(description=texts.REPLAYS)
    at: Time = Field(description="Time at which it is due, its lease expires, or it was settled.")
    last_error: str | None = Field(description="Reason for the last nack; null if there was none.")


class MessageDetailOut(MessageOut):
    """A message with its deliveries."""

    topic: str = Field(description="Topic that it was published to.")
    expires_at: Time = Field(description="Time at which retention removes the message.")
    deliveries: list[DeliveryStateOut] = Field(
        description="One entry per subscription and generation."
    )
