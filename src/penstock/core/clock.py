"""Time: clocks, and conversions between microseconds, datetimes and text.

Internally a time is an integer number of microseconds since the Unix epoch in UTC (``Micros``), and
a duration is an integer number of microseconds. Datetimes appear only at the edges and must be
aware. No other module may call ``time`` or ``datetime.now``; services receive a ``Clock``, pure
code receives ``now``.
"""

from __future__ import annotations

import _thread
import re
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol, TypeAlias

from penstock.core.errors import InvalidInput

Micros: TypeAlias = int
Duration: TypeAlias = str | int | float | timedelta
"""A duration as users write it: "90s", "1h30m", a number of seconds, or a timedelta."""

MILLISECOND: Final = 1_000
SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY
HANDLER_SECONDS: Final = 1.0

FAR_FUTURE: Final = 2**62
"""A time later than any other; the upper bound of an open range."""
DURATION_MAX: Final = 36_525 * DAY
"""A hundred years; a longer duration was most likely given in the wrong unit."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ONE = timedelta(microseconds=1)
_YEARS = ((datetime.min.replace(tzinfo=UTC) - _EPOCH) // _ONE,
          (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _ONE)  # fmt: skip
_ASKED_MAX = (datetime(9900, 1, 1, tzinfo=UTC) - _EPOCH) // _ONE
_UNITS = {
    "w": WEEK,
    "d": DAY,
    "h": HOUR,
    "m": MINUTE,
    "s": SECOND,
    "ms": MILLISECOND,
    "us": 1,
}
_DURATION = re.compile(r"(?:[0-9]{1,12}(?:\.[0-9]{1,6})?(?:us|ms|[wdhms]))+", re.ASCII)
_PART = re.compile(r"([0-9]+)(?:\.([0-9]+))?(us|ms|[wdhms])", re.ASCII)


class Clock(Protocol):
    """The time source of services; tests substitute a virtual clock."""

    def now(self) -> Micros:
        """Return the current time in microseconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; the value never decreases."""
        ...

    def sleep(self, seconds: float) -> None:
        """Sleep for the given number of seconds."""
        ...

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Wait at most `timeout` seconds for the event; return whether it is set."""
        ...


class SystemClock:
    """The clock of the operating system, for production."""

    __slots__ = ()

    def now(self) -> Micros:
        """Return the current time in microseconds since the Unix epoch."""
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; the value never decreases."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep for the given number of seconds."""
        time.sleep(max(0.0, seconds))

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Wait at most `timeout` seconds for the event; return whether it is set."""
        return event.wait(timeout)


def wait_for_handler(event: threading.Event) -> None:
    """Wait on the main thread for an event that a signal handler sets.

    Python runs signal handlers on the main thread, between two instructions. A signal that arrives
    just before the thread blocks, or at another thread, does not interrupt the wait, so the thread
    wakes up every second.
    """
    while not event.wait(HANDLER_SECONDS):
        pass


def set_from_handler(event: threading.Event) -> None:
    """Set an event from a signal handler without waiting for a lock.

    The handler may interrupt the main thread inside `event.wait`, which holds the event's lock for
    a moment; `event.set` would then wait for it indefinitely. Another thread sets the event
    instead.
    """
    _thread.start_new_thread(event.set, ())


def to_datetime(us: Micros) -> datetime:
    """Return a time as an aware UTC datetime; raise InvalidInput outside the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        raise InvalidInput("time", "microseconds within the years 1 to 9999", us) from None


def from_datetime(dt: datetime) -> Micros:
    """Return an aware datetime as microseconds; raise InvalidInput if it is naive."""
    if dt.utcoffset() is None:
        raise InvalidInput(
            "time", "a datetime with a time zone", dt.isoformat(), "Add tzinfo, for example UTC."
        )
    return _in_years((dt - _EPOCH) // _ONE, "time", dt.isoformat())


def request_time(given: object, field: str) -> Micros:
    """Return the time in a request as microseconds; raise InvalidInput outside the years 1 to 9899.

    A datetime cannot exceed the year 9999. The last hundred years are reserved for durations that
    are added to a time, so that times derived from a request can be stored and shown.
    """
    if not isinstance(given, datetime) or given.utcoffset() is None:
        raise InvalidInput(
            field, "a datetime with a time zone", given, "Add tzinfo, for example UTC."
        )
    us = (given - _EPOCH) // _ONE
    if not _YEARS[0] <= us < _ASKED_MAX:
        raise InvalidInput(field, "a time within the years 1 to 9899", given.isoformat())
    return us


def shown_datetime(us: Micros) -> datetime:
    """Return a stored time as a UTC datetime; an out-of-range time becomes the nearest valid one.

    Lists use this function, so that one row with an invalid time does not break the whole page.
    """
    return _EPOCH + timedelta(microseconds=min(max(us, _YEARS[0]), _YEARS[1]))


def iso(us: Micros) -> str:
    """Return a stored time as ISO 8601 in UTC; the fraction is omitted if it is zero."""
    return shown_datetime(us).isoformat().replace("+00:00", "Z")


def parse_iso(text: object, field: str = "time") -> Micros:
    """Parse an ISO 8601 time with an offset; raise InvalidInput if it is not one."""
    expected = 'an ISO 8601 time with offset, such as "2025-11-17T02:00:00Z"'
    if not isinstance(text, str) or len(text) > 64:
        raise InvalidInput(field, expected, text)
    try:
        # The zone marker may be written in lower case (RFC 3339).
        parsed = datetime.fromisoformat(text.strip().upper())
    except ValueError:
        raise InvalidInput(field, expected, text) from None
    if parsed.utcoffset() is None:
        raise InvalidInput(field, expected, text, 'Append "Z" for UTC or an offset like "+02:00".')
    return _in_years((parsed - _EPOCH) // _ONE, field, text)


def parse_when(text: str | None, field: str, now: Micros) -> Micros | None:
    """Parse an ISO 8601 time, a date (midnight UTC), or a duration before `now` (`2h`, `3d`)."""
    if text is None:
        return None
    if text[:1].isdigit() and text[-1:].lower() in "smhdw" and "T" not in text.upper():
        return now - parse_duration(text, field)
    is_date = re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text, re.ASCII)
    try:
        return parse_iso(f"{text}T00:00:00Z" if is_date else text, field)
    except InvalidInput as error:
        expected = f'{error.expected}, or how long ago, such as "2h" or "3d"'
        raise InvalidInput(field, expected, text, error.fix) from None


def _in_years(us: Micros, field: str, given: str) -> Micros:
    """Return a time; raise InvalidInput if its offset moves it out of the years 1 to 9999."""
    if not _YEARS[0] <= us <= _YEARS[1]:
        raise InvalidInput(field, "a time within the years 1 to 9999 in UTC", given)
    return us


def parse_duration(value: Duration, field: str = "duration") -> Micros:
    """Parse "5m", "1h30m", "90s", "2d", "250ms", a timedelta or a number of seconds to micros."""
    expected = 'a duration such as "90s", "5m", "1h30m" or "2d", or a number of seconds'
    micros: int | None = None
    if isinstance(value, timedelta):
        micros = value // _ONE
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if abs(value) <= DURATION_MAX:  # False for NaN too
            micros = round(value * SECOND)
    elif isinstance(value, str) and len(value) <= 64:
        micros = _parse_duration_text(value.strip().lower())
    if micros is None or not 0 <= micros <= DURATION_MAX:
        raise InvalidInput(field, expected, value)
    return micros


def _parse_duration_text(text: str) -> Micros | None:
    if re.fullmatch(r"[0-9]{1,12}", text, re.ASCII):
        return int(text) * SECOND
    compact = text.replace(" ", "")
    if not _DURATION.fullmatch(compact):
        return None
    total = 0
    for whole, fraction, unit in _PART.findall(compact):
        size = _UNITS[unit]
        total += int(whole) * size
        if fraction:
            total += int(fraction) * size // 10 ** len(fraction)
    return total


def format_duration(us: Micros) -> str:
    """Return the exact duration as text that ``parse_duration`` accepts, such as "1h30m"."""
    if us == 0:
        return "0s"
    sign, rest = ("-", -us) if us < 0 else ("", us)
    parts = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return sign + "".join(parts)
