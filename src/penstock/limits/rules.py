"""Limits: who may go next, what a quota error teaches, and which settings make sense.

Pure. The store calls these rules while it holds the lock on the limit's row; the broker and the
command line use the same checks of names and settings. Capacity is judged over what is held at that
moment, never over a counter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from penstock.core.clock import DAY, MINUTE, SECOND, Micros, parse_duration
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
ROUNDING: Final = 1e-6
"""Three times a third is one: sums of fractions may fall short by this much."""
QUOTA_INTERVAL: Final = SECOND
"""Quota errors that belong to no lease lower the capacity at most once in this time."""
HISTORY_KEPT: Final = 100

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.:/@#$*+=,-]{{0,{LIMIT_NAME_MAX - 1}}}", re.ASCII)
_EXPECTED_NAME = (
    f"a letter or digit, then at most {LIMIT_NAME_MAX - 1} letters, digits or "
    "_ . : / @ # $ * + = , -"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitTerms:
    """How a limit is configured.

    capacity: how many may hold it, None: any number, 0: nobody for now. floor: the least that quota
    errors may bring an adaptive capacity down to. grace_us: how long a lease that ran out still
    counts, for holders that may be slow to notice. queue_max: most who may wait. rate: tokens per
    second; burst: how many may be saved up.
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
            raise InvalidInput("lease", "from 1s to 1d", got, "A broker renews it meanwhile.")
        if not 0 <= self.grace_us <= LEASE_MAX:
            raise InvalidInput("grace", "from 0s to 1d", f"{self.grace_us / SECOND:g}s")
        if self.rate is not None:
            _rate(self.rate)
        elif self.burst is not None:
            raise InvalidInput("burst", "a rate beside it", self.burst, "Say rate=… as well.")
        if self.capacity is None and self.rate is None:
            fix = "Give capacity=…, rate=… or both."
            raise InvalidInput("capacity", "a capacity or a rate", None, fix)
        if self.is_adaptive and self.capacity is None:
            fix = "Adapting means lowering and raising it."
            raise InvalidInput("adaptive", "a capacity beside it", True, fix)

    @property
    def burst_now(self) -> int:
        """How many tokens may be saved up: as configured, else what one second brings."""
        if self.burst is not None:
            return self.burst
        return max(1, math.floor(self.rate or 1))


TERM_NAMES: Final = tuple(field.name for field in fields(LimitTerms))


def terms_of(given: dict[str, Any], base: LimitTerms | None = None) -> LimitTerms:
    """Read settings as people write them (`lease="5m"`, `adaptive=True`) over `base`."""
    named: dict[str, Any] = {}
    for key, value in given.items():
        if key == "adaptive":
            named["is_adaptive"] = value
        elif key in ("lease", "grace"):
            named[f"{key}_us"] = parse_duration(value, key)
        elif key in TERM_NAMES:
            named[key] = value
        else:
            known = "capacity, adaptive, floor, lease, grace, queue_max, rate, burst"
            raise InvalidInput(str(key)[:60], "a setting of a limit", value, f"Known: {known}.")
    return LimitTerms(**named) if base is None else replace(base, **named)


def name_check(name: object, field: str = "limit") -> str:
    """Return the name of a limit; InvalidInput unless it can be one."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        fix = 'For example "bq:sales.orders".'
        raise InvalidInput(field, _EXPECTED_NAME, name, fix)
    return name


def weight_check(weight: object, capacity: int | None, name: str) -> int:
    """Return how much of a limit is wanted; InvalidInput when it could never be had."""
    if isinstance(weight, bool) or not isinstance(weight, int) or weight < 1:
        raise InvalidInput("weight", "a whole number from 1", weight)
    if capacity and weight > capacity:
        fix = f"Ask for less, or raise the capacity of limit {name}."
        raise InvalidInput("weight", f"at most {capacity}, the capacity of {name}", weight, fix)
    return weight


def effective(
    capacity: int | None, learned: float | None, floor: int, *, is_adaptive: bool
) -> int | None:
    """Return how much may be held now: as configured, or as quota errors taught."""
    if capacity is None or learned is None or not is_adaptive:
        return capacity
    return max(min(floor, capacity), min(capacity, int(learned + ROUNDING)))


def granted(line: Sequence[int], *, held: int, effective: int | None, capacity: int | None) -> int:
    """Return how many at the head of the line go now, given their weights in ticket order.

    Nobody is overtaken: the first who does not fit ends it. A weight above what quota errors left
    of the capacity goes alone, otherwise it would never go.
    """
    if effective is None or capacity is None:
        return len(line)
    for place, weight in enumerate(line):
        is_alone = held == 0 and weight <= capacity
        if held + weight > effective and not is_alone:
            return place
        held += weight
    return len(line)


def is_new_quota_error(now: Micros, *, since_at: Micros | None, lowered_at: Micros | None) -> bool:
    """Tell whether a quota error says something new.

    Those of one round are told once: who was let in before the capacity was lowered only repeats
    what is known. since_at: when the one with the error was let in, None when nobody knows.
    """
    if lowered_at is None:
        return True
    if since_at is None:
        return now - lowered_at >= QUOTA_INTERVAL
    return since_at >= lowered_at


def lowered(capacity: int, learned: float | None, floor: int) -> float:
    """Return the learned capacity after a quota error."""
    known = float(capacity) if learned is None else min(learned, float(capacity))
    return max(float(min(floor, capacity)), known * DECREASE)


def raised(capacity: int, learned: float, floor: int, successes: int) -> float | None:
    """Return the learned capacity after successes of a full limit: one more per full round.

    None: it is back at what was configured, nothing is left to learn.
    """
    value = max(learned, float(min(floor, capacity)))
    for _ in range(min(successes, 10 * LIMIT_CAPACITY_MAX)):
        if value >= capacity - ROUNDING:
            return None
        value += 1.0 / max(1, int(value + ROUNDING))
    return None if value >= capacity - ROUNDING else value


def _whole(field: str, value: object, low: int, high: int) -> None:
    if value is None and field != "floor":
        return
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInput(field, f"a whole number from {low} to {high:,}", value)


def _rate(value: object) -> None:
    expected = f"a number of tokens per second from {RATE_MIN:f} to {RATE_MAX:,.0f}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput("rate", expected, value)
    if not RATE_MIN <= value <= RATE_MAX:  # also refuses NaN
        raise InvalidInput("rate", expected, value)
