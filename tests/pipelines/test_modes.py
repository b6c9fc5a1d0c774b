"""Selection of modes by the clock, also on DST days in several zones, and what takes precedence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from penstock import Pipeline, RunContext, game_day_modes
from penstock.core import stored_json
from penstock.core.clock import HOUR, MINUTE, Micros, from_datetime, parse_iso
from penstock.core.errors import DeclarationError, InvalidInput
from penstock.flows.cascade import flow_deadline
from penstock.pipelines.mode import FallbackVerdict, Mode
from penstock.pipelines.modes import (
    default_mode,
    find_overlap,
    partition_of,
    resolve_modes,
    select_mode,
)
from penstock.pipelines.plan import modes_of
from tests.kits.modes import GAME_DAY

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


def _work(run: RunContext) -> None:
    """Do nothing."""


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
            mode = select_mode(GAME_DAY, now=moment, timezone=zone)
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
                found = partition_of(GAME_DAY[name], now=moment, timezone=zone)
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
        found = select_mode(GAME_DAY, now=now, timezone="America/New_York")
        assert found.name == mode
        assert partition_of(found, now=now, timezone="America/New_York") == partition

    def test_the_repeated_hour_belongs_to_one_night(self) -> None:
        """01:30 occurs twice on 2 November 2025; both belong to the night of the 1st."""
        first = parse_iso("2025-11-02T05:30:00Z")
        for now in (first, first + HOUR):
            mode = select_mode(GAME_DAY, now=now, timezone="America/New_York")
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
            GAME_DAY,
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
            select_mode(GAME_DAY, now=0, timezone="UTC", explicit="nightly")

    def test_windows(self) -> None:
        whole = Mode("whole", window="00:00-24:00")
        assert all(whole.window_contains(minute) for minute in range(1_440))
        assert not GAME_DAY["manual"].window_contains(0)
        assert find_overlap(GAME_DAY.values()) is None
        assert find_overlap([whole, GAME_DAY["overnight"]]) == ("whole", "overnight")


def resolved(*own: Mode) -> dict[str, Mode]:
    """Return the modes of a pipeline that declares these, by name."""
    return {mode.name: mode for mode in resolve_modes(own)}


class TestResolution:
    """Which modes a pipeline has, and which of them is the default."""

    def test_without_declared_modes_there_are_three_and_the_clock_decides_nothing(self) -> None:
        modes = resolved()
        assert list(modes) == ["daily", "manual", "backfill"]
        for hour in range(24):
            now = at(f"2026-01-01T{hour:02}:30")
            mode = select_mode(modes, now=now, timezone="America/New_York")
            assert mode.name == "daily"
            assert partition_of(mode, now=now, timezone="America/New_York") == "2026-01-01"
        assert all(mode.until is None and mode.phases is None for mode in modes.values())

    def test_manual_and_backfill_are_added_and_replaceable(self) -> None:
        own = Mode("manual", min_quality=0.5)
        modes = resolved(own)
        assert modes["manual"].min_quality == 0.5
        assert list(modes) == ["manual", "daily", "backfill"]

    @pytest.mark.parametrize(
        ("own", "default"),
        [
            ([Mode("nightly")], "nightly"),
            ([Mode("evening", window="20:00-22:00")], "daily"),
            ([Mode("evening", window="20:00-22:00"), Mode("nightly")], "nightly"),
            ([Mode("daily"), Mode("express")], "daily"),
            ([Mode("nightly"), Mode("express", default=True)], "express"),
            ([Mode("backfill")], "daily"),
            (list(GAME_DAY.values()), "same_day"),
        ],
    )
    def test_exactly_one_mode_is_the_default(self, own: list[Mode], default: str) -> None:
        modes = resolved(*own)
        assert [mode.name for mode in modes.values() if mode.default] == [default]
        assert default_mode(modes).name == default

    @pytest.mark.parametrize(
        "own",
        [
            [Mode("nightly"), Mode("express")],
            [Mode("nightly", default=True), Mode("express", default=True)],
        ],
    )
    def test_several_candidates_are_refused(self, own: list[Mode]) -> None:
        with pytest.raises(DeclarationError, match=r"modes nightly, express.*default=True"):
            resolve_modes(own)
        with pytest.raises(DeclarationError, match="pipeline p: modes nightly, express"):
            Pipeline("p", modes=own)


class TestStoredDefinitions:
    """A definition keeps its modes, whatever the built-in ones become."""

    def test_a_definition_lists_all_of_its_modes(self) -> None:
        definition = Pipeline("p").definition()
        assert [mode["name"] for mode in definition["modes"]] == ["daily", "manual", "backfill"]
        assert modes_of(definition) == resolved()

    def test_one_stored_before_that_has_the_five_it_was_registered_with(self) -> None:
        modes = modes_of({"name": "nba", "timezone": "UTC", "phases": []})
        assert modes == dict(GAME_DAY)
        assert default_mode(modes).name == "same_day"
        assert modes["overnight"].until == "precompute"

    def test_its_own_modes_replaced_and_preceded_those(self) -> None:
        late = Mode("late", window="00:00-04:00")
        same_day = GAME_DAY["same_day"].with_options(degraded_at=40, default=False)
        stored = [stored_json.to_json(late), stored_json.to_json(same_day)]
        modes = modes_of({"modes": stored, "slos": {"late": HOUR}})
        assert list(modes) == ["late", "same_day", "overnight", "tomorrow", "manual", "backfill"]
        assert modes["same_day"].degraded_at == 40
        assert default_mode(modes).name == "same_day"
        assert modes["late"].slo_us == HOUR
        now = at("2026-01-01T02:00")
        assert select_mode(modes, now=now, timezone="America/New_York").name == "late"

    def test_an_slo_that_is_refused_today_is_still_read(self) -> None:
        modes = modes_of({"slos": {"overnight": HOUR}})
        assert modes["overnight"].deadline_after_us == 2 * HOUR


class TestTable:
    """The built-in modes and the preset as specified."""

    @pytest.mark.parametrize(
        ("name", "row"),
        [
            ("daily", (100, 0.90, None, "WAIT", 5, 6, None, 100)),
            ("overnight", (100, 0.95, None, "WAIT", 10, 6, 6, 100)),
            ("same_day", (100, 0.90, 20, "FAIL", 5, 2, 2, 80)),
            ("tomorrow", (70, 0.85, 30, "WAIT", 30, 12, 12, 75)),
            ("manual", (100, 0.80, 50, "FAIL", None, None, 2, 50)),
            ("backfill", (100, 0.95, None, "FAIL", None, None, 12, 100)),
        ],
    )
    def test_rows(self, name: str, row: tuple[object, ...]) -> None:
        mode = {**resolved(), **GAME_DAY}[name]
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
        assert GAME_DAY["overnight"].deadline_after_us == 12 * HOUR
        assert Mode("m", slo="1h", deadline="90m").deadline_after_us == 90 * MINUTE
        assert Mode("m").deadline_after_us is None

    @pytest.mark.parametrize(
        ("options", "match"),
        [
            ({"deadline": "2h"}, r"deadline \(2h\) is earlier than max_wait \(6h\)"),
            ({"slo": "1h"}, r"deadline \(2h, twice the slo\) is earlier than max_wait \(6h\)"),
            ({"slo": "9h", "deadline": "8h"}, r"deadline \(8h\) is earlier than the slo \(9h\)"),
        ],
    )
    def test_a_deadline_never_shortens_waiting(self, options: dict[str, Any], match: str) -> None:
        with pytest.raises(DeclarationError, match=match):
            Mode("m", otherwise="WAIT", max_wait="6h", **options)
        assert Mode("m", otherwise="WAIT", max_wait="6h", slo="1h", deadline="7h").waits

    def test_nor_do_the_slos_of_a_pipeline(self) -> None:
        made = Pipeline("p", modes=game_day_modes(), slos={"overnight": "30m"})
        made.processor("work")(_work)
        with pytest.raises(DeclarationError, match=r"mode 'overnight': the deadline \(1h, twice"):
            made.check()
        daily = Pipeline("p", slos={"daily": "30m"})
        daily.processor("work")(_work)
        daily.check()
        assert daily.modes["daily"].deadline_after_us == 24 * HOUR

    def test_a_mode_without_a_deadline_has_time_to_wait(self) -> None:
        patient = Mode("m", otherwise="WAIT", max_wait="30h")
        assert flow_deadline(patient, 0) == 60 * HOUR
        assert flow_deadline(Mode("m"), 0) == 24 * HOUR
