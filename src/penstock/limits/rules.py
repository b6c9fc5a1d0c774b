"""Limits: grants in ticket order, adaptive capacity, and validation of names and settings.

Pure. The store calls these rules while it holds the lock on the limit's row; the broker and the
command line use the same validation of names and settings. Free capacity is computed from the
leases held at that moment, never from a counter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypedDict

from penstock.core.clock import DAY, MINUTE, SECOND, Duration, Micros, parse_duration
from penstock.core.errors import InvalidInput
from penstock.core.naming import LIMIT_CAPACITY_MAX, LIMIT_NAME_MAX

CAPACITY_DEFAULT: Final = 10
LEASE_DEFAULT: Final = 10 * MINUTE
LEASE_MIN: Final = SECOND
LEASE_MAX: Final = DAY
RATE_MAX: Final = 1_000_000.0
RATE_MIN: Final = 0.000_01
BURST_MAX: Final = 1_000_000
DECREASE: Final = 0.5
ROUNDING_TOLERANCE: Final = 1e-6
"""Tolerance for sums of fractions, so that three times a third counts as one."""
QUOTA_INTERVAL: Final = SECOND
"""Interval in which quota errors without a lease lower the capacity at most once."""
HISTORY_KEPT: Final = 100

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.:/@#$*+=,-]{{0,{LIMIT_NAME_MAX - 1}}}", re.ASCII)
_EXPECTED_NAME = (
    f"a letter or digit, then at most {LIMIT_NAME_MAX - 1} letters, digits or "
    "_ . : / @ # $ * + = , -"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """Configuration of a limit.

    capacity: slots that may be held at a time; None is unlimited, 0 grants nothing. floor: minimum
    that quota errors may lower an adaptive capacity to. lease_us: duration of a lease. grace_us:
    time for which an expired lease still counts, for holders that notice the expiry late.
    queue_max: maximum number of waiting requests; None is unlimited. rate: tokens per second.
    burst: maximum number of saved tokens.
    """

    capacity: int | None = CAPACITY_DEFAULT
    is_adaptive: bool = False
    floor: int = 1
    lease_us: Micros = LEASE_DEFAULT
    grace_us: Micros = 0
    queue_max: int | None = None
    rate: float | None = None
    burst: int | None = None

    def __post_init__(self) -> None:
        _whole("capacity", self.capacity, 0, LIMIT_CAPACITY_MAX)
        _whole("floor", self.floor, 1, LIMIT_CAPACITY_MAX)
        _whole("queue_max", self.queue_max, 0, LIMIT_CAPACITY_MAX)
        _whole("burst", self.burst, 1, BURST_MAX)
        if not isinstance(self.is_adaptive, bool):
            raise InvalidInput("adaptive", "true or false", self.is_adaptive)
        if not LEASE_MIN <= self.lease_us <= LEASE_MAX:
            got = f"{self.lease_us / SECOND:g}s"
            raise InvalidInput("lease", "from 1s to 1d", got, "Held leases are renewed.")
        if not 0 <= self.grace_us <= LEASE_MAX:
            raise InvalidInput("grace", "from 0s to 1d", f"{self.grace_us / SECOND:g}s")
        if self.rate is not None:
            _rate(self.rate)
        elif self.burst is not None:
            raise InvalidInput("burst", "a rate as well", self.burst, "Set rate=… too.")
        if self.capacity is None and self.rate is None:
            fix = "Set capacity=…, rate=… or both."
            raise InvalidInput("capacity", "a capacity or a rate", None, fix)
        if self.is_adaptive and self.capacity is None:
            fix = "Set capacity=…, the maximum that the limit adapts up to."
            raise InvalidInput("adaptive", "a capacity as well", True, fix)

    @property
    def burst_now(self) -> int:
        """Maximum number of saved tokens: `burst`, or one second's worth of `rate` if not set."""
        if self.burst is not None:
            return self.burst
        return max(1, math.floor(self.rate or 1))


class SlotLimitOptions(TypedDict, total=False):
    """Settings of a slot request for a limit that does not exist yet; see LimitSettings."""

    capacity: int | None
    adaptive: bool
    floor: int
    grace: Duration
    queue_max: int | None
    rate: float | None
    burst: int | None


class LimitOptions(SlotLimitOptions, total=False):
    """Settings of a limit as users write them; see LimitSettings."""

    lease: Duration


LIMIT_SETTING_NAMES: Final = tuple(field.name for field in fields(LimitSettings))


def parse_limit_settings(
    given: Mapping[str, Any], base: LimitSettings | None = None
) -> LimitSettings:
    """Return the terms for settings as users write them (`lease="5m"`, `adaptive=True`).

    Settings that are not given are taken from `base`, or from the defaults if it is None.
    """
    named: dict[str, Any] = {}
    for key, value in given.items():
        if key == "adaptive":
            named["is_adaptive"] = value
        elif key in ("lease", "grace"):
            named[f"{key}_us"] = parse_duration(value, key)
        elif key in LIMIT_SETTING_NAMES:
            named[key] = value
        else:
            known = "capacity, adaptive, floor, lease, grace, queue_max, rate, burst"
            raise InvalidInput(str(key)[:60], "a setting of a limit", value, f"Known: {known}.")
    return LimitSettings(**named) if base is None else replace(base, **named)


def check_limit_name(name: object, field: str = "limit") -> str:
    """Return the name if it is a valid name for a limit. Raise InvalidInput otherwise."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        fix = 'For example "bq:sales.orders".'
        raise InvalidInput(field, _EXPECTED_NAME, name, fix)
    return name


def check_weight(weight: object, capacity: int | None, name: str) -> int:
    """Return the weight if it is valid. Raise InvalidInput if it exceeds the capacity."""
    if isinstance(weight, bool) or not isinstance(weight, int) or weight < 1:
        raise InvalidInput("weight", "a whole number from 1", weight)
    if capacity and weight > capacity:
        fix = f"Request less, or raise the capacity of limit {name}."
        raise InvalidInput("weight", f"at most {capacity}, the capacity of {name}", weight, fix)
    return weight


def effective_capacity(
    capacity: int | None, learned: float | None, floor: int, *, is_adaptive: bool
) -> int | None:
    """Return the capacity in force: as configured, or as lowered by quota errors."""
    if capacity is None or learned is None or not is_adaptive:
        return capacity
    return max(min(floor, capacity), min(capacity, int(learned + ROUNDING_TOLERANCE)))


def grantable_count(
    weights: Sequence[int], *, held: int, effective: int | None, capacity: int | None
) -> int:
    """Return how many tickets at the head of the queue are granted now.

    `weights` are those of the waiting tickets, in ticket order. Tickets never overtake each other:
    the first one that does not fit stops the grant. A ticket whose weight exceeds the lowered
    capacity is granted once nothing else is held; otherwise it would never be granted.
    """
    if effective is None or capacity is None:
        return len(weights)
    for index, weight in enumerate(weights):
        is_alone = held == 0 and weight <= capacity
        if held + weight > effective and not is_alone:
            return index
        held += weight
    return len(weights)


def is_new_quota_error(now: Micros, *, since_at: Micros | None, lowered_at: Micros | None) -> bool:
    """Return whether a quota error should lower the capacity.

    Errors of holders that were granted before the last reduction belong to the same overload and
    are ignored. since_at: when the holder was granted; None if the error belongs to no lease.
    """
    if lowered_at is None:
        return True
    if since_at is None:
        return now - lowered_at >= QUOTA_INTERVAL
    return since_at >= lowered_at


def lowered_capacity(capacity: int, learned: float | None, floor: int) -> float:
    """Return the learned capacity after a quota error."""
    known = float(capacity) if learned is None else min(learned, float(capacity))
    return max(float(min(floor, capacity)), known * DECREASE)


def raised_capacity(capacity: int, learned: float, floor: int, successes: int) -> float | None:
    """Return the learned capacity after successes at a full limit: each adds 1 / capacity.

    Return None once the configured capacity is reached again.
    """
    value = max(learned, float(min(floor, capacity)))
    for _ in range(min(successes, 10 * LIMIT_CAPACITY_MAX)):
        if value >= capacity - ROUNDING_TOLERANCE:
            return None
        value += 1.0 / max(1, int(value + ROUNDING_TOLERANCE))
    return None if value >= capacity - ROUNDING_TOLERANCE else value


def _whole(field: str, value: object, low: int, high: int) -> None:
    if value is None and field != "floor":
        return
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInput(field, f"a whole number from {low} to {high:,}", value)


def _rate(value: object) -> None:
    expected = f"a number of tokens per second from {RATE_MIN:f} to {RATE_MAX:,.0f}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput("rate", expected, value)
    if not RATE_MIN <= value <= RATE_MAX:  # also rejects NaN
        raise InvalidInput("rate", expected, value)
