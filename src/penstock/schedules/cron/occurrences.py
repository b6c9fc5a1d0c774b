"""Occurrences of a cron expression in a time zone, with daylight saving taken into account.

The search proceeds by stretches of constant UTC offset, so it takes a few steps even if the next
occurrence is far away. Expressions with fixed hours: wall times that the clock skips fire once, at
the first moment after the gap; wall times that repeat fire the first time only. Other expressions
fire whenever the wall clock matches. Pure; only ``schedules.cadence`` and ``schedules.preview``
call it.
"""

from __future__ import annotations

from penstock.core.clock import DAY, Micros
from penstock.core.errors import InvalidInput
from penstock.core.utc_offsets import TIME_MIN, OffsetPeriod, offset_period_at
from penstock.schedules.cron.expression import CronExpression


def first_at_or_after(expression: CronExpression, zone: str, t: Micros) -> Micros:
    """Return the first occurrence at or after t."""
    searched_from, wall = 0, -1  # the last search found nothing in [searched_from, wall)
    while True:
        stretch = offset_period_at(zone, t)
        low = t + stretch.offset
        if expression.fixed_hour:
            if t == stretch.start and first_skipped_time(expression, stretch) is not None:
                return t
            low = max(low, stretch.first_new_wall_time)
        if not searched_from <= low <= wall:
            found = expression.at_or_after(low)
            if found is None:
                raise InvalidInput(
                    "schedule_cron", "an occurrence within 50 years", expression.text
                )
            searched_from, wall = low, found
        if wall - stretch.offset < stretch.end:
            return wall - stretch.offset
        # Offsets are below a day, so nothing matches earlier than two days before that wall time,
        # unless the clock is set back to before the point where this search began.
        far = wall - 2 * DAY
        t = far if far > stretch.end > t + 2 * DAY else stretch.end


def last_at_or_before(
    expression: CronExpression, zone: str, t: Micros, not_before: Micros | None
) -> Micros | None:
    """Return the last occurrence at or before t; None if there is none from `not_before` on."""
    bound = TIME_MIN if not_before is None else max(not_before, TIME_MIN)
    while t >= bound:
        stretch = offset_period_at(zone, t)
        wall = expression.at_or_before(t + stretch.offset)
        if wall is None:
            return None
        low = (
            stretch.first_new_wall_time if expression.fixed_hour else stretch.start + stretch.offset
        )
        if wall >= low:
            return wall - stretch.offset
        if expression.fixed_hour and first_skipped_time(expression, stretch) is not None:
            return stretch.start
        far = wall + 2 * DAY  # as in first_from
        t = far if far < stretch.start < t - 2 * DAY else stretch.start - 1
    return None


def count_between(
    expression: CronExpression, zone: str, after: Micros, until: Micros, cap: int
) -> int:
    """Return the number of occurrences in (after, until], at most cap."""
    total, t = 0, after + 1
    while t <= until and total < cap:
        stretch = offset_period_at(zone, t)
        total += _count(expression, stretch, t, min(until + 1, stretch.end), cap - total)
        t = stretch.end
    return total


def first_skipped_time(expression: CronExpression, stretch: OffsetPeriod) -> Micros | None:
    """Return the first wall time of the expression that the clock skipped at the stretch's start.

    Times on a day that was skipped entirely (Pacific/Apia had no 30 December 2011) do not count: a
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


def _count(
    expression: CronExpression, stretch: OffsetPeriod, start: Micros, end: Micros, cap: int
) -> int:
    """Return the number of occurrences in [start, end), a part of the stretch."""
    low, high = start + stretch.offset, end + stretch.offset
    if not expression.fixed_hour:
        return expression.count(low, high, cap)
    total = expression.count(max(low, stretch.first_new_wall_time), high, cap)
    if start == stretch.start and first_skipped_time(expression, stretch) is not None:
        # The moment after the gap may match both its own time and a skipped time.
        is_counted = expression.at_or_after(low) == low
        total += 0 if is_counted else 1
    return min(total, cap)
