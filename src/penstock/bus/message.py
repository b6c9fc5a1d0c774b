"""Records of messages, deliveries and subscriptions, shared by all transports and the consumer kit.

A message has data (bytes) and text attributes. A delivery is one attempt to deliver a message,
identified by an ack id that becomes stale when the message is delivered again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from penstock.core.clock import SECOND, Micros
from penstock.core.records.record import Meta, Record, Seconds, field, set_units

DEAD_LETTER_SUFFIX: Final = ".dlq"
CORRELATION: Final = "correlation_id"
"""Attribute with the correlation id of a message; everything that the message causes inherits it.
"""
CAUSATION: Final = "causation_id"
"""Attribute with the direct cause of a message: a run or another message."""

# System topics that always exist and can be subscribed to, as can <pipeline>.<phase>.complete and
# <pipeline>.<phase>.trigger of every pipeline.
BUILTIN_TOPICS: Final = frozenset(
    {
        "penstock.orchestration-status",
        "penstock.dependency-check-failed",
        "penstock.slo-violation",
        "penstock.alerts",
        "penstock.runs",
        "penstock.seal-heads",
    }
)
PHASE_TOPICS: Final = (".complete", ".trigger")

# The first four are the names that Google Pub/Sub uses, so that existing tools keep working; the
# others are Penstock's.
SOURCE_DELIVERY_COUNT: Final = "CloudPubSubDeadLetterSourceDeliveryCount"
SOURCE_SUBSCRIPTION: Final = "CloudPubSubDeadLetterSourceSubscription"
SOURCE_SUBSCRIPTION_PROJECT: Final = "CloudPubSubDeadLetterSourceSubscriptionProject"
SOURCE_PUBLISH_TIME: Final = "CloudPubSubDeadLetterSourceTopicPublishTime"
ORIGIN_MESSAGE_ID: Final = "penstock-origin-message-id"
REPLAYS: Final = "penstock-replays"
ERROR_KIND: Final = "penstock-error-kind"
ERROR_TYPE: Final = "penstock-error-type"
ERROR_MESSAGE: Final = "penstock-error"


class ErrorKind(StrEnum):
    """Kind of failure reported by a nack. POISON messages become dead letters without a retry."""

    POISON = "poison"
    TRANSIENT = "transient"
    CONFIGURATION = "configuration"


class SettleResult(StrEnum):
    """Result of an ack, a nack or a deadline extension. STALE: the ack id is no longer valid."""

    DONE = "done"
    STALE = "stale"


class Outcome(StrEnum):
    """How the handling of a delivery ended."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    STALE_IGNORED = "stale_ignored"
    WAITING = "waiting"
    """The gate of the processor waits for data; the next message or check evaluates it again."""
    POISON = "poison"
    RETRY = "retry"


class Handled(Record):
    """How a consumer handled a delivery, for the execution log."""

    outcome: Outcome
    """Outcome of the message; `poison` means that it was dropped, because there is no dead-letter
    topic.
    """
    duration: Seconds | None = field(name="duration_seconds", default=None)
    """Handling time in seconds, excluding time in the consumer's queue; null if unknown."""

    def __post_init__(self) -> None:
        """Convert a plain timedelta."""
        set_units(self)

    @property
    def duration_us(self) -> Micros | None:
        """The duration in microseconds."""
        return None if self.duration is None else self.duration // timedelta(microseconds=1)


class ServiceRevision(NamedTuple):
    """The service that handled deliveries, and the revision of its code; "" if unknown."""

    service: str
    revision: str = ""


class NewMessage(Record):
    """A message to publish."""

    data: bytes = b""
    """Payload of the message, base64-encoded."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Attributes of the message, string values by name."""
    ordering_key: str | None = None
    """Messages with the same key are delivered in publish order."""
    dedupe_id: str | None = None
    """Publishing the same id again returns the id of the first message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One delivery of a message. `attempt` counts from 1 and is stored before the delivery is
    returned.
    """

    ack_id: str
    message_id: str
    subscription: str
    topic: str
    data: bytes
    attributes: Mapping[str, str]
    ordering_key: str | None
    publish_time: Micros
    attempt: int
    deadline: Micros
    has_dead_letters: bool | None = None
    """Whether the subscription has a dead-letter topic; None if the broker does not report it."""


class Nack(Record):
    """A delivery to return, with the reason."""

    ack_id: Annotated[str, Meta(max_length=255)]
    """Ack id as returned by pull."""
    kind: ErrorKind = ErrorKind.TRANSIENT
    """Class of the failure; `poison` makes it a dead letter immediately."""
    error_type: Annotated[str, Meta(max_length=100)] = ""
    """Short name of the error type, up to 100 characters."""
    error: Annotated[str, Meta(max_length=10_000)] = ""
    """Error message, kept with the delivery."""
    delay: Seconds | None = field(name="delay_seconds", default=None)
    """Minimum seconds until redelivery, up to 600; the backoff applies when omitted."""
    handled: Handled | None = None
    """How the consumer handled it; null if not reported."""

    def __post_init__(self) -> None:
        """Convert a plain timedelta."""
        set_units(self)

    @property
    def delay_us(self) -> Micros | None:
        """The delay in microseconds."""
        return None if self.delay is None else self.delay // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """Declaration of a topic."""

    name: str
    retention_us: Micros = 7 * 86_400 * SECOND
    labels: Mapping[str, str] = dataclass_field(default_factory=dict)
    schema_settings: str | None = None
    """Schema of the messages, as canonical JSON; None if they have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSpec:
    """Declaration of a subscription. `dead_letter_topic` None means no dead-letter policy."""

    name: str
    topic: str
    ack_deadline_us: Micros = 60 * SECOND
    min_backoff_us: Micros = 10 * SECOND
    max_backoff_us: Micros = 600 * SECOND
    max_attempts: int = 5
    dead_letter_topic: str | None = None
    retention_us: Micros = 7 * 86_400 * SECOND
    is_ordered: bool = False
    filter: str | None = None
    is_exactly_once: bool = False
    """Whether the broker reports if an ack took effect."""
    labels: Mapping[str, str] = dataclass_field(default_factory=dict)
