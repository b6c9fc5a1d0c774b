"""Selection of modes by the clock, also on DST days in several zones, and what takes precedence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from penstock.core import stored_json
from penstock.core.clock import HOUR, MINUTE, Micros, from_datetime, parse_iso
from penstock.core.errors import InvalidInput
from penstock.pipelines.mode import FallbackVerdict, Mode
from penstock.pipelines.modes import (
    BUILT_IN,
    find_overlap,
    modes_by_name,
    partition_of,
    select_mode,
)

ZONES = {
    "America/New_York": ("2025-03-09", "2025-11-02"),
    "Europe/Berlin": ("2025-03-30", "2025-10-26"),
    "Australia/Lord_Howe": ("2025-10-05", "2025-04-06"),
    "America/Santiago": ("2025-09-07", "2025-04-06"),
    "UTC": ("2025-03-09", "2025-11-02"),
}
DAYS = [(zone, day) for zone, days in ZONES.items() for day in days]


def at(text: str, zone: str = "America/New_York") -> Micros:
    """Return a wall-clock time in a zone as micros."""
    return from_datetime(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)))


def by_wall_clock(hour: int) -> str:
    """Return the expected mode for an hour of the wall clock."""
    if hour >= 23 or hour < 6:
        return "overnight"
    if 17 <= hour < 21:
        return "tomorrow"
    return "same_day"


class TestClock:
    """Selection by the wall clock of the pipeline's timezone."""

    @pytest.mark.parametrize(("zone", "day"), DAYS)
    def test_every_quarter_hour_of_both_dst_days(self, zone: str, day: str) -> None:
        """Mode and partition follow the wall clock from the noon before to the noon after."""
        start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)) - timedelta(hours=12)
        moment, end = from_datetime(start), from_datetime(start) + 50 * HOUR
        hours = set()
        while moment < end:
            wall = datetime.fromtimestamp(moment / 1e6, UTC).astimezone(ZoneInfo(zone))
            mode = select_mode(BUILT_IN, now=moment, timezone=zone)
            assert mode.name == by_wall_clock(wall.hour), wall
            night = wall.date() if wall.hour >= 23 else wall.date() - timedelta(days=1)
            days = {
                "overnight": night,
                "same_day": wall.date(),
                "tomorrow": wall.date() + timedelta(days=1),
                "manual": wall.date(),
                "backfill": wall.date(),
            }
            for name, expected in days.items():
                found = partition_of(BUILT_IN[name], now=moment, timezone=zone)
                assert found == expected.isoformat(), (name, wall)
            hours.add((wall.date(), wall.hour))
            moment += 15 * MINUTE
        assert len(hours) >= 48

    @pytest.mark.parametrize(
        ("wall", "mode", "partition"),
        [
            ("2025-12-31T22:59", "same_day", "2025-12-31"),
            ("2025-12-31T23:00", "overnight", "2025-12-31"),
            ("2026-01-01T05:59", "overnight", "2025-12-31"),
            ("2026-01-01T06:00", "same_day", "2026-01-01"),
            ("2026-01-01T10:00", "same_day", "2026-01-01"),
            ("2026-01-01T15:00", "same_day", "2026-01-01"),
            ("2026-01-01T16:59", "same_day", "2026-01-01"),
            ("2026-01-01T17:00", "tomorrow", "2026-01-02"),
            ("2026-01-01T20:59", "tomorrow", "2026-01-02"),
            ("2026-01-01T21:00", "same_day", "2026-01-01"),
        ],
    )
    def test_edges(self, wall: str, mode: str, partition: str) -> None:
        now = at(wall)
        found = select_mode(BUILT_IN, now=now, timezone="America/New_York")
        assert found.name == mode
        assert partition_of(found, now=now, timezone="America/New_York") == partition

    def test_the_repeated_hour_belongs_to_one_night(self) -> None:
        """01:30 occurs twice on 2 November 2025; both belong to the night of the 1st."""
        first = parse_iso("2025-11-02T05:30:00Z")
        for now in (first, first + HOUR):
            mode = select_mode(BUILT_IN, now=now, timezone="America/New_York")
            assert mode.name == "overnight"
            assert partition_of(mode, now=now, timezone="America/New_York") == "2025-11-01"


class TestPrecedence:
    """Explicit, then backfill, then manual, then the clock."""

    NIGHT = at("2026-01-01T02:00")

    @pytest.mark.parametrize("explicit", [None, "tomorrow"])
    @pytest.mark.parametrize("backfill", [False, True])
    @pytest.mark.parametrize("source", [None, "manual", "scheduler"])
    def test_order(self, explicit: str | None, backfill: bool, source: str | None) -> None:
        found = select_mode(
            BUILT_IN,
            now=self.NIGHT,
            timezone="America/New_York",
            explicit=explicit,
            backfill=backfill,
            trigger_source=source,
        )
        wanted = "overnight"
        if source == "manual":
            wanted = "manual"
        if backfill:
            wanted = "backfill"
        assert found.name == (explicit or wanted)

    def test_an_unknown_mode_is_rejected(self) -> None:
        with pytest.raises(InvalidInput, match="one of backfill, manual, overnight"):
            select_mode(BUILT_IN, now=0, timezone="UTC", explicit="nightly")

    def test_own_modes_take_precedence_over_built_in_ones(self) -> None:
        late = Mode("late", window="00:00-04:00", partition_days=-2)
        modes = modes_by_name([late])
        found = select_mode(modes, now=self.NIGHT, timezone="America/New_York")
        assert found is late
        day = partition_of(late, now=self.NIGHT, timezone="America/New_York")
        assert day == "2025-12-30"
        again = modes_by_name([BUILT_IN["overnight"].with_options(max_wait="3h")])
        assert again["overnight"].max_wait_us == 3 * HOUR
        assert len(again) == 5

    def test_windows(self) -> None:
        whole = Mode("whole", window="00:00-24:00")
        assert all(whole.window_contains(minute) for minute in range(1_440))
        assert not BUILT_IN["manual"].window_contains(0)
        assert find_overlap(BUILT_IN.values()) is None
        assert find_overlap([whole, BUILT_IN["overnight"]]) == ("whole", "overnight")


class TestTable:
    """The five built-in modes as specified."""

    @pytest.mark.parametrize(
        ("name", "row"),
        [
            ("overnight", (100, 0.95, None, "WAIT", 10, 6, 6, 100)),
            ("same_day", (100, 0.90, 20, "FAIL", 5, 2, 2, 80)),
            ("tomorrow", (70, 0.85, 30, "WAIT", 30, 12, 12, 75)),
            ("manual", (100, 0.80, 50, "FAIL", None, None, 2, 50)),
            ("backfill", (100, 0.95, None, "FAIL", None, None, 12, 100)),
        ],
    )
    def test_rows(self, name: str, row: tuple[object, ...]) -> None:
        mode = BUILT_IN[name]
        found = (
            mode.proceed_at,
            mode.min_quality,
            mode.degraded_at,
            mode.otherwise.value,
            None if mode.recheck_us is None else mode.recheck_us / MINUTE,
            None if mode.max_wait_us is None else mode.max_wait_us / HOUR,
            None if mode.slo_us is None else mode.slo_us / HOUR,
            mode.target,
        )
        assert found == row
        assert mode.waits is (mode.otherwise is FallbackVerdict.WAIT)
        assert stored_json.loads(Mode, stored_json.dumps(mode)) == mode

    def test_deadlines(self) -> None:
        assert BUILT_IN["overnight"].deadline_after_us == 12 * HOUR
        assert Mode("m", slo="1h", deadline="90m").deadline_after_us == 90 * MINUTE
        assert Mode("m").deadline_after_us is None
