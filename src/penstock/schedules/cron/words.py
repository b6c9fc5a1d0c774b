"""Descriptions of common cron expressions in plain language; others are quoted. Pure."""

from __future__ import annotations

from typing import Final

_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_DAY_NAMES: Final = {name[:3].upper(): number for number, name in enumerate(_DAYS)}
_TIMES_MAX: Final = 4
"""Maximum number of times of day that are listed; an expression with more is quoted."""


def cron_text(expression: str) -> str:
    """Return when a cron expression fires: "every day at 02:00", "every 15 minutes"."""
    fields = expression.split()
    if len(fields) == 5:
        minute, hour, day, month, weekday = fields
        if month == "*":
            if (day, weekday) == ("*", "*") and (phrase := _within_a_day(minute, hour)):
                return phrase
            when, times = _days(day, weekday), _times(minute, hour)
            if when and times:
                return f"{when} at {times}"
    return f'by cron "{expression}"'


def _within_a_day(minute: str, hour: str) -> str:
    """Return the words for a step of minutes or hours; empty if it is neither."""
    if hour == "*":
        if minute == "*":
            return "every minute"
        if (step := _step(minute, 60)) is not None:
            return f"every {step} minutes"
        return f"every hour at minute {int(minute)}" if _is_number(minute, 59) else ""
    step = _step(hour, 24)
    if step is None or not _is_number(minute, 59):
        return ""
    return f"every {step} hours at minute {int(minute)}"


def _step(text: str, whole: int) -> int | None:
    """Return the step of `*/n` if it divides the whole, so that all gaps are equal; else None."""
    head, slash, step = text.partition("/")
    if head != "*" or not slash or not step.isdecimal():
        return None
    n = int(step)
    return n if 1 < n < whole and whole % n == 0 else None


def _times(minute: str, hour: str) -> str:
    """Return times of day: "02:00", "02:00 and 14:00"; empty if they are not a plain list."""
    hours = hour.split(",")
    if not _is_number(minute, 59) or not all(_is_number(one, 23) for one in hours):
        return ""
    if len(set(hours)) != len(hours) or len(hours) > _TIMES_MAX:
        return ""
    return _listed([f"{one:02}:{int(minute):02}" for one in sorted(int(one) for one in hours)])


def _days(day: str, weekday: str) -> str:
    if (day, weekday) == ("*", "*"):
        return "every day"
    if weekday == "*":
        return f"on day {int(day)} of every month" if _is_number(day, 31) and int(day) else ""
    if day != "*":
        return ""  # cron then fires on either
    first, dash, last = weekday.partition("-")
    if dash:
        begin, end = _weekday(first), _weekday(last)
        if begin is None or end is None or begin >= end:
            return ""
        return f"{_DAYS[begin]} to {_DAYS[end]}"
    named = [_weekday(one) for one in weekday.split(",")]
    found = [one for one in named if one is not None]
    if len(found) != len(named) or len(set(found)) != len(found):
        return ""
    return f"every {_listed([_DAYS[one] for one in sorted(found)])}"


def _weekday(text: str) -> int | None:
    """Return the number of a weekday, 0 for Sunday; None if it is not a single one."""
    if _is_number(text, 7):
        return int(text) % 7
    return _DAY_NAMES.get(text.upper())


def _is_number(text: str, most: int) -> bool:
    return text.isdecimal() and text.isascii() and int(text) <= most


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
