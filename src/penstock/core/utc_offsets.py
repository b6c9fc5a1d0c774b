"""Time zones as periods of constant UTC offset, for computing schedules.

``offset_period_at`` returns the period that contains an instant, with the wall-clock times that the
change at its start skipped or repeated. Periods are computed once per zone and year from the IANA
data of ``zoneinfo``. The cadence and preview modules use them.
"""

from __future__ import annotations

import difflib
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from penstock.core.clock import DAY, SECOND, Micros
from penstock.core.errors import InvalidInput

TIME_MIN: Final = -2_208_988_800 * SECOND
"""The year 1900; the local mean times before it are irrelevant to schedules."""
TIME_MAX: Final = 253_086_768_000 * SECOND
"""The year 9990; searches beyond it would exceed the range of `datetime`."""

_SPAN = 366 * DAY
# Since 1900 no zone has changed twice within three days, so a sample every two days finds every
# change.
_SAMPLE = 2 * DAY
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetPeriod:
    """A period [start, end) during which wall-clock time is UTC plus ``offset``.

    ``first_new_wall_time``: first wall time in it that has not occurred before; later than start +
    offset if the clock was set back. ``gap_from``: first wall time skipped at the start if the
    clock was set forward, else None.
    """

    start: Micros
    end: Micros
    offset: Micros
    first_new_wall_time: Micros
    gap_from: Micros | None


@lru_cache(maxsize=1)
def timezone_names() -> frozenset[str]:
    """Return the IANA names that a config may use."""
    return frozenset(available_timezones() - {"Factory", "localtime"})


def check_timezone(text: object, field: str = "timezone") -> str:
    """Return the name of an existing zone. Raise InvalidInput with close matches otherwise."""
    known = timezone_names()
    if isinstance(text, str) and text in known:
        return text
    expected = 'an IANA time zone name such as "Europe/Paris"'
    if not isinstance(text, str) or len(text) > 64:
        raise InvalidInput(field, expected, text)
    folded = {name.lower(): name for name in sorted(known)}
    wanted = text.strip().lower().replace(" ", "_")
    cities = {name.rpartition("/")[2]: name for name in folded}
    near = [folded[name] for name in difflib.get_close_matches(wanted, folded, n=3, cutoff=0.7)]
    near += [folded[cities[c]] for c in difflib.get_close_matches(wanted, cities, n=2, cutoff=0.85)]
    fix = f"Did you mean {' or '.join(dict.fromkeys(near))}?" if near else None
    raise InvalidInput(field, expected, text, fix)


@lru_cache(maxsize=1024)
def zone_info(name: str) -> ZoneInfo:
    """Return the zone with this name. Raise InvalidInput if there is none."""
    return ZoneInfo(check_timezone(name))


def offset_period_at(name: str, t: Micros) -> OffsetPeriod:
    """Return the period that contains t. Raise InvalidInput outside the years 1900 to 9990."""
    if not TIME_MIN <= t < TIME_MAX:
        raise InvalidInput("time", "a time within the years 1900 to 9990", t)
    starts, stretches = _stretches(name, t // _SPAN)
    return stretches[bisect_right(starts, t) - 1]


@lru_cache(maxsize=4096)
def _stretches(name: str, span: int) -> tuple[tuple[Micros, ...], tuple[OffsetPeriod, ...]]:
    """Return the periods of a span, extended by one span on both sides."""
    first = (span - 1) * _SPAN
    starts = [first]
    for neighbour in (span - 1, span, span + 1):
        starts.extend(_changes(name, neighbour))
    ends = [*starts[1:], (span + 2) * _SPAN]
    stretches = []
    reached = first + _offset(name, first)  # latest wall time so far
    for start, end in zip(starts, ends, strict=True):
        offset = _offset(name, start)
        wall = start + offset
        stretches.append(
            OffsetPeriod(
                start=start,
                end=end,
                offset=offset,
                first_new_wall_time=max(wall, reached),
                gap_from=reached if reached < wall else None,
            )
        )
        reached = max(reached, end + offset)
    return tuple(starts), tuple(stretches)


@lru_cache(maxsize=8192)
def _changes(name: str, span: int) -> tuple[Micros, ...]:
    """Return the times within a span at which the offset changes."""
    found = []
    left, left_offset = span * _SPAN, _offset(name, span * _SPAN)
    for right in range(left + _SAMPLE, (span + 1) * _SPAN + 1, _SAMPLE):
        right_offset = _offset(name, right)
        if right_offset != left_offset:
            found.append(_bisect(name, left, right))
        left, left_offset = right, right_offset
    return tuple(found)


def _bisect(name: str, left: Micros, right: Micros) -> Micros:
    """Return the first whole second in (left, right] that has the offset of right."""
    low, high = left // SECOND, right // SECOND
    target = _offset(name, right)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(name, middle * SECOND) == target:
            high = middle
        else:
            low = middle
    return high * SECOND


def _offset(name: str, t: Micros) -> Micros:
    local = (_EPOCH + timedelta(microseconds=t)).astimezone(zone_info(name))
    offset = local.utcoffset()
    assert offset is not None
    return offset // timedelta(microseconds=1)
