"""Retries: the policy of each error type, the backoff, and whether there is a next attempt.

``decide_retry`` is total: every failed attempt is either retried after a delay or dead, and
attempts are bounded even if the caller forces a retry. It uses no randomness and reads no clock:
the jitter is an argument. The worker and the sweepers call it; ``core.error_classification`` maps
exceptions to error types.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from penstock.core.clock import DAY, MINUTE, Micros
from penstock.core.errors import InvalidInput

ATTEMPTS_DEFAULT: Final = 3
ATTEMPTS_MAX: Final = 100
BASE_DELAY_DEFAULT: Final = 5 * MINUTE
MULTIPLIER_DEFAULT: Final = 2.0
DELAY_CAP_DEFAULT: Final = DAY
DELAY_CAP_MAX: Final = 30 * DAY
JITTER_SHARE: Final = 0.25
ERROR_TYPE_MAX: Final = 64


class ErrorType(StrEnum):
    """The built-in error types; users may report any other name."""

    RATE_LIMIT_EXCEEDED = "RATE_LIMIT_EXCEEDED"
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"
    TRANSIENT_NETWORK = "TRANSIENT_NETWORK"
    TRANSIENT_ERROR = "TRANSIENT_ERROR"
    TIMEOUT = "TIMEOUT"
    STALE_EXECUTION = "STALE_EXECUTION"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    AUTHENTICATION_FAILED = "AUTHENTICATION_FAILED"
    AUTHORIZATION_FAILED = "AUTHORIZATION_FAILED"
    INVALID_CONFIGURATION = "INVALID_CONFIGURATION"
    RESOURCE_NOT_FOUND = "RESOURCE_NOT_FOUND"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    PERMANENT_ERROR = "PERMANENT_ERROR"
    CLAIM_LAPSED = "CLAIM_LAPSED"
    STOP_IGNORED = "STOP_IGNORED"
    EXPIRED = "EXPIRED"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Default retry policy of an error type; settings of the config override it."""

    max_attempts: int = ATTEMPTS_DEFAULT
    base_delay_us: Micros = BASE_DELAY_DEFAULT
    permanent: bool = False


_DEFAULT = RetryPolicy()
_PERMANENT = RetryPolicy(permanent=True)

POLICIES: Final[Mapping[str, RetryPolicy]] = MappingProxyType(
    {
        ErrorType.RATE_LIMIT_EXCEEDED: RetryPolicy(5, 15 * MINUTE),
        # Already retried in place for ten minutes (SPEC section 10).
        ErrorType.QUOTA_EXCEEDED: RetryPolicy(5, 15 * MINUTE),
        ErrorType.SERVICE_UNAVAILABLE: RetryPolicy(3, 10 * MINUTE),
        ErrorType.TRANSIENT_NETWORK: RetryPolicy(3, 5 * MINUTE),
        ErrorType.TIMEOUT: RetryPolicy(3, 5 * MINUTE),
        ErrorType.AUTHENTICATION_FAILED: _PERMANENT,
        ErrorType.AUTHORIZATION_FAILED: _PERMANENT,
        ErrorType.INVALID_CONFIGURATION: _PERMANENT,
        ErrorType.RESOURCE_NOT_FOUND: _PERMANENT,
        ErrorType.VALIDATION_ERROR: _PERMANENT,
        ErrorType.PERMANENT_ERROR: _PERMANENT,
    }
)
"""Policies by error type; all other error types have the default policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryConfig:
    """Retry settings of a config; None selects the default of the error type."""

    max_attempts: int | None = None
    base_delay_us: Micros | None = None
    multiplier: float | None = None
    max_delay_us: Micros | None = None
    timeout_multiplier: float | None = None

    @classmethod
    def parse(cls, value: object, field: str = "retry_config") -> RetryConfig:
        """Parse the JSON form; None means no settings. Raise InvalidInput for an invalid key."""
        if value is None:
            return cls()
        if not isinstance(value, Mapping):
            raise InvalidInput(field, "an object", value)
        for key in value:
            if key not in _KEYS:
                fix = f"Known keys: {', '.join(_KEYS)}."
                raise InvalidInput(f"{field}.{key}"[:100], "a known key", key, fix)
        numbers = {key: _number(value.get(key), f"{field}.{key}", *_KEYS[key]) for key in _KEYS}
        attempts = numbers["max_attempts"]
        if attempts is not None and attempts != int(attempts):
            raise InvalidInput(f"{field}.max_attempts", "a whole number", value["max_attempts"])
        return cls(
            max_attempts=None if attempts is None else int(attempts),
            base_delay_us=_minutes(numbers["base_delay_minutes"]),
            multiplier=numbers["backoff_multiplier"],
            max_delay_us=_minutes(numbers["max_delay_minutes"]),
            timeout_multiplier=numbers["timeout_multiplier"],
        )

    def over(self, other: RetryConfig) -> RetryConfig:
        """Return these settings; unset ones are taken from `other`."""
        return RetryConfig(
            **{
                name: getattr(other, name) if getattr(self, name) is None else getattr(self, name)
                for name in RetryConfig.__slots__
            }
        )


_KEYS: Final[Mapping[str, tuple[float, float]]] = {
    "max_attempts": (1, ATTEMPTS_MAX),
    "base_delay_minutes": (0, DELAY_CAP_MAX / MINUTE),
    "backoff_multiplier": (1, 10),
    "max_delay_minutes": (0, DELAY_CAP_MAX / MINUTE),
    "timeout_multiplier": (1, 10),
}


@dataclass(frozen=True, slots=True)
class Retry:
    """Decision to make another attempt after a delay."""

    delay_us: Micros
    max_attempts: int
    timeout_multiplier: float = 1.0
    """Factor for the maximum duration of the next attempt."""


@dataclass(frozen=True, slots=True)
class NoRetry:
    """Decision not to make another attempt; the reason is shown to users."""

    reason: str


def decide_retry(
    *,
    error_type: str,
    attempt: int,
    retry: RetryConfig | None = None,
    is_declared: bool = False,
    stale_before: bool = False,
    force_retry: bool | None = None,
    jitter: float = 0.0,
    retry_after_us: Micros | None = None,
) -> Retry | NoRetry:
    """Return whether to retry after attempt number ``attempt`` failed (1 is the first one).

    is_declared: the processor declares `retry=`, which overrides the defaults by error type: a
    permanent error is then retried, too. force_retry: the caller's should_retry; True retries even
    a permanent error type, False never retries, None leaves it to the error type. stale_before: an
    earlier attempt already ended as STALE_EXECUTION. jitter: 0 to 1. retry_after_us: minimum delay
    that the remote service requested; it may exceed the cap of the backoff, up to 30 days.
    """
    assert attempt >= 1, attempt
    settings = retry or RetryConfig()
    policy = POLICIES.get(error_type, _DEFAULT)
    if force_retry is False:
        return NoRetry(
            f"{error_type} is not retried: the processor raised PermanentError, or its worker "
            "reported should_retry=false. Raise another exception, or omit should_retry, to leave "
            "it to the retry settings."
        )
    if policy.permanent and not (force_retry or is_declared):
        return NoRetry(
            f"{error_type} is not retried: it is permanent by default, because another attempt "
            "would fail in the same way. To retry it, declare retry= on the processor, raise "
            "TransientError, or report should_retry=true."
        )
    limit = policy.max_attempts if settings.max_attempts is None else settings.max_attempts
    if attempt >= limit:
        origin = f"the default of {error_type}" if settings.max_attempts is None else "max_attempts"
        attempts = "its only attempt is" if limit == 1 else f"all {limit} attempts are"
        return NoRetry(
            f"failed with {error_type}; {attempts} used up ({origin}). To allow more, set "
            "max_attempts in the processor's retry= or the config's retry_config."
        )
    if error_type == ErrorType.STALE_EXECUTION and not stale_before:
        delay = 0
    else:
        delay = backoff(
            attempt,
            policy.base_delay_us if settings.base_delay_us is None else settings.base_delay_us,
            MULTIPLIER_DEFAULT if settings.multiplier is None else settings.multiplier,
            DELAY_CAP_DEFAULT if settings.max_delay_us is None else settings.max_delay_us,
            jitter,
        )
    if retry_after_us is not None:
        delay = max(delay, min(retry_after_us, DELAY_CAP_MAX))
    longer = settings.timeout_multiplier if error_type == ErrorType.TIMEOUT else None
    return Retry(delay, limit, 1.0 if longer is None else longer)


def backoff(
    attempt: int, base_us: Micros, multiplier: float, cap_us: Micros, jitter: float
) -> Micros:
    """Return base × multiplier^(attempt−1) × (1 + jitter/4), at most the cap; jitter is 0 to 1."""
    assert attempt >= 1, attempt
    assert base_us >= 0, base_us
    assert cap_us >= 0, cap_us
    assert multiplier >= 1.0, multiplier
    assert 0.0 <= jitter <= 1.0, jitter
    if base_us == 0:
        return 0
    # Compare logarithms first: the power itself overflows a float at attempt 1,025.
    if multiplier > 1.0 and (attempt - 1) * math.log(multiplier) > math.log(cap_us + 1):
        return cap_us
    return min(cap_us, int(base_us * multiplier ** (attempt - 1) * (1 + JITTER_SHARE * jitter)))


def normalise_error_type(text: str) -> str:
    """Return the name as an error type: upper snake case, at most 64 characters."""
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text[: 4 * ERROR_TYPE_MAX])
    cleaned = re.sub(r"[^A-Z0-9]+", "_", snake.upper()).strip("_")
    return cleaned[:ERROR_TYPE_MAX].rstrip("_") or ErrorType.UNKNOWN.value


def _number(value: object, field: str, low: float, high: float) -> float | None:
    if value is None:
        return None
    expected = f"a number from {low:g} to {high:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(field, expected, value)
    if not low <= value <= high:  # also rejects NaN
        raise InvalidInput(field, expected, value)
    return float(value)


def _minutes(value: float | None) -> Micros | None:
    return None if value is None else round(value * MINUTE)
