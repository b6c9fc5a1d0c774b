"""What becomes of a delivery that was refused or whose deadline passed: wait, or dead letter.

Pure: the jitter is given. Waiting grows from the subscription's shortest to its longest backoff and
is never shorter than the shortest. Without a dead-letter policy nothing dies: a message waits, ever
longer, until its retention ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.bus.message import (
    ERROR_KIND,
    ERROR_TEXT,
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
class Policy:
    """What a subscription says about failures."""

    min_backoff_us: Micros
    max_backoff_us: Micros
    max_attempts: int
    has_dead_letters: bool


def backoff(policy: Policy, attempt: int, jitter: float) -> Micros:
    """How long to wait after the n-th attempt failed; `jitter` in [0, 1) lengthens by a quarter."""
    exponent = min(max(attempt - 1, 0), 40)
    base = min(policy.min_backoff_us << exponent, policy.max_backoff_us)
    return base + int(base * JITTER_SHARE * min(max(jitter, 0.0), 1.0))


def is_dead(policy: Policy, attempt: int, kind: ErrorKind) -> bool:
    """Whether a failed delivery is a dead letter: poison at once, else after the last attempt."""
    if not policy.has_dead_letters:
        return False
    return kind is ErrorKind.POISON or attempt >= policy.max_attempts


def delay(policy: Policy, attempt: int, jitter: float, asked_us: Micros | None) -> Micros:
    """How long a failed delivery waits; what was asked for lengthens the backoff, up to a day."""
    return max(backoff(policy, attempt, jitter), min(asked_us or 0, DELAY_MAX))


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """How a message died, as its copy in the dead-letter topic tells."""

    message_id: int
    subscription: str
    attempts: int
    replays: int
    published_at: Micros
    kind: ErrorKind
    error_type: str
    error: str


def dead_letter_attributes(death: Death) -> dict[str, str]:
    """What is added to a dead letter's own attributes: Google's four, and ours."""
    return {
        SOURCE_DELIVERY_COUNT: str(death.attempts),
        SOURCE_SUBSCRIPTION: death.subscription,
        SOURCE_SUBSCRIPTION_PROJECT: PROJECT,
        SOURCE_PUBLISH_TIME: iso(death.published_at),
        ORIGIN_MESSAGE_ID: str(death.message_id),
        REPLAYS: str(death.replays),
        ERROR_KIND: death.kind.value,
        ERROR_TYPE: death.error_type,
        ERROR_TEXT: death.error[:ERROR_MAX],
    }
