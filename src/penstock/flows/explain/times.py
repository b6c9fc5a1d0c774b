"""Times and durations in sentences: local time of the pipeline, with the date only when needed.

`LocalClock(now, zone)` formats times relative to `now`. Responses also contain the exact ISO times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, Micros, shown_datetime
from penstock.core.utc_offsets import zone_info

_TIMES = {1: "once", 2: "twice"}


@dataclass(frozen=True, slots=True)
class LocalClock:
    """Formats times in a time zone, relative to `now`."""

    now: Micros
    zone: str = "UTC"

    def at(self, moment: Micros) -> str:
        """Return the time of day, with the date unless it is today: "11:02", "12-30 11:02"."""
        local, today = self._local(moment), self._local(self.now)
        if local.date() == today.date():
            return local.strftime("%H:%M")
        return local.strftime("%m-%d %H:%M" if local.year == today.year else "%Y-%m-%d %H:%M")

    def exact(self, moment: Micros) -> str:
        """Return the time of day with seconds, with the date unless it is today: "11:02:35"."""
        return f"{self.at(moment)}:{self._local(moment):%S}"

    def _local(self, moment: Micros) -> datetime:
        shown = shown_datetime(moment)
        try:
            return shown.astimezone(zone_info(self.zone))
        except OverflowError:  # the first or last day of the calendar
            return shown

    def upcoming(self, moment: Micros) -> str:
        """Return a future time: "11:12", or "any moment" once it has passed."""
        return self.at(moment) if moment > self.now else "any moment"

    def ago(self, moment: Micros) -> str:
        """Return the time elapsed since a moment: "4 min"."""
        return format_span(max(0, self.now - moment))


def format_span(us: Micros) -> str:
    """Return a duration in its largest units: "45 s", "4 min", "2 h 5 min", "3 d"."""
    if us < MINUTE:
        return f"{us // SECOND} s"
    if us < HOUR:
        return f"{us // MINUTE} min"
    if us < 2 * DAY:
        hours, rest = divmod(us, HOUR)
        return f"{hours} h {rest // MINUTE} min" if rest >= MINUTE else f"{hours} h"
    return f"{us // DAY} d"


def format_times(n: int) -> str:
    """Return a count of times: "once", "twice", "3 times"."""
    return _TIMES.get(n, f"{n} times")


def format_count(n: int, noun: str) -> str:
    """Return a count with its noun: "1 record", "2,000 records"."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def format_list(names: Sequence[str], most: int = 5) -> str:
    """Return names as a list in a sentence, at most `most` of them: "a, b and 3 more"."""
    if len(names) <= most:
        return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"
