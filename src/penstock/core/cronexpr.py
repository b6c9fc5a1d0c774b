"""Cron expressions: reading them with errors that help, and searching the wall clock they describe.

cronsim parses the fields and judges days (day-of-month and day-of-week combine as in Vixie cron);
everything here works on wall-clock time alone, as micros of a clock that shows UTC. What zones and
daylight saving make of it is the business of ``core.cadence``, the only caller.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Final

from cronsim import CronSim, CronSimError

from penstock.core.clock import DAY, MINUTE, Micros
from penstock.core.errors import InvalidInput

ALIASES: Final[Mapping[str, str]] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
EXPRESSION_MAX: Final = 256
SEARCH_DAYS: Final = 50 * 366
"""How far a search looks; the rarest date (a weekday on 29 February) returns within 40 years."""

_FIELDS = (
    ("minute", 59, "minutes 0-59"),
    ("hour", 23, "hours 0-23"),
    ("day-of-month", 31, "days 1-31, L (last day) or LW (last weekday)"),
    ("month", 12, "months 1-12 or JAN-DEC"),
    ("day-of-week", 7, "weekdays 0-7 or SUN-SAT, such as 5L (last Friday) or 5#3 (third Friday)"),
)
_FORMS = "numbers, lists a,b, ranges a-b with a before b, and steps */n of at least 1"
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_LAST_DAY = date(9999, 11, 30).toordinal() - _EPOCH_ORDINAL
_ANCHOR = datetime(2000, 1, 1, tzinfo=UTC)
_ANCHOR_DAY = _ANCHOR.toordinal() - _EPOCH_ORDINAL


class CronExpression:
    """A parsed expression: which wall-clock minutes it names. Never changes once built."""

    __slots__ = ("_sim", "fixed_hour", "months", "text", "times")

    def __init__(self, text: str, sim: CronSim) -> None:
        self.text = text
        self._sim = sim
        self.months: frozenset[int] = frozenset(sim.months)
        self.times: tuple[Micros, ...] = tuple(
            sorted((hour * 60 + minute) * MINUTE for hour in sim.hours for minute in sim.minutes)
        )
        hour = text.split()[1]
        # Fixed hours fire once per day whatever the clocks do; others follow elapsed time.
        self.fixed_hour: bool = "*" not in hour and "/" not in hour and len(sim.hours) < 24

    def at_or_after(self, wall: Micros) -> Micros | None:
        """Return the first matching wall time from ``wall`` on, None when none is in reach."""
        day, rest = divmod(wall, DAY)
        if rest <= self.times[-1] and self._matches(day):
            return day * DAY + self.times[bisect_left(self.times, rest)]
        found = self._day_from(day + 1)
        return None if found is None else found * DAY + self.times[0]

    def at_or_before(self, wall: Micros) -> Micros | None:
        """Return the last matching wall time up to ``wall``, None when none is in reach."""
        day, rest = divmod(wall, DAY)
        if rest >= self.times[0] and self._matches(day):
            return day * DAY + self.times[bisect_right(self.times, rest) - 1]
        found = self._day_back_from(day - 1)
        return None if found is None else found * DAY + self.times[-1]

    def count(self, low: Micros, high: Micros, cap: int) -> int:
        """Return how many matching wall times lie in [low, high), or cap when there are more."""
        total = 0
        day = low // DAY
        while day * DAY < high and total < cap:
            found = self._day_from(day)
            if found is None or found * DAY >= high:
                break
            start = found * DAY
            total += bisect_left(self.times, high - start) - bisect_left(self.times, low - start)
            day = found + 1
        return min(total, cap)

    def _matches(self, day: int) -> bool:
        when = date.fromordinal(_EPOCH_ORDINAL + day)
        return when.month in self.months and bool(self._sim.match_day(when))

    def _day_from(self, day: int) -> int | None:
        last = min(day + SEARCH_DAYS, _LAST_DAY)
        while day <= last:
            when = date.fromordinal(_EPOCH_ORDINAL + day)
            if when.month not in self.months:
                following = date(when.year + when.month // 12, when.month % 12 + 1, 1)
                day = following.toordinal() - _EPOCH_ORDINAL
            elif self._sim.match_day(when):
                return day
            else:
                day += 1
        return None

    def _day_back_from(self, day: int) -> int | None:
        last = day - SEARCH_DAYS
        while day >= last:
            when = date.fromordinal(_EPOCH_ORDINAL + day)
            if when.month not in self.months:
                day -= when.day
            elif self._sim.match_day(when):
                return day
            else:
                day -= 1
        return None


def parse(text: object, field: str = "schedule_cron") -> CronExpression:
    """Return the expression; InvalidInput says which part is wrong and what would be right."""
    return _parse(normalise(text, field), field)


def normalise(text: object, field: str = "schedule_cron") -> str:
    """Return the five fields in one spelling (aliases expanded, upper case, single spaces)."""
    expected = 'a cron expression of five fields, such as "0 2 * * *", or an alias such as @daily'
    if not isinstance(text, str) or len(text) > EXPRESSION_MAX or not text.isascii():
        raise InvalidInput(field, expected, text)
    words = text.lower().split()
    if words and words[0].startswith("@"):
        known = ALIASES.get(words[0]) if len(words) == 1 else None
        if known is None:
            fix = f"Aliases: {', '.join(ALIASES)}. For elapsed time use schedule_type INTERVAL."
            raise InvalidInput(field, expected, text, fix)
        return known
    if len(words) in (6, 7):
        fix = "Leave out seconds and years: minute, hour, day-of-month, month, day-of-week."
        raise InvalidInput(field, f"five fields, not {len(words)}", text, fix)
    if len(words) != 5:
        raise InvalidInput(field, expected, text)
    return re.sub(r"(?<![0-9])0+(?=[0-9])", "", " ".join(words).upper())


@lru_cache(maxsize=4096)
def _parse(text: str, field: str) -> CronExpression:
    try:
        sim = CronSim(text, _ANCHOR)
    except (CronSimError, ValueError) as error:
        raise _explain(text, field, str(error)) from None
    _check_steps(text, field)
    expression = CronExpression(text, sim)
    if expression._day_from(_ANCHOR_DAY) is None:
        raise InvalidInput(field, "a date that occurs", text, "No such day exists in any year.")
    return expression


def _check_steps(text: str, field: str) -> None:
    """Refuse steps that cronsim reads but that cannot mean what was meant, such as */90 minutes."""
    for part, (name, most, _) in zip(text.split(), _FIELDS, strict=True):
        for term in part.split(","):
            start, slash, step = term.partition("/")
            if slash and (int(step) > most or start.startswith("L")):
                fix = "For an elapsed interval use schedule_type INTERVAL."
                expected = f"a step from 1 to {most} over numbers as {name}"
                raise InvalidInput(field, expected, term, fix)


def _explain(text: str, field: str, problem: str) -> InvalidInput:
    """Return the error for a rejected expression, naming its first bad part."""
    parts = text.split()
    for index, (name, _, allowed) in enumerate(_FIELDS):
        alone = ["0", "0", "1", "1", "*"]
        alone[index] = parts[index]
        try:
            CronSim(" ".join(alone), _ANCHOR)
        except (CronSimError, ValueError):
            return InvalidInput(
                field, f"{allowed} as {name} ({_FORMS})", text, f"{parts[index]} cannot be used."
            )
    fix = f"The day {parts[2]} does not exist in the month {parts[3]}."
    return InvalidInput(field, "a date that occurs", text, fix if "day" in problem else None)
