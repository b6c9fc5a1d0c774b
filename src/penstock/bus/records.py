"""Records of topics, subscriptions, messages and their deliveries."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, TypeAlias

from msgspec.structs import force_setattr

from penstock.bus.binding import BindingKind
from penstock.bus.rules import REPLAYS_MAX
from penstock.bus.schemas.definitions import SchemaKind
from penstock.core.clock import DAY, MINUTE, SECOND
from penstock.core.records.record import (
    DurationInput,
    Meta,
    Record,
    Seconds,
    Time,
    field,
    seconds,
    set_units,
)

__all__ = [
    "AutoReplay",
    "Backlog",
    "DeliveryCounters",
    "DeliveryState",
    "MessageDetail",
    "NewSnapshot",
    "OidcSettings",
    "PublishResult",
    "PushSettings",
    "ReceivedMessage",
    "Schema",
    "SchemaSettings",
    "SecretReference",
    "SeekResult",
    "StoredMessage",
    "StoredSchema",
    "StoredSnapshot",
    "StoredSubscription",
    "StoredTopic",
    "Subscription",
    "SubscriptionBinding",
    "SubscriptionDetail",
    "SubscriptionKind",
    "SubscriptionSettings",
    "Topic",
    "TopicDetail",
    "UnwrappedSettings",
]

SubscriptionKind: TypeAlias = Literal["pull", "push", "bound"]
Name: TypeAlias = Annotated[str, Meta(max_length=255)]
Labels: TypeAlias = Annotated[dict[str, str], Meta(max_length=64)]
SchemaEncoding: TypeAlias = Literal["json", "binary"]


class SchemaSettings(Record, omit_defaults=True):
    """The schema of a topic's messages."""

    schema: Name
    """Name of the schema."""
    encoding: SchemaEncoding = "json"
    """How messages are encoded: `json` or `binary`."""
    first_revision_id: str | None = None
    """Oldest revision that messages may match; any when omitted."""
    last_revision_id: str | None = None
    """Newest revision that messages may match; any when omitted."""


class Topic(Record):
    """A topic that messages are published to."""

    name: Annotated[str, Meta(max_length=255, examples=["rosters"])]
    """Name of the topic, unique per customer."""
    retention: Seconds = field(name="retention_seconds", default_factory=lambda: seconds(7 * DAY))
    """How long messages are kept after publication, in whole seconds: 10 minutes to 31 days."""
    labels: Labels = field(default_factory=dict)
    """Labels by name, for your own use; at most 64."""
    schema_settings: SchemaSettings | None = None
    """Schema that published messages must match; null if there is none."""

    def __post_init__(self) -> None:
        """Convert a plain timedelta."""
        set_units(self)


class StoredTopic(Topic):
    """A topic with its creation time and creator."""

    created_at: Time
    """Time at which the resource was created."""
    created_by: str
    """Name of the key or user that created the resource."""


class TopicDetail(StoredTopic):
    """A topic with its subscriptions."""

    subscriptions: list[str]
    """Names of the subscriptions to the topic."""


class PublishResult(Record):
    """The messages of a publish request, as stored."""

    message_ids: list[str]
    """Message ids, in the order of the request."""
    subscriptions: int
    """Number of subscriptions to the topic; if 0, no subscription receives the messages."""


class SecretReference(Record):
    """A reference to a secret; the sending process reads its value."""

    name: str = field(name="$secret")
    """Name of the secret."""


class OidcSettings(Record, omit_defaults=True):
    """The OIDC token that is sent with each request."""

    email: str = field(name="service_account_email")
    """E-mail address in the token."""
    audience: str | None = None
    """Audience of the token; the endpoint when omitted."""


class UnwrappedSettings(Record, omit_defaults=True):
    """Sends the payload of a message as the body, without an envelope."""

    writes_metadata: bool = field(name="write_metadata", default=False)
    """Whether the fields of the envelope are sent as headers."""


class PushSettings(Record, omit_defaults=True):
    """Endpoint and authentication of a push subscription."""

    endpoint: str = field(name="push_endpoint")
    """URL that receives the messages."""
    oidc: OidcSettings | None = field(name="oidc_token", default=None)
    """Token sent with each request; none when omitted."""
    signing_secrets: list[SecretReference] = field(default_factory=list)
    """Secrets (`whsec_…`) that requests are signed with, newest first."""
    unwrapped: UnwrappedSettings | None = field(name="no_wrapper", default=None)
    """Sends the payload without an envelope; when omitted, messages are wrapped in one."""


class SubscriptionBinding(Record, omit_defaults=True):
    """Effect of the messages of a bound subscription: what they start or report."""

    kind: BindingKind = field(name="to")
    """`configs` starts configs, `runs` creates runs, `completions` reports completions."""
    pipeline: str | None = None
    """Pipeline of the runs or completions; omitted for configs."""
    processor: str | None = None
    """Processor that executes the runs; only with `to: runs`."""


class AutoReplay(Record):
    """Automatic replay of a subscription's dead letters."""

    health_url: str
    """URL that is requested before a replay; dead letters are replayed while it returns 2xx."""
    after: DurationInput = "10m"
    """Minimum age of a dead letter, such as `10m`."""
    rate: float = 10.0
    """Replays per second."""

    def __post_init__(self) -> None:
        """Convert a plain timedelta."""
        if isinstance(self.after, timedelta):
            force_setattr(self, "after", f"{self.after.total_seconds():g}s")


class SubscriptionSettings(Record):
    """Settings of a subscription, as declared and as stored."""

    name: Annotated[str, Meta(max_length=255, examples=["rosters-to-table"])]
    """Name of the subscription, unique per customer."""
    topic: Name
    """Name of the topic it receives messages from; it cannot be changed later."""
    kind: SubscriptionKind = "pull"
    """`pull` by consumers, `push` over HTTP, or `bound` to configs, runs or completions."""
    ack_deadline: Seconds = field(
        name="ack_deadline_seconds", default_factory=lambda: seconds(MINUTE)
    )
    """Time that a consumer has to settle a delivery before it is redelivered, in whole seconds
    from 10 to 600.
    """
    min_backoff: Seconds = field(
        name="min_backoff_seconds", default_factory=lambda: seconds(10 * SECOND)
    )
    """Seconds until the first redelivery after a failed attempt, up to 600; 0 redelivers
    immediately."""
    max_backoff: Seconds = field(
        name="max_backoff_seconds", default_factory=lambda: seconds(10 * MINUTE)
    )
    """Maximum delay in seconds between two attempts, including jitter; up to 600."""
    max_attempts: Annotated[int, Meta(ge=1, le=100)] = field(
        name="max_delivery_attempts", default=5
    )
    """Number of failed attempts after which a message becomes a dead letter."""
    dead_letter_topic: Name | None = None
    """Topic for dead letters; null if the subscription keeps none."""
    retention: Seconds = field(name="retention_seconds", default_factory=lambda: seconds(7 * DAY))
    """How long unacknowledged messages are kept, in whole seconds: 10 minutes to 31 days."""
    is_ordered: bool = field(name="enable_message_ordering", default=False)
    """Whether messages of an ordering key are delivered in publish order. It cannot
    be changed later."""
    filter: Annotated[str, Meta(max_length=256)] | None = None
    """Expression over attributes; messages that do not match are skipped."""
    push: PushSettings | None = None
    """Endpoint and authentication for kind `push`; null for other kinds."""
    binding: SubscriptionBinding | None = None
    """Effect of messages for kind `bound`; null for other kinds."""
    auto_replay: AutoReplay | None = None
    """Settings of automatic replay; null if dead letters are not replayed automatically."""
    replays_max: Annotated[int, Meta(ge=0, le=REPLAYS_MAX)] = 3
    """Maximum number of replays per message."""
    labels: Labels = field(default_factory=dict)
    """Labels by name, for your own use; at most 64."""
    is_exactly_once: bool = field(name="enable_exactly_once_delivery", default=False)
    """Whether clients of Google Pub/Sub get an error for an ack id that is no longer valid.
    The bus refuses stale acks either way."""
    keeps_acked: bool = field(name="retain_acked_messages", default=False)
    """Stored for Google Pub/Sub clients. It has no effect: a seek can always return to acked
    messages.
    """
    expires_after: Seconds | None = field(name="expiration_ttl_seconds", default=None)
    """Stored for Google Pub/Sub clients. It has no effect: unused subscriptions are never deleted.
    """

    def __post_init__(self) -> None:
        """Convert plain timedeltas."""
        set_units(self)


class Subscription(SubscriptionSettings):
    """A subscription to create or change."""

    dead_letter_topic: Name | None = None
    """Topic for dead letters; `<name>.dlq` when omitted."""
    has_dead_letters: bool = field(name="dead_letters", default=True)
    """Whether poison and exhausted messages become dead letters."""
    version: Annotated[int, Meta(ge=1)] | None = None
    """Version that the change is based on; the request fails if it is outdated."""


class Backlog(Record):
    """Unsettled deliveries of a subscription; each count stops at 10,000."""

    ready: int
    """Number of deliveries ready to be pulled."""
    leased: int
    """Number of deliveries that consumers hold."""
    delayed: int
    """Number of deliveries waiting for their retry time."""
    behind: int = field(name="behind_ordering_key")
    """Number of deliveries waiting behind another delivery of the same ordering key."""
    oldest_at: Time | None = field(name="oldest_publish_time")
    """Publish time of the oldest unsettled message; null if there is none."""


class StoredSubscription(SubscriptionSettings):
    """A subscription to a topic."""

    is_paused: bool
    """Whether delivery is paused."""
    is_detached: bool
    """Whether the subscription is detached: it receives no more messages and cannot be pulled."""
    version: int
    """Version, incremented by every change."""
    created_at: Time
    """Time at which the resource was created."""
    created_by: str
    """Name of the key or user that created the resource."""
    backlog: Backlog | None = None
    """Unsettled deliveries; only in lists that ask for it, otherwise null."""


class DeliveryCounters(Record):
    """Counters of a subscription's deliveries."""

    accepted: int
    """Number of messages that it received from its topic."""
    delivered: int
    """Number of delivery attempts, redeliveries included."""
    acked: int
    """Number of deliveries that were acknowledged."""
    nacked: int
    """Number of deliveries that were nacked."""
    lapsed: int
    """Number of deliveries whose ack deadline passed."""
    dead_lettered: int
    """Number of deliveries that became dead letters."""
    expired: int
    """Number of deliveries removed by retention."""
    purged: int
    """Number of deliveries removed by a purge or seek."""
    replayed: int
    """Number of deliveries repeated by a replay or seek."""


class SubscriptionDetail(Record):
    """A subscription with its backlog and counters."""

    subscription: StoredSubscription
    """Settings of the subscription."""
    backlog: Backlog
    """Deliveries that are not settled."""
    totals: DeliveryCounters = field(name="sums")
    """Counters of its deliveries."""


class StoredMessage(Record):
    """A published message."""

    message_id: str
    """Id that was assigned when the message was published."""
    data: bytes
    """Payload of the message, base64-encoded."""
    attributes: dict[str, str]
    """Attributes of the message, string values by name."""
    ordering_key: str | None
    """Ordering key of the message; null if it has none."""
    publish_time: Time
    """Time at which the message was published."""


class DeliveryState(Record):
    """The state of a message in one subscription."""

    subscription: str
    """Name of the subscription."""
    state: str
    """`ready`, `leased`, `delayed` or `behind`; once settled, `acked`, `dead_lettered`, `expired`
    or `purged`.
    """
    generation: int = field(name="round")
    """Generation of the delivery; each replay or seek starts the next."""
    attempts: int
    """Number of delivery attempts in this generation."""
    replays: int
    """Number of replays so far."""
    at: Time
    """Time at which it is due, its lease expires, or it was settled."""
    last_error: str | None
    """Reason for the last nack; null if there was none."""


class MessageDetail(StoredMessage):
    """A message with its deliveries."""

    topic: str
    """Topic that it was published to."""
    expires_at: Time
    """Time at which retention removes the message."""
    deliveries: list[DeliveryState]
    """One entry per subscription and generation."""


class ReceivedMessage(Record):
    """A message leased to a consumer."""

    ack_id: str
    """Id to settle this delivery with; invalid once it is redelivered."""
    attempt: int = field(name="delivery_attempt")
    """Number of the delivery attempt, counted from 1."""
    deadline: Time
    """Time by which the delivery must be settled or extended."""
    message: StoredMessage
    """The delivered message."""


class SeekResult(Record):
    """The effect of a seek."""

    time: Time
    """Time that the subscription was set to."""
    purged: int
    """Number of older deliveries that were removed."""
    delivered_again: int
    """Number of settled deliveries that are delivered again."""


class NewSnapshot(Record):
    """A request to take a snapshot of a subscription."""

    name: Name
    """Name of the snapshot, unique per customer."""
    subscription: Name
    """Subscription to capture."""
    labels: Labels = field(default_factory=dict)
    """Labels by name, for your own use; at most 64."""


class StoredSnapshot(Record):
    """The state of a subscription at a time, which subscriptions to its topic can seek to."""

    name: str
    """Name of the snapshot."""
    topic: str
    """Topic of the subscription that it was taken from."""
    taken_at: Time
    """Time at which it was taken. It covers messages unacked then, and all published later."""
    expires_at: Time
    """Time at which it is deleted: 7 days after its oldest open message was published."""
    labels: dict[str, str]
    """Labels by name."""


class Schema(Record):
    """A schema of messages, or a new revision of one."""

    name: Name
    """Name of the schema, unique per customer."""
    definition: Annotated[str, Meta(max_length=300_000)]
    """The schema itself: Avro as JSON, or a Protobuf file."""
    kind: SchemaKind = field(name="type", default="avro")
    """Language of the definition. Messages are checked against Avro only."""


class StoredSchema(Schema):
    """One revision of a schema."""

    revision_id: str
    """Id of the revision."""
    created_at: Time
    """Time at which the revision was created."""
