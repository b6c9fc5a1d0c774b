"""Redelivery: whether a nacked or expired delivery is retried or becomes a dead letter.

Pure: the jitter is an argument. The delay grows from the subscription's minimum to its maximum
backoff and is never below the minimum. Without a dead-letter policy a message is redelivered, with
growing delays, until its retention ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.bus.message import (
    ERROR_KIND,
    ERROR_MESSAGE,
    ERROR_TYPE,
    ORIGIN_MESSAGE_ID,
    REPLAYS,
    SOURCE_DELIVERY_COUNT,
    SOURCE_PUBLISH_TIME,
    SOURCE_SUBSCRIPTION,
    SOURCE_SUBSCRIPTION_PROJECT,
    ErrorKind,
)
from penstock.core.clock import Micros, iso

JITTER_SHARE: Final = 0.25
DELAY_MAX: Final = 24 * 3600 * 1_000_000
ERROR_MAX: Final = 1_000
PROJECT: Final = "penstock"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedeliveryPolicy:
    """Failure policy of a subscription."""

    min_backoff_us: Micros
    max_backoff_us: Micros
    max_attempts: int
    has_dead_letters: bool


def redelivery_backoff(policy: RedeliveryPolicy, attempt: int, jitter: float) -> Micros:
    """Return the delay after a failed attempt, at most the policy's maximum; 0 if its minimum is 0.

    `jitter` in [0, 1) adds up to a quarter of it, so that deliveries that failed at the same time
    are not retried at the same time.
    """
    exponent = min(max(attempt - 1, 0), 40)
    base = min(policy.min_backoff_us << exponent, policy.max_backoff_us)
    spread = int(base * JITTER_SHARE * min(max(jitter, 0.0), 1.0))
    return min(base + spread, policy.max_backoff_us)


def becomes_dead_letter(policy: RedeliveryPolicy, attempt: int, kind: ErrorKind) -> bool:
    """Return whether a failed delivery becomes a dead letter.

    A poison message does so immediately, any other after its last attempt.
    """
    if not policy.has_dead_letters:
        return False
    return kind is ErrorKind.POISON or attempt >= policy.max_attempts


def redelivery_delay(
    policy: RedeliveryPolicy, attempt: int, jitter: float, asked_us: Micros | None
) -> Micros:
    """Return the delay of a redelivery: the backoff, or `asked_us` (at most a day) if longer."""
    return max(redelivery_backoff(policy, attempt, jitter), min(asked_us or 0, DELAY_MAX))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterCause:
    """Failure report of a message, written to its copy in the dead-letter topic."""

    message_id: int | str
    subscription: str
    attempts: int
    replays: int
    published_at: Micros
    kind: ErrorKind
    error_type: str
    error: str


def dead_letter_attributes(death: DeadLetterCause) -> dict[str, str]:
    """Return the attributes added to a dead letter: four defined by Google Pub/Sub, and Penstock's
    own.
    """
    return {
        SOURCE_DELIVERY_COUNT: str(death.attempts),
        SOURCE_SUBSCRIPTION: death.subscription,
        SOURCE_SUBSCRIPTION_PROJECT: PROJECT,
        SOURCE_PUBLISH_TIME: iso(death.published_at),
        ORIGIN_MESSAGE_ID: str(death.message_id),
        REPLAYS: str(death.replays),
        ERROR_KIND: death.kind.value,
        ERROR_TYPE: death.error_type,
        ERROR_MESSAGE: death.error[:ERROR_MAX],
    }
