"""Time: conversions between microseconds, datetimes and text."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest

from penstock.core import clock
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, SystemClock
from penstock.core.errors import InvalidInput


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2025-11-17T02:00:00Z", 1_763_344_800 * SECOND),
        ("2025-11-17t02:00:00z", 1_763_344_800 * SECOND),
        ("2025-11-17T03:00:00+01:00", 1_763_344_800 * SECOND),
        ("2025-11-17T02:00:00.000001Z", 1_763_344_800 * SECOND + 1),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("9999-12-31T23:59:59Z", 253_402_300_799 * SECOND),
    ],
)
def test_parse_iso(text: str, micros: int) -> None:
    """ISO 8601 times with an offset are parsed exactly."""
    assert clock.parse_iso(text) == micros


@pytest.mark.parametrize(
    "text",
    ["", "now", "2025-11-17", "2025-11-17T02:00:00", "2025-02-30T00:00:00Z", 5, None, "9" * 100],
)
def test_parse_iso_rejects(text: object) -> None:
    """Invalid times and times without an offset are rejected with the name of the field."""
    with pytest.raises(InvalidInput, match="scheduled_time"):
        clock.parse_iso(text, "scheduled_time")


def test_iso_has_a_fraction_only_when_there_is_one() -> None:
    """The fraction is omitted if it is zero."""
    assert clock.iso(1_763_344_800 * SECOND) == "2025-11-17T02:00:00Z"
    assert clock.iso(1_763_344_800 * SECOND + 5) == "2025-11-17T02:00:00.000005Z"


def test_datetimes_must_be_aware_in_any_zone() -> None:
    """A naive datetime is rejected, an aware one converted."""
    moment = datetime(2025, 11, 17, 3, tzinfo=timezone(timedelta(hours=1)))
    assert clock.to_datetime(clock.from_datetime(moment)) == moment
    assert clock.to_datetime(0).tzinfo is UTC
    with pytest.raises(InvalidInput, match="zone"):
        clock.from_datetime(datetime(2025, 11, 17))  # noqa: DTZ001 - the rejected form
    with pytest.raises(InvalidInput, match="years 1 to 9999"):
        clock.to_datetime(10**20)
    edge = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))
    with pytest.raises(InvalidInput, match="years 1 to 9999"):
        clock.from_datetime(edge)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_an_offset_does_not_leave_the_calendar(text: str) -> None:
    """A time whose UTC form has no year is refused before anything is done with it."""
    with pytest.raises(InvalidInput, match=r"start_at.*years 1 to 9999"):
        clock.parse_iso(text, "start_at")


def test_times_of_requests_leave_years_for_durations() -> None:
    """The longest duration after the latest time of a request can still be shown."""
    last = datetime(9899, 12, 31, 23, 59, tzinfo=UTC)
    us = clock.request_time(last, "start_at")
    assert clock.to_datetime(us + clock.DURATION_MAX - DAY).year == 9999
    for wrong in (last + timedelta(minutes=1), datetime(2025, 1, 1), "now"):  # noqa: DTZ001
        with pytest.raises(InvalidInput, match="start_at"):
            clock.request_time(wrong, "start_at")


def test_impossible_times_are_shown_as_the_nearest() -> None:
    """A row with a time outside the calendar has a form; it never breaks a list."""
    assert clock.iso(2**62).startswith("9999-12-31T23:59:59")
    assert clock.iso(-(2**62)) == "0001-01-01T00:00:00Z"
    assert clock.shown_datetime(5) == clock.to_datetime(5)


@pytest.mark.parametrize(
    ("value", "micros"),
    [
        ("5m", 5 * MINUTE),
        ("1h30m", 90 * MINUTE),
        ("90s", 90 * SECOND),
        ("2d", 2 * DAY),
        ("1w", 7 * DAY),
        ("1.5h", 90 * MINUTE),
        ("250ms", SECOND // 4),
        (" 1H 30M ", 90 * MINUTE),
        ("45", 45 * SECOND),
        (45, 45 * SECOND),
        (0.5, SECOND // 2),
        (timedelta(hours=2), 2 * HOUR),
        (0, 0),
    ],
)
def test_parse_duration(value: str | int | float | timedelta, micros: int) -> None:
    """Durations are parsed in every form that settings use."""
    assert clock.parse_duration(value) == micros


@pytest.mark.parametrize(
    "value",
    [
        "", "m", "5x", "-5m", "5m-", "1e9d", "٣m", "9" * 13 + "s", "9" * 12 + "d", -1, True,
        float("nan"), float("inf"), None, [], 10**5000,
    ],
    ids=lambda value: str(type(value).__name__),
)  # fmt: skip
def test_parse_duration_rejects(value: object) -> None:
    """Invalid, negative and infinite durations are rejected with the name of the field."""
    with pytest.raises(InvalidInput, match="slo: expected a duration"):
        clock.parse_duration(value, "slo")  # type: ignore[arg-type] # wrong on purpose


@pytest.mark.parametrize(
    ("micros", "text"),
    [(0, "0s"), (90 * SECOND, "1m30s"), (90 * MINUTE, "1h30m"), (DAY + 1, "1d1us"), (-HOUR, "-1h")],
)
def test_format_duration(micros: int, text: str) -> None:
    """The largest units come first, and nothing is rounded."""
    assert clock.format_duration(micros) == text


def test_system_clock_moves_forward_and_waits_for_events() -> None:
    """The system clock returns plausible times, and wait returns whether the event is set."""
    system = SystemClock()
    assert clock.iso(system.now()) > "2025"
    before = system.monotonic()
    system.sleep(-1)
    event = threading.Event()
    assert system.wait(event, 0) is False
    event.set()
    assert system.wait(event, None) is True
    assert system.monotonic() >= before
