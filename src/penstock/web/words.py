"""Formatting of numbers, times and states on the pages; always with units."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

NOTHING: Final = "–"
"""Shown for a value that does not exist; zero is 0."""
NEAR_DAYS: Final = 300
"""Number of days within which a date is unambiguous without its year."""
CUT: Final = 2_000
"""Maximum number of characters of untrusted text that a page shows."""

STATES: Final[Mapping[str, tuple[str, str]]] = {
    "PENDING": ("pending", "pending"),
    "CLAIMED": ("running", "claimed"),
    "RUNNING": ("running", "running"),
    "IN_PROGRESS": ("running", "in progress"),
    "COMPLETED": ("complete", "completed"),
    "COMPLETE": ("complete", "complete"),
    "DEGRADED": ("degraded", "degraded"),
    "FAILED": ("failed", "failed"),
    "TIMEOUT": ("timeout", "timed out"),
    "CANCELLED": ("cancelled", "cancelled"),
    "EXPIRED": ("cancelled", "expired"),
    "OPEN": ("running", "open"),
    "WAITING": ("waiting", "waiting"),
    "BLOCKED": ("blocked", "blocked"),
    "SKIPPED": ("skipped", "skipped"),
    "SUCCESS": ("complete", "success"),
    "PARTIAL": ("degraded", "partial"),
    "MISSING": ("failed", "missing"),
    "PROCEED": ("complete", "PROCEED"),
    "PROCEED_DEGRADED": ("degraded", "PROCEED, degraded"),
    "WAIT": ("waiting", "WAIT"),
    "FAIL": ("blocked", "FAIL"),
}
"""The style and the label of each state."""
WAITS: Final[Mapping[str, tuple[str, str]]] = {
    "ready": ("pending", "ready"),
    "later": ("later", "later"),
    "paused": ("paused", "paused"),
    "blocked": ("waiting", "waits for an earlier run"),
    "limited": ("waiting", "waits for a limit"),
    "gated": ("waiting", "waits for its gate"),
}
"""Why a pending run has not started."""
GATES: Final[Mapping[str, str]] = {
    "PROCEED": "proceed",
    "PROCEED_DEGRADED": "degraded",
    "WAIT": "wait",
    "FAIL": "fail",
}
SEVERITIES: Final[Mapping[str, tuple[str, str]]] = {
    "CRITICAL": ("CRITICAL", "oct"),
    "ERROR": ("HIGH", "tri"),
    "HIGH": ("HIGH", "tri"),
    "WARNING": ("MEDIUM", "tri"),
    "MEDIUM": ("MEDIUM", "tri"),
    "INFO": ("INFO", "info"),
}


def severity_word(severity: str) -> str:
    """Return the label of a severity."""
    return SEVERITIES.get(severity, ("INFO", ""))[0]


def appearance(state: str | None) -> str:
    """Return the style of a state: the name of its icon and colours."""
    return STATES.get((state or "").upper(), ("pending", ""))[0]


def word(state: str | None) -> str:
    """Return the label of a state."""
    if not state:
        return NOTHING
    return STATES.get(state.upper(), ("", state.lower().replace("_", " ")))[1]


def number(value: float | None) -> str:
    """Return a number with thousands separated; a dash for none."""
    if value is None:
        return NOTHING
    if isinstance(value, int) or value.is_integer():
        return f"{int(value):,}"
    return f"{value:,.2f}"


def percent(part: float | None, whole: float | None) -> str:
    """Return a share in percent with at most two decimals, never 100 % for less than all."""
    if part is None or not whole:
        return NOTHING
    share = 100 * part / whole
    shown = round(share, 2 if share > 99 or share < 1 else 1)
    if shown == 100 and part < whole:
        shown = 99.99
    return f"{shown:g} %"


def duration(value: timedelta | None) -> str:
    """Return a duration in at most two units: 340 ms, 38 s, 2 min 47 s, 2 h 43 min, 1 d 3 h."""
    if value is None:
        return NOTHING
    seconds = value.total_seconds()
    if seconds < 0:
        return f"-{duration(-value)}"
    if 0 < seconds < 1:
        return f"{max(1, round(1000 * seconds))} ms"
    whole = round(seconds)
    for size, unit, below, smaller in _UNITS:
        if whole >= size:
            count, rest = divmod(whole, size)
            more = rest // below
            return f"{count} {unit}" if not more else f"{count} {unit} {more} {smaller}"
    return f"{whole} s"


_UNITS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


def short_duration(value: timedelta) -> str:
    """Return a duration for a narrow column: 40 min, 1 h 08, 1 d 3 h."""
    whole = round(value.total_seconds())
    if 3_600 <= whole < 86_400:
        return f"{whole // 3_600} h {whole % 3_600 // 60:02}"
    return f"{whole // 60} min" if 60 <= whole < 3_600 else duration(timedelta(seconds=whole))


def clock(at: datetime, now: datetime) -> str:
    """Return a time in UTC: today the clock, within ten months day and clock, else the date too."""
    if at.date() == now.date():
        return f"{at.hour:02}:{at.minute:02}:{at.second:02}Z"
    if abs((at - now).days) < NEAR_DAYS:
        return f"{at.day} {MONTHS[at.month - 1]} {at.hour:02}:{at.minute:02}Z"
    return at.strftime("%Y-%m-%d %H:%MZ")


def in_full(at: datetime) -> str:
    """Return a time with date, seconds and zone."""
    day = f"{_DAYS[at.weekday()]} {at.day:02} {MONTHS[at.month - 1]} {at.year}"
    return f"{day} {at.hour:02}:{at.minute:02}:{at.second:02} UTC"


# A page shows hundreds of times, and strftime takes several times as long.
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS: Final = (
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
)  # fmt: skip


def size(value: int | None) -> str:
    """Return a number of bytes in decimal units."""
    if value is None:
        return NOTHING
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def visible(value: Any) -> str:
    """Return untrusted text with visible control characters, cut at 2,000 characters."""
    text = "" if value is None else str(value)
    if len(text) > CUT:
        return f"{_UNSEEN.sub(_seen, text[:CUT])}…"
    return _UNSEEN.sub(_seen, text)


_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters, and those that reverse the text direction, with which a name can look like
another.
"""


def _seen(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 32:
        return chr(0x2400 + code)
    return "␡" if code == 127 else f"\\u{code:04x}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return "1 run" or "2 runs"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
