"""Daylight saving in every IANA zone, compared with an oracle based only on zoneinfo.

Each change of offset from 2024 to 2027 is tested, and some historical special cases: skipped days,
half-hour changes, changes at and across midnight.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from penstock.core.clock import MINUTE, from_datetime
from penstock.core.utc_offsets import offset_period_at, timezone_names
from penstock.schedules import cadence
from penstock.schedules.cadence import cron
from tests.kits.effort import effort

AREAS = sorted({name.partition("/")[0] if "/" in name else "(none)" for name in timezone_names()})
SPECIAL_CASES = {
    "Australia/Lord_Howe": (1981, 1986, 2001),
    "Pacific/Apia": (2010, 2012),
    "Pacific/Kwajalein": (1993,),
    "Pacific/Kiritimati": (1979, 1994),
    "Pacific/Enderbury": (1994,),
    "Africa/Casablanca": (2012, 2013, 2018),
    "Africa/Monrovia": (1972,),
    "America/St_Johns": (1988, 2006, 2011),
    "America/Caracas": (2007, 2016),
    "America/Scoresbysund": (2024, 2025),
    "Antarctica/Casey": (2009, 2010, 2023),
    "Antarctica/Troll": (2025,),
    "Asia/Amman": (2022,),
    "Asia/Pyongyang": (2015, 2018),
    "Europe/Dublin": (1968, 1971),
    "Europe/Lisbon": (1992, 1996),
}
TIMES = [time(0, 0), time(0, 30), time(1, 30), time(2, 15), time(23, 30), time(12, 0)]
SECOND = timedelta(seconds=1)


def zones_of(area: str) -> list[str]:
    """Return the zones of an area; `make test` leaves out those that behave like another."""
    if area == "(none)":
        names = sorted(name for name in timezone_names() if "/" not in name)
    else:
        names = sorted(name for name in timezone_names() if name.startswith(f"{area}/"))
    return effort(list({behaviour(name): name for name in names}.values()), names)


def behaviour(zone: str) -> tuple[object, ...]:
    """Return the offsets of a zone from 2024 to 2027 and when they change."""
    info, found = ZoneInfo(zone), changes(zone, 2024, 2027)
    first = datetime(2024, 1, 1, tzinfo=UTC)
    return found, *(offset(info, moment) for moment in (first, *found))


@cache
def changes(zone: str, first: int, last: int) -> tuple[datetime, ...]:
    """Return the UTC times at which the offset of a zone changes, by bisection."""
    info = ZoneInfo(zone)
    found = []
    left, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last + 1, 1, 1, tzinfo=UTC)
    while left < end:
        right = left + timedelta(hours=36)
        if offset(info, left) != offset(info, right):
            low, high = left, right
            while high - low > SECOND:
                middle = low + (high - low) // 2 // SECOND * SECOND
                if offset(info, middle) == offset(info, right):
                    high = middle
                else:
                    low = middle
            found.append(high)
        left = right
    return tuple(found)


def offset(zone: ZoneInfo, moment: datetime) -> timedelta | None:
    return moment.astimezone(zone).utcoffset()


def wall(zone: ZoneInfo, moment: datetime) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None)


def first_moment(zone: ZoneInfo, local: datetime) -> datetime:
    """Return the first instant at which the wall clock shows ``local`` or a later time."""
    early = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if wall(zone, early) == local:
        return early
    low, high = local.replace(tzinfo=zone, fold=1).astimezone(UTC), early
    assert wall(zone, low) < local < wall(zone, high)
    while high - low > SECOND:
        middle = low + (high - low) // 2 // SECOND * SECOND
        if wall(zone, middle) < local:
            low = middle
        else:
            high = middle
    return high


def exists(zone: ZoneInfo, day: date) -> bool:
    return wall(zone, first_moment(zone, datetime.combine(day, time()))).date() == day


def expected_daily(zone: ZoneInfo, at: list[time], low: datetime, high: datetime) -> list[int]:
    """Return the instants in (low, high] at which a schedule with fixed times is due."""
    due = set()
    day = wall(zone, low).date() - timedelta(days=3)
    while day <= wall(zone, high).date() + timedelta(days=3):
        if exists(zone, day):
            due |= {first_moment(zone, datetime.combine(day, moment)) for moment in at}
        day += timedelta(days=1)
    return sorted(from_datetime(moment) for moment in due if low < moment <= high)


def special_cases() -> Iterator[tuple[str, datetime]]:
    """Yield each historical special case as a zone and the instant of a change."""
    for zone, years in SPECIAL_CASES.items():
        for year in years:
            for moment in changes(zone, year, year):
                yield zone, moment


def check_fixed_hours(zone: str, change: datetime) -> None:
    info = ZoneInfo(zone)
    low, high = change - timedelta(days=3), change + timedelta(days=3)
    after, until = from_datetime(low), from_datetime(high)
    before_change, after_change = wall(info, change - SECOND), wall(info, change)
    near = [time(hour, 20) for hour in sorted({before_change.hour, after_change.hour})]
    for moments in ([TIMES[0]], *([moment] for moment in TIMES[1:]), *([m] for m in near), near):
        hours = ",".join(str(moment.hour) for moment in moments)
        rule = cron(f"{moments[0].minute} {hours} * * *", zone)
        expected = expected_daily(info, moments, low, high)
        found = cadence.occurrences_between(rule, after, until, 100)
        assert found == expected, (zone, change, rule)
        assert cadence.count_occurrences(rule, after, until) == len(expected), (zone, change, rule)
        for previous, scheduled in pairwise(expected):
            assert cadence.latest_at_or_before(rule, scheduled) == scheduled, (zone, scheduled)
            assert cadence.latest_at_or_before(rule, scheduled - 1) == previous, (zone, scheduled)


def check_every_minute(zone: str, change: datetime) -> None:
    """Check a fixed hour with many minutes: each fires once, skipped ones fire together."""
    info = ZoneInfo(zone)
    low, high = change - timedelta(hours=5), change + timedelta(hours=5)
    for hour in {wall(info, change - SECOND).hour, wall(info, change).hour}:
        rule = cron(f"*/10 {hour} * * *", zone)
        at = [time(hour, minute) for minute in range(0, 60, 10)]
        found = cadence.occurrences_between(rule, from_datetime(low), from_datetime(high), 100)
        assert found == expected_daily(info, at, low, high), (zone, change, hour)


def check_elapsed(zone: str, change: datetime) -> None:
    """Check that wildcard and stepped hours fire exactly when the wall clock matches."""
    info = ZoneInfo(zone)
    low = change.replace(second=0) - timedelta(hours=4)
    # Monrovia was 44 minutes and 30 seconds behind until 1972.
    step = timedelta(seconds=30) if change.second else timedelta(minutes=1)
    steps = [low + step * n for n in range(1, timedelta(hours=8) // step)]
    walls = [(from_datetime(moment), wall(info, moment)) for moment in steps]
    walls = [pair for pair in walls if pair[1].second == 0]
    for expr, hours, minutes in (
        ("0 * * * *", range(24), {0}),
        ("*/20 * * * *", range(24), {0, 20, 40}),
        ("30 */3 * * *", range(0, 24, 3), {30}),
        ("15,45 1-23/2 * * *", range(1, 24, 2), {15, 45}),
    ):
        rule = cron(expr, zone)
        expected = [at for at, shown in walls if shown.hour in hours and shown.minute in minutes]
        after, until = from_datetime(low), walls[-1][0]
        found = cadence.occurrences_between(rule, after, until, 500)
        assert found == expected, (zone, change, expr)
        assert cadence.count_occurrences(rule, after, until) == len(expected), (zone, change, expr)
        back = [cadence.latest_at_or_before(rule, at) for at, _ in walls[::7]]
        past = [max((s for s in expected if s <= at), default=None) for at, _ in walls[::7]]
        assert [b for b, p in zip(back, past, strict=True) if p is not None] == [
            p for p in past if p is not None
        ], (zone, change, expr)


@pytest.mark.parametrize("area", AREAS)
def test_fixed_hours_fire_once_per_day_that_exists(area: str) -> None:
    """I21: around every change, each time fires exactly once per local day that exists."""
    for zone in zones_of(area):
        for change in changes(zone, 2024, 2027) or (datetime(2025, 3, 30, 1, tzinfo=UTC),):
            check_fixed_hours(zone, change)
            check_every_minute(zone, change)


@pytest.mark.parametrize("area", AREAS)
def test_wildcard_hours_follow_elapsed_time(area: str) -> None:
    """Around every change, a five-minute cadence stays even and wildcards match the clock."""
    for zone in zones_of(area):
        rule = cron("*/5 * * * *", zone)
        for change in changes(zone, 2024, 2027) or (datetime(2025, 3, 30, 1, tzinfo=UTC),):
            start = from_datetime(change - timedelta(hours=3))
            times = cadence.occurrences_between(rule, start, start + 360 * MINUTE, 100)
            assert {b - a for a, b in pairwise(times)} == {5 * MINUTE}, (zone, change)
            assert len(times) == 72
            check_elapsed(zone, change)


@pytest.mark.parametrize(
    ("zone", "change"),
    list(special_cases()),
    ids=lambda v: v if isinstance(v, str) else f"{v:%Y-%m-%d}",
)
def test_historical_special_cases(zone: str, change: datetime) -> None:
    """Skipped days, half hours, changes at and across midnight follow the same rules."""
    check_fixed_hours(zone, change)
    check_every_minute(zone, change)
    check_elapsed(zone, change)


def test_stretches_are_contiguous_and_match_zoneinfo() -> None:
    """Stretches cover time with no gaps, and their offset equals that of zoneinfo."""
    moment = datetime(2025, 1, 1, tzinfo=UTC)
    for zone in sorted(timezone_names()):
        info, t = ZoneInfo(zone), from_datetime(moment)
        for _ in range(6):
            stretch = offset_period_at(zone, t)
            assert stretch.start <= t < stretch.end
            for probe in (t, stretch.end - 1):
                at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=probe)
                assert timedelta(microseconds=stretch.offset) == offset(info, at), zone
            t = stretch.end
