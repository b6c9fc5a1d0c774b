"""Cadences: when a config is due, by cron expression in a time zone or by elapsed interval.

Daylight saving, for cron with fixed hours (``0 2 * * *``, ``*/15 9-17 * * *``): a time that does
not exist fires at the next moment that does, and a time that occurs twice fires only the first
time. Wildcard and stepped hours (``*``, ``*/2``) follow elapsed time: they fire whenever the wall
clock matches, which may be twice. cronsim parses the expressions; day-of-month and day-of-week
combine as in Vixie cron. The functions are pure, fast (2 to 50 µs) and bounded; the scheduler, the
API and ``schedules.misfire`` call them. Nothing here reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final

from cronsim import CronSim, CronSimError

from penstock.core.clock import DAY, SECOND, Micros
from penstock.core.errors import InvalidInput, short_repr
from penstock.core.utc_offsets import check_timezone
from penstock.schedules.cron import occurrences
from penstock.schedules.cron.expression import CronExpression, normalise

INTERVAL_MIN: Final = SECOND
INTERVAL_MAX: Final = 3650 * DAY
COUNT_CAP: Final = 1_000_000
"""Counting stops at this number of occurrences (almost two years of minutes)."""

_FIELDS = (
    ("minute", 59, "minutes 0-59"),
    ("hour", 23, "hours 0-23"),
    ("day-of-month", 31, "days 1-31, L (last day) or LW (last weekday)"),
    ("month", 12, "months 1-12 or JAN-DEC"),
    ("day-of-week", 7, "weekdays 0-7 or SUN-SAT, such as 5L (last Friday) or 5#3 (third Friday)"),
)
_SYNTAX = "numbers, lists a,b, ranges a-b with a before b, and steps */n of at least 1"
_ANCHOR = datetime(2000, 1, 1, tzinfo=UTC)  # cronsim requires a start time; only its parser is used


class ScheduleType(StrEnum):
    """The kind of a config's schedule."""

    CRON = "CRON"
    INTERVAL = "INTERVAL"
    EVENT_DRIVEN = "EVENT_DRIVEN"


class CatchUp(StrEnum):
    """The policy for occurrences missed during downtime.

    ONE runs the latest, ALL runs every one within the catch-up window, NONE runs none of them.
    """

    ONE = "one"
    ALL = "all"
    NONE = "none"


class Overlap(StrEnum):
    """The policy for an occurrence that is due while the previous run has not finished."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class Cadence:
    """A cron expression with its time zone, or an interval; built by ``cron`` and ``every``."""

    cron: str | None = None
    timezone: str = "UTC"
    interval_us: Micros | None = None


def cron(expr: object, tz: object = "UTC") -> Cadence:
    """Return the cadence of a cron expression; InvalidInput names schedule_cron or timezone."""
    zone = check_timezone(tz)
    return Cadence(cron=parse(expr).text, timezone=zone)


def every(interval_us: Micros, field: str = "schedule_interval_minutes") -> Cadence:
    """Return the cadence of an elapsed interval, from a second to ten years."""
    if isinstance(interval_us, bool) or not isinstance(interval_us, int):
        raise InvalidInput(field, "a whole number of microseconds", interval_us)
    if not INTERVAL_MIN <= interval_us <= INTERVAL_MAX:
        raise InvalidInput(field, "an interval from 1 second to 3,650 days", interval_us)
    return Cadence(interval_us=interval_us)


def parse(text: object, field: str = "schedule_cron") -> CronExpression:
    """Return the parsed expression; InvalidInput names the invalid field and what is allowed."""
    normal = normalise(text, field)
    try:
        return _parse(normal, field)
    except InvalidInput as error:
        if error.got != short_repr(normal):
            raise
        raise InvalidInput(field, error.expected, text, error.fix) from None


def next_after(cadence: Cadence, t: Micros, anchor: Micros = 0) -> Micros:
    """Return the first scheduled time strictly after t; for intervals, anchor + k·interval."""
    if cadence.interval_us is not None:
        return t + cadence.interval_us - (t - anchor) % cadence.interval_us
    return occurrences.first_at_or_after(_expression(cadence), cadence.timezone, t + 1)


def latest_at_or_before(
    cadence: Cadence, t: Micros, not_before: Micros | None = None, anchor: Micros = 0
) -> Micros | None:
    """Return the last scheduled time at or before t; None if none is at or after ``not_before``."""
    if cadence.interval_us is not None:
        found: Micros | None = t - (t - anchor) % cadence.interval_us
    else:
        found = occurrences.last_at_or_before(_expression(cadence), cadence.timezone, t, not_before)
    if found is None or (not_before is not None and found < not_before):
        return None
    return found


def occurrences_between(
    cadence: Cadence, after: Micros, until: Micros, limit: int, anchor: Micros = 0
) -> list[Micros]:
    """Return at most ``limit`` scheduled times in (after, until], oldest first."""
    found: list[Micros] = []
    while len(found) < limit:
        after = next_after(cadence, after, anchor)
        if after > until:
            break
        found.append(after)
    return found


def count_occurrences(
    cadence: Cadence, after: Micros, until: Micros, cap: int = COUNT_CAP, anchor: Micros = 0
) -> int:
    """Return the number of occurrences in (after, until], at most ``cap``.

    The cost for cron grows with the number of days in the range.
    """
    if until <= after:
        return 0
    if cadence.interval_us is not None:
        passed = (until - anchor) // cadence.interval_us - (after - anchor) // cadence.interval_us
        return min(passed, cap)
    return occurrences.count_between(_expression(cadence), cadence.timezone, after, until, cap)


def _expression(cadence: Cadence) -> CronExpression:
    if cadence.cron is None:
        raise InvalidInput("schedule_cron", "a cron expression or an interval", None)
    return _compiled(cadence.cron)


@lru_cache(maxsize=4096)
def _compiled(text: str) -> CronExpression:
    return parse(text)


@lru_cache(maxsize=4096)
def _parse(text: str, field: str) -> CronExpression:
    try:
        sim = CronSim(text, _ANCHOR)
    except (CronSimError, ValueError) as error:
        raise _explain(text, field, str(error)) from None
    _check_steps(text, field)
    expression = CronExpression(text, sim)
    if not expression.occurs():
        raise InvalidInput(field, "a date that exists", text, "The day does not exist in any year.")
    return expression


def _check_steps(text: str, field: str) -> None:
    """Reject steps that cronsim accepts but that cannot work as intended, such as */90 minutes."""
    for part, (name, most, _) in zip(text.split(), _FIELDS, strict=True):
        for term in part.split(","):
            start, slash, step = term.partition("/")
            if slash and (int(step) > most or start.startswith("L")):
                fix = "For an elapsed interval use schedule_type INTERVAL."
                expected = f"a step from 1 to {most} over numbers in the {name} field"
                raise InvalidInput(field, expected, term, fix)


def _explain(text: str, field: str, problem: str) -> InvalidInput:
    """Return the error for an invalid expression, naming its first invalid field."""
    parts = text.split()
    for index, (name, _, allowed) in enumerate(_FIELDS):
        alone = ["0", "0", "1", "1", "*"]
        alone[index] = parts[index]
        try:
            CronSim(" ".join(alone), _ANCHOR)
        except (CronSimError, ValueError):
            return InvalidInput(
                field, f"{allowed} as {name} ({_SYNTAX})", text, f"{parts[index]} is invalid."
            )
    fix = f"The day {parts[2]} does not exist in the month {parts[3]}."
    return InvalidInput(field, "a date that exists", text, fix if "day" in problem else None)
