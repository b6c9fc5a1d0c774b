"""Records of messages, deliveries and subscriptions, shared by all transports and the consumer kit.

A message has data (bytes) and text attributes. A delivery is one attempt to deliver a message,
identified by an ack id that becomes stale when the message is delivered again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock.core.clock import SECOND, Micros

DEAD_LETTER_SUFFIX: Final = ".dlq"

# System topics that always exist and can be subscribed to, as can <pipeline>.<phase>.complete and
# <pipeline>.<phase>.trigger of every pipeline.
BUILTIN_TOPICS: Final = frozenset(
    {
        "penstock.orchestration-status",
        "penstock.dependency-check-failed",
        "penstock.slo-violation",
        "penstock.alerts",
        "penstock.runs",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to publish. Publishing the same `dedupe_id` again returns the first message id."""

    data: bytes = b""
    attributes: Mapping[str, str] = field(default_factory=dict)
    ordering_key: str | None = None
    dedupe_id: str | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Nack:
    """A negative acknowledgement. Poison becomes a dead letter at once; `delay_us` lengthens the
    backoff.
    """

    ack_id: str
    kind: ErrorKind = ErrorKind.TRANSIENT
    error_type: str = ""
    error: str = ""
    delay_us: Micros | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """Declaration of a topic."""

    name: str
    retention_us: Micros = 7 * 86_400 * SECOND


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
