"""Cadences: tables of expected times, a corpus of invalid input, daylight saving cases."""

from __future__ import annotations

import pytest

from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, iso, parse_iso
from penstock.core.errors import InvalidInput
from penstock.core.utc_offsets import timezone_names
from penstock.schedules import cadence
from penstock.schedules.cadence import Cadence, cron, every

NY, LORD_HOWE = "America/New_York", "Australia/Lord_Howe"


def fires(expr: str, zone: str, after: str, n: int) -> list[str]:
    found = cadence.occurrences_between(cron(expr, zone), parse_iso(after), 10**18, n)
    return [iso(scheduled)[:16] for scheduled in found]


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("0 2 * * *", ["2025-11-18T02:00", "2025-11-19T02:00"]),
        ("*/15 * * * *", ["2025-11-17T02:15", "2025-11-17T02:30"]),
        ("@hourly", ["2025-11-17T03:00", "2025-11-17T04:00"]),
        ("@daily", ["2025-11-18T00:00", "2025-11-19T00:00"]),
        ("@midnight", ["2025-11-18T00:00", "2025-11-19T00:00"]),
        ("@weekly", ["2025-11-23T00:00", "2025-11-30T00:00"]),
        ("@monthly", ["2025-12-01T00:00", "2026-01-01T00:00"]),
        ("@yearly", ["2026-01-01T00:00", "2027-01-01T00:00"]),
        ("@annually", ["2026-01-01T00:00", "2027-01-01T00:00"]),
        ("0 9-17/4 * * mon-fri", ["2025-11-17T09:00", "2025-11-17T13:00"]),
        ("0 0 13 * 5", ["2025-11-21T00:00", "2025-11-28T00:00"]),
        ("0 0 */2 * 1", ["2025-12-01T00:00", "2025-12-15T00:00"]),
        ("0 0 30 2 1", ["2026-02-02T00:00", "2026-02-09T00:00"]),
        ("0 0 29 2 *", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ("0 0 29 2 */7", ["2032-02-29T00:00", "2060-02-29T00:00"]),
        ("0 0 L * *", ["2025-11-30T00:00", "2025-12-31T00:00"]),
        ("0 0 LW * *", ["2025-11-28T00:00", "2025-12-31T00:00"]),
        ("0 0 * * 5L", ["2025-11-28T00:00", "2025-12-26T00:00"]),
        ("0 0 * * 5#3", ["2025-11-21T00:00", "2025-12-19T00:00"]),
        ("0 0 1 jan,jul *", ["2026-01-01T00:00", "2026-07-01T00:00"]),
    ],
)
def test_fires(expr: str, expected: list[str]) -> None:
    """The next two times after Monday, 17 November 2025, 02:00 UTC."""
    assert fires(expr, "UTC", "2025-11-17T02:00:00Z", 2) == expected


@pytest.mark.parametrize(
    ("expr", "zone", "after", "expected"),
    [
        # New York, 8 March 2026: 02:00-03:00 does not exist; the change is at 07:00 UTC.
        ("30 2 * * *", NY, "2026-03-08T00:00:00Z", ["03-08T07:00", "03-09T06:30"]),
        ("0,30 2 * * *", NY, "2026-03-08T00:00:00Z", ["03-08T07:00", "03-09T06:00"]),
        ("0 2,3 * * *", NY, "2026-03-08T00:00:00Z", ["03-08T07:00", "03-09T06:00"]),
        ("*/15 2 * * *", NY, "2026-03-08T00:00:00Z", ["03-08T07:00", "03-09T06:00"]),
        ("0 */2 * * *", NY, "2026-03-08T05:00:00Z", ["03-08T08:00", "03-08T10:00"]),
        ("30 * * * *", NY, "2026-03-08T06:00:00Z", ["03-08T06:30", "03-08T07:30"]),
        # New York, 1 November 2026: 01:00-02:00 occurs twice, at 05:00 and at 06:00 UTC.
        ("30 1 * * *", NY, "2026-11-01T00:00:00Z", ["11-01T05:30", "11-02T06:30"]),
        ("30 1 * * *", NY, "2026-11-01T06:10:00Z", ["11-02T06:30", "11-03T06:30"]),
        ("*/30 1 * * *", NY, "2026-11-01T05:00:00Z", ["11-01T05:30", "11-02T06:00"]),
        ("30 * * * *", NY, "2026-11-01T05:00:00Z", ["11-01T05:30", "11-01T06:30"]),
        # Lord Howe moves by half an hour: 4 October 2026, 02:00-02:30 does not exist.
        ("15 2 * * *", LORD_HOWE, "2026-10-03T00:00:00Z", ["10-03T15:30", "10-04T15:15"]),
        ("45 1 * * *", LORD_HOWE, "2026-04-04T00:00:00Z", ["04-04T14:45", "04-05T15:15"]),
        # Apia had no 30 December 2011.
        ("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z", ["12-29T22:00", "12-30T22:00"]),
        # Casablanca leaves its offset for Ramadan: 15 February 2026, 03:00 becomes 02:00.
        ("30 2 * * *", "Africa/Casablanca", "2026-02-14T12:00:00Z", ["02-15T01:30", "02-16T02:30"]),
        # Cairo and Havana change at midnight.
        ("0 0 * * *", "Africa/Cairo", "2026-04-23T00:00:00Z", ["04-23T22:00", "04-24T21:00"]),
        ("0 0 * * *", "America/Havana", "2026-10-31T12:00:00Z", ["11-01T04:00", "11-02T05:00"]),
    ],
)  # fmt: skip
def test_daylight_saving(expr: str, zone: str, after: str, expected: list[str]) -> None:
    """Fixed hours fire once a day, wildcard and stepped hours follow elapsed time."""
    assert [text[5:] for text in fires(expr, zone, after, 2)] == expected


def test_a_day_skipped_by_a_zone_is_found_in_the_next_year() -> None:
    """If a day did not exist in one year, the next year that has it is found."""
    assert fires("0 0 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00Z", 1) == ["2012-12-29T10:00"]


BAD_CRON: list[object] = [
    "* * 31 2 *", "0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 */31 2 MON#5",
    "*/0 * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 0 *", "* * * 13 *",
    "* * * * 8", "-1 * * * *", "1-70 * * * *", "22-2 * * * *", "a * * * *", "* * * FOO *",
    "* * * * * *", "* * * * * * *", "0 0 0 0 0 0 2026", "* * * *", "*", "", "   ", "@every 0s",
    "@every 5m", "@reboot", "@", "@daily @daily", "0 0 15W * *", "0 0 W * *", "0 0 L/2 * *",
    "0 0 * * L", "0 0 * * 5#6", "0 0 * * 5#0", "0 0 * * #", "H * * * *", "? * * * *",
    "*/90 * * * *", "* */25 * * *", ", * * * *", "1,,2 * * * *", "1/ * * * *", "/5 * * * *",
    "1-2-3 * * * *",
    "*/5/5 * * * *", "1.5 * * * *", "٣ * * * *", "² * * * *", "0 0 * * ²L", "\0 * * * *",
    "9" * 5000 + " * * * *", "* " * 5000, "0 0 * * *; drop table configs", None, 5, [],
    b"* * * * *",
]  # fmt: skip


@pytest.mark.parametrize("expr", BAD_CRON, ids=range(len(BAD_CRON)))
def test_invalid_expressions_are_rejected(expr: object) -> None:
    """Every malformed or impossible expression is rejected with the name of the field."""
    with pytest.raises(InvalidInput) as caught:
        cron(expr, "UTC")
    assert caught.value.field == "schedule_cron"
    assert caught.value.expected
    assert len(caught.value.message) < 600


@pytest.mark.parametrize(
    ("expr", "hint"),
    [
        ("* * * * * *", "five fields, not 6"),
        ("* * * * * * *", "five fields, not 7"),
        ("0 0 31 2 *", "The day 31 does not exist in the month 2"),
        ("0 99 * * *", "hours 0-23"),
        ("0 0 * * 9", "weekdays 0-7"),
        ("*/90 * * * *", "schedule_type INTERVAL"),
        ("@every 5m", "schedule_type INTERVAL"),
    ],
)
def test_errors_suggest_a_fix(expr: str, hint: str) -> None:
    """The message names the invalid part and a fix."""
    with pytest.raises(InvalidInput, match="schedule_cron") as caught:
        cron(expr)
    assert hint in caught.value.message


BAD_ZONES: list[object] = [
    "", " ", "Mars/Olympus", "america/new_york", "New York", "PST", "+02:00", "UTC+2", "America",
    "../../etc/passwd", "/etc/localtime", "localtime", "Factory", "posix/UTC", "right/UTC", "a\0b",
    "Europe/Paris\n", "x" * 10_000, "\u202eUTC", None, 5, [],
]  # fmt: skip


@pytest.mark.parametrize("zone", BAD_ZONES, ids=range(len(BAD_ZONES)))
def test_unknown_zones_are_rejected(zone: object) -> None:
    """Only IANA names are accepted; no file is opened for any other text."""
    with pytest.raises(InvalidInput) as caught:
        cron("@daily", zone)
    assert caught.value.field == "timezone"


@pytest.mark.parametrize(
    ("zone", "meant"),
    [
        ("america/new_york", "America/New_York"),
        ("New York", "America/New_York"),
        ("Europe/Pariss", "Europe/Paris"),
        ("kolkata", "Asia/Kolkata"),
        ("US/Pacific-New", "US/Pacific"),
    ],
)
def test_close_zones_are_suggested(zone: str, meant: str) -> None:
    """For a misspelled zone, the most likely name is suggested first."""
    with pytest.raises(InvalidInput, match=f"Did you mean {meant}"):
        cron("@daily", zone)


def test_spelling_does_not_affect_equality() -> None:
    """Different spellings of one expression are equal cadences."""
    assert cron(" 0  2 * JAN  mon ") == cron("00 02\t* jan MON") == Cadence("0 2 * JAN MON")
    assert cron("@daily") == cron("0 0 * * *")
    assert hash(cron("@daily")) == hash(cron("0 0 * * *"))
    assert cron("100 * * * *".replace("100", "10")).cron == "10 * * * *"


def test_intervals_are_elapsed_time_from_their_anchor() -> None:
    """Scheduled times are anchor + k·interval, independent of the calendar."""
    rule = every(90 * MINUTE)
    anchor = parse_iso("2026-03-08T00:10:00Z")
    assert cadence.next_after(rule, anchor, anchor) == anchor + 90 * MINUTE
    assert cadence.next_after(rule, anchor - 1, anchor) == anchor
    assert cadence.latest_at_or_before(rule, anchor + HOUR, anchor=anchor) == anchor
    assert cadence.latest_at_or_before(rule, anchor + HOUR, anchor + 1, anchor) is None
    assert cadence.count_occurrences(rule, anchor, anchor + DAY, anchor=anchor) == 16
    times = cadence.occurrences_between(rule, anchor, anchor + DAY, 3, anchor)
    assert times == [anchor + k * 90 * MINUTE for k in (1, 2, 3)]


@pytest.mark.parametrize("interval", [0, -MINUTE, SECOND - 1, 4000 * DAY, True, 1.5, "5m", None])
def test_invalid_intervals_are_rejected(interval: object) -> None:
    """An interval must be between one second and ten years."""
    with pytest.raises(InvalidInput, match="schedule_interval_minutes"):
        every(interval)  # type: ignore[arg-type] # wrong on purpose


def test_far_years() -> None:
    """The year 2038 is no limit, and the end of the calendar raises InvalidInput."""
    assert fires("@daily", "UTC", "2038-01-19T03:14:08Z", 1) == ["2038-01-20T00:00"]
    assert fires("0 3 * * *", "America/New_York", "9980-06-01T00:00:00Z", 1) == ["9980-06-01T07:00"]
    last = parse_iso("9999-12-31T00:00:00Z")
    rule = cron("0 0 29 2 *")
    for late in (last, parse_iso("9989-12-31T23:59:59Z")):
        for search in (cadence.next_after, cadence.latest_at_or_before):
            try:
                assert search(rule, late) is not None
            except InvalidInput as error:
                assert error.field in ("time", "schedule_cron")  # noqa: PT017 - either is right
    with pytest.raises(InvalidInput, match="1900"):
        cadence.next_after(rule, parse_iso("1800-01-01T00:00:00Z"))


def test_latest_until_respects_its_bound() -> None:
    """Times before not_before are ignored; not_before itself is included."""
    rule, scheduled = cron("0 2 * * *"), parse_iso("2026-01-05T02:00:00Z")
    assert cadence.latest_at_or_before(rule, scheduled) == scheduled
    assert cadence.latest_at_or_before(rule, scheduled - 1) == scheduled - DAY
    assert cadence.latest_at_or_before(rule, scheduled + HOUR, scheduled) == scheduled
    assert cadence.latest_at_or_before(rule, scheduled + HOUR, scheduled + 1) is None
    leap = cron("0 0 29 2 *", "Europe/Paris")
    found = cadence.latest_at_or_before(leap, scheduled)
    assert found is not None
    assert iso(found) == "2024-02-28T23:00:00Z"


def test_counting_a_year_of_minutes_is_exact_and_capped() -> None:
    """Counting is exact up to the cap and stops there."""
    rule, start = cron("* * * * *", "America/New_York"), parse_iso("2026-01-01T00:00:00Z")
    assert cadence.count_occurrences(rule, start, start + 365 * DAY) == 365 * 1440
    assert cadence.count_occurrences(rule, start, start + 365 * DAY, 1000) == 1000
    assert cadence.count_occurrences(rule, start, start) == 0


def test_a_cadence_without_a_rule_is_rejected() -> None:
    """The empty cadence of an EVENT_DRIVEN config has no times."""
    with pytest.raises(InvalidInput, match="schedule_cron"):
        cadence.next_after(Cadence(), 0)


def test_zone_names_are_many() -> None:
    """The tests over all zones run over more than 400 zones."""
    assert len(timezone_names()) > 400
