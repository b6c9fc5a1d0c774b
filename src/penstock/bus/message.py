"""Messages as every transport and the consumer kit know them: what is published, what is delivered.

Plain records. A message has bytes and text attributes; a delivery is one handing-over of it under
an ack id, which is worth something only until the next handing-over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock.core.clock import SECOND, Micros

DEAD_LETTER_SUFFIX: Final = ".dlq"

# Topics of the house that are there for whoever subscribes; so are <pipeline>.<phase>.complete and
# .trigger of every pipeline.
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

# Google's names, so that tooling carries over; the rest are ours.
SOURCE_DELIVERY_COUNT: Final = "CloudPubSubDeadLetterSourceDeliveryCount"
SOURCE_SUBSCRIPTION: Final = "CloudPubSubDeadLetterSourceSubscription"
SOURCE_SUBSCRIPTION_PROJECT: Final = "CloudPubSubDeadLetterSourceSubscriptionProject"
SOURCE_PUBLISH_TIME: Final = "CloudPubSubDeadLetterSourceTopicPublishTime"
ORIGIN_MESSAGE_ID: Final = "penstock-origin-message-id"
REPLAYS: Final = "penstock-replays"
ERROR_KIND: Final = "penstock-error-kind"
ERROR_TYPE: Final = "penstock-error-type"
ERROR_TEXT: Final = "penstock-error"


class ErrorKind(StrEnum):
    """What a failure to handle a message means for the message."""

    POISON = "poison"
    TRANSIENT = "transient"
    CONFIGURATION = "configuration"


class Settling(StrEnum):
    """What became of an ack, a nack or an extension."""

    DONE = "done"
    STALE = "stale"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message to be published. `dedupe_id`: publishing it again answers the first message id."""

    data: bytes = b""
    attributes: Mapping[str, str] = field(default_factory=dict)
    ordering_key: str | None = None
    dedupe_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One handing-over of a message. `attempt` counts from 1 and is stored before this exists."""

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
    """A refusal. Poison goes straight to the dead letters; `delay_us` lengthens the backoff."""

    ack_id: str
    kind: ErrorKind = ErrorKind.TRANSIENT
    error_type: str = ""
    error: str = ""
    delay_us: Micros | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic as it is declared."""

    name: str
    retention_us: Micros = 7 * 86_400 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSpec:
    """A subscription as it is declared. `dead_letter_topic` None means no dead-letter policy."""

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
