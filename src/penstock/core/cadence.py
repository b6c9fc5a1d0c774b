"""Cadences: when a config is due, by cron in a time zone or by an elapsed interval.

Daylight saving, for cron with fixed hours (``0 2 * * *``, ``*/15 9-17 * * *``): a time that does
not exist fires at the next moment that does, a time that occurs twice fires the first time only.
Wildcard and stepped hours (``*``, ``*/2``) follow elapsed time: they fire whenever the wall clock
matches, also twice. All functions are pure, quick (some 10 µs) and bounded; the scheduler, the API
and ``core.misfire`` call them. Slots are micros; nothing here knows what "now" is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from penstock.core.clock import DAY, SECOND, Micros
from penstock.core.cronexpr import CronExpression, normalise, parse
from penstock.core.errors import InvalidInput
from penstock.core.zone import TIME_MIN, Stretch, check_timezone, stretch_at

INTERVAL_MIN: Final = SECOND
INTERVAL_MAX: Final = 3650 * DAY
COUNT_CAP: Final = 1_000_000
"""Counts of slots stop here (almost two years of minutes)."""


class ScheduleType(StrEnum):
    """What makes a config due."""

    CRON = "CRON"
    INTERVAL = "INTERVAL"
    EVENT_DRIVEN = "EVENT_DRIVEN"


class CatchUp(StrEnum):
    """Which missed slots run after downtime."""

    ONE = "one"
    ALL = "all"
    NONE = "none"


class Overlap(StrEnum):
    """What happens when a slot comes while the previous run is not finished."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class Cadence:
    """A cron expression with its zone, or an interval; built by ``cron`` and ``every``."""

    cron: str | None = None
    timezone: str = "UTC"
    interval_us: Micros | None = None


def cron(expr: object, tz: object = "UTC") -> Cadence:
    """Return the cadence of a cron expression; InvalidInput names schedule_cron or timezone."""
    zone = check_timezone(tz)
    return Cadence(cron=parse(normalise(expr)).text, timezone=zone)


def every(interval_us: Micros, field: str = "schedule_interval_minutes") -> Cadence:
    """Return the cadence of an elapsed interval, from a second to ten years."""
    if isinstance(interval_us, bool) or not isinstance(interval_us, int):
        raise InvalidInput(field, "a whole number of microseconds", interval_us)
    if not INTERVAL_MIN <= interval_us <= INTERVAL_MAX:
        raise InvalidInput(field, "an interval from 1 second to 3,650 days", interval_us)
    return Cadence(interval_us=interval_us)


def next_after(cadence: Cadence, t: Micros, anchor: Micros = 0) -> Micros:
    """Return the first slot strictly after t; interval slots are anchor + k·interval."""
    if cadence.interval_us is not None:
        return t + cadence.interval_us - (t - anchor) % cadence.interval_us
    return _next(_expression(cadence), cadence.timezone, t + 1)


def latest_until(
    cadence: Cadence, t: Micros, not_before: Micros | None = None, anchor: Micros = 0
) -> Micros | None:
    """Return the last slot at or before t, None when there is none from ``not_before`` on."""
    if cadence.interval_us is not None:
        found: Micros | None = t - (t - anchor) % cadence.interval_us
    else:
        found = _latest(_expression(cadence), cadence.timezone, t, not_before)
    if found is None or (not_before is not None and found < not_before):
        return None
    return found


def slots_between(
    cadence: Cadence, after: Micros, until: Micros, limit: int, anchor: Micros = 0
) -> list[Micros]:
    """Return the slots in (after, until], oldest first, at most ``limit`` of them."""
    slots: list[Micros] = []
    while len(slots) < limit:
        after = next_after(cadence, after, anchor)
        if after > until:
            break
        slots.append(after)
    return slots


def count_between(
    cadence: Cadence, after: Micros, until: Micros, cap: int = COUNT_CAP, anchor: Micros = 0
) -> int:
    """Return how many slots lie in (after, until], or cap when there are more; costs per day."""
    if until <= after:
        return 0
    if cadence.interval_us is not None:
        passed = (until - anchor) // cadence.interval_us - (after - anchor) // cadence.interval_us
        return min(passed, cap)
    expression, total = _expression(cadence), 0
    t = after + 1
    while t <= until and total < cap:
        stretch = stretch_at(cadence.timezone, t)
        total += _count(expression, stretch, t, min(until + 1, stretch.end), cap - total)
        t = stretch.end
    return total


def skipped_time(expression: CronExpression, stretch: Stretch) -> Micros | None:
    """Return the first wall time named by the expression that the start of the stretch skipped.

    Times of a day that was skipped whole (Pacific/Apia had no 30 December 2011) do not count: a
    day that does not exist needs no run.
    """
    if stretch.gap_from is None:
        return None
    gap_end = stretch.start + stretch.offset
    wall = expression.at_or_after(stretch.gap_from)
    while wall is not None and wall < gap_end:
        midnight = wall - wall % DAY
        if midnight < stretch.gap_from or midnight + DAY > gap_end:
            return wall
        wall = expression.at_or_after(midnight + DAY)
    return None


def _expression(cadence: Cadence) -> CronExpression:
    if cadence.cron is None:
        raise InvalidInput("schedule_cron", "a cron expression or an interval", None)
    return _compiled(cadence.cron)


@lru_cache(maxsize=4096)
def _compiled(text: str) -> CronExpression:
    return parse(text)


def _next(expression: CronExpression, zone: str, t: Micros) -> Micros:
    """Return the first slot from t on, stretch of constant offset by stretch."""
    searched_from, wall = 0, -1  # what the last search found: nothing in [searched_from, wall)
    while True:
        stretch = stretch_at(zone, t)
        low = t + stretch.offset
        if expression.fixed_hour:
            if t == stretch.start and skipped_time(expression, stretch) is not None:
                return t
            low = max(low, stretch.fresh)
        if not searched_from <= low <= wall:
            found = expression.at_or_after(low)
            if found is None:
                raise InvalidInput("schedule_cron", "a slot within 50 years", expression.text)
            searched_from, wall = low, found
        if wall - stretch.offset < stretch.end:
            return wall - stretch.offset
        # No offset exceeds a day, so nothing matches earlier than two days before that wall time,
        # unless the clock is put back beyond where this search began.
        far = wall - 2 * DAY
        t = far if far > stretch.end > t + 2 * DAY else stretch.end


def _latest(
    expression: CronExpression, zone: str, t: Micros, not_before: Micros | None
) -> Micros | None:
    """Return the last slot up to t, stretch of constant offset by stretch."""
    bound = TIME_MIN if not_before is None else max(not_before, TIME_MIN)
    while t >= bound:
        stretch = stretch_at(zone, t)
        wall = expression.at_or_before(t + stretch.offset)
        if wall is None:
            return None
        low = stretch.fresh if expression.fixed_hour else stretch.start + stretch.offset
        if wall >= low:
            return wall - stretch.offset
        if expression.fixed_hour and skipped_time(expression, stretch) is not None:
            return stretch.start
        far = wall + 2 * DAY  # as in _next
        t = far if far < stretch.start < t - 2 * DAY else stretch.start - 1
    return None


def _count(
    expression: CronExpression, stretch: Stretch, start: Micros, end: Micros, cap: int
) -> int:
    """Return how many slots lie in [start, end), a part of the stretch."""
    low, high = start + stretch.offset, end + stretch.offset
    if not expression.fixed_hour:
        return expression.count(low, high, cap)
    total = expression.count(max(low, stretch.fresh), high, cap)
    if start == stretch.start and skipped_time(expression, stretch) is not None:
        # A slot may be named both by a skipped time and by the first time that exists.
        named_twice = expression.at_or_after(low) == low
        total += 0 if named_twice else 1
    return min(total, cap)
