"""Cron expressions on the wall clock: a canonical spelling, and the search for matching times.

Everything here works on wall-clock time only, in microseconds as if the wall clock showed UTC.
``schedules.cadence`` parses the fields, and ``schedules.cron.occurrences`` maps wall-clock times to
instants with time zones and daylight saving; these two and ``schedules.preview`` are the callers.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping
from datetime import date
from typing import Final, Protocol

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
"""Number of days that a search covers; the rarest date (a weekday on 29 February) recurs within 40
years.
"""

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_LAST_DAY = date(9999, 11, 30).toordinal() - _EPOCH_ORDINAL
_SOME_DAY = date(2000, 1, 1).toordinal() - _EPOCH_ORDINAL


class ParsedFields(Protocol):
    """The parsed fields of an expression, and the rule that combines its two day fields."""

    @property
    def minutes(self) -> Collection[int]:
        """The matching minutes, 0 to 59."""
        ...

    @property
    def hours(self) -> Collection[int]:
        """The matching hours, 0 to 23."""
        ...

    @property
    def months(self) -> Collection[int]:
        """The matching months, 1 to 12."""
        ...

    def match_day(self, d: date, /) -> bool:
        """Return whether day-of-month and day-of-week match this date."""
        ...


class CronExpression:
    """A parsed expression, immutable: the wall-clock minutes that it matches."""

    __slots__ = ("_parsed", "fixed_hour", "months", "text", "times")

    def __init__(self, text: str, parsed: ParsedFields) -> None:
        self.text = text
        self._parsed = parsed
        self.months: frozenset[int] = frozenset(parsed.months)
        self.times: tuple[Micros, ...] = tuple(
            sorted(
                (hour * 60 + minute) * MINUTE for hour in parsed.hours for minute in parsed.minutes
            )
        )
        hour = text.split()[1]
        # Fixed hours fire once per day even when clocks change; other hours follow elapsed time.
        self.fixed_hour: bool = "*" not in hour and "/" not in hour and len(parsed.hours) < 24

    def occurs(self) -> bool:
        """Return whether the expression matches any date that exists."""
        return self._day_from(_SOME_DAY) is not None

    def at_or_after(self, wall: Micros) -> Micros | None:
        """Return the first matching wall time at or after ``wall``; None if there is none."""
        day, rest = divmod(wall, DAY)
        if rest <= self.times[-1] and self._matches(day):
            return day * DAY + self.times[bisect_left(self.times, rest)]
        found = self._day_from(day + 1)
        return None if found is None else found * DAY + self.times[0]

    def at_or_before(self, wall: Micros) -> Micros | None:
        """Return the last matching wall time at or before ``wall``; None if there is none."""
        day, rest = divmod(wall, DAY)
        if rest >= self.times[0] and self._matches(day):
            return day * DAY + self.times[bisect_right(self.times, rest) - 1]
        found = self._day_back_from(day - 1)
        return None if found is None else found * DAY + self.times[-1]

    def count(self, low: Micros, high: Micros, cap: int) -> int:
        """Return the number of matching wall times in [low, high), at most ``cap``."""
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
        return when.month in self.months and self._parsed.match_day(when)

    def _day_from(self, day: int) -> int | None:
        last = min(day + SEARCH_DAYS, _LAST_DAY)
        while day <= last:
            when = date.fromordinal(_EPOCH_ORDINAL + day)
            if when.month not in self.months:
                following = date(when.year + when.month // 12, when.month % 12 + 1, 1)
                day = following.toordinal() - _EPOCH_ORDINAL
            elif self._parsed.match_day(when):
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
            elif self._parsed.match_day(when):
                return day
            else:
                day -= 1
        return None


def normalise(text: object, field: str = "schedule_cron") -> str:
    """Return the canonical five fields: aliases expanded, upper case, single spaces."""
    expected = 'a cron expression of five fields, such as "0 2 * * *", or an alias such as @daily'
    if not isinstance(text, str) or len(text) > EXPRESSION_MAX or not text.isascii():
        raise InvalidInput(field, expected, text)
    words = text.lower().split()
    if words and words[0].startswith("@"):
        expanded = ALIASES.get(words[0]) if len(words) == 1 else None
        if expanded is None:
            fix = f"Aliases: {', '.join(ALIASES)}. For elapsed time use schedule_type INTERVAL."
            raise InvalidInput(field, expected, text, fix)
        return expanded
    if len(words) in (6, 7):
        fix = "Remove seconds and years: minute, hour, day-of-month, month, day-of-week."
        raise InvalidInput(field, f"five fields, not {len(words)}", text, fix)
    if len(words) != 5:
        raise InvalidInput(field, expected, text)
    return re.sub(r"(?<![0-9])0+(?=[0-9])", "", " ".join(words).upper())
