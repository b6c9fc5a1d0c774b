"""Misfire plans: which occurrences start after downtime, and which are recorded as missed."""

from __future__ import annotations

import pytest

from penstock.core.clock import DAY, HOUR, MINUTE, parse_iso
from penstock.schedules.cadence import COUNT_CAP, CatchUp, cron, every
from penstock.schedules.misfire import MisfirePlan, plan_misfires

MIDNIGHT = parse_iso("2026-01-10T00:00:00Z")
HOURLY = cron("0 * * * *")


@pytest.mark.parametrize("catch_up", list(CatchUp))
def test_every_policy_runs_an_occurrence_on_time(catch_up: CatchUp) -> None:
    """An occurrence that is seconds late starts, and nothing is missed."""
    found = plan_misfires(HOURLY, MIDNIGHT, MIDNIGHT + 5_000_000, catch_up)
    assert found == MisfirePlan(run_at=MIDNIGHT, next_at=MIDNIGHT + HOUR)


def test_one_runs_the_latest() -> None:
    """After five hours the latest occurrence runs and five are missed."""
    assert plan_misfires(
        HOURLY, MIDNIGHT, MIDNIGHT + 5 * HOUR + 10 * MINUTE, CatchUp.ONE
    ) == MisfirePlan(
        run_at=MIDNIGHT + 5 * HOUR,
        next_at=MIDNIGHT + 6 * HOUR,
        missed_from=MIDNIGHT,
        missed_to=MIDNIGHT + 4 * HOUR,
        missed_count=5,
    )


def test_none_runs_the_latest_only_within_the_grace() -> None:
    """Ten minutes exceed the default grace period; a longer one permits the run."""
    now = MIDNIGHT + 5 * HOUR + 10 * MINUTE
    assert plan_misfires(HOURLY, MIDNIGHT, now, CatchUp.NONE) == MisfirePlan(
        run_at=None,
        next_at=MIDNIGHT + 6 * HOUR,
        missed_from=MIDNIGHT,
        missed_to=MIDNIGHT + 5 * HOUR,
        missed_count=6,
    )
    late = plan_misfires(HOURLY, MIDNIGHT, now, CatchUp.NONE, grace_us=10 * MINUTE)
    assert (late.run_at, late.missed_count) == (MIDNIGHT + 5 * HOUR, 5)


def test_all_runs_the_oldest_within_the_window_and_stays_due() -> None:
    """Occurrences before the window are missed; the others start one at a time, oldest first."""
    now = MIDNIGHT + 5 * HOUR + 10 * MINUTE
    occurrence, started, missed = MIDNIGHT, [], 0
    while occurrence <= now:
        found = plan_misfires(HOURLY, occurrence, now, CatchUp.ALL, window_us=3 * HOUR)
        missed += found.missed_count
        if found.run_at is not None:
            started.append((found.run_at - MIDNIGHT) // HOUR)
        occurrence = found.next_at
    assert (started, missed) == ([3, 4, 5], 3)


def test_all_with_everything_beyond_the_window() -> None:
    """A daily occurrence older than the window is only recorded as missed."""
    found = plan_misfires(
        cron("@daily"), MIDNIGHT, MIDNIGHT + 5 * HOUR, CatchUp.ALL, window_us=HOUR
    )
    assert found == MisfirePlan(
        run_at=None,
        next_at=MIDNIGHT + DAY,
        missed_from=MIDNIGHT,
        missed_to=MIDNIGHT,
        missed_count=1,
    )


def test_a_day_and_years_of_minutes() -> None:
    """A day is counted exactly; the count of years is capped."""
    rule = cron("* * * * *", "America/New_York")
    day = plan_misfires(rule, MIDNIGHT, MIDNIGHT + DAY)
    assert (day.missed_count, day.run_at) == (1440, MIDNIGHT + DAY)
    assert plan_misfires(rule, MIDNIGHT, MIDNIGHT + 3650 * DAY).missed_count == COUNT_CAP


def test_a_time_off_the_cadence_counts_as_an_occurrence() -> None:
    """After an edit, the stored next run time may not match the new cadence; it is still due."""
    odd = MIDNIGHT + 7 * MINUTE
    assert plan_misfires(HOURLY, odd, odd + MINUTE).run_at == odd
    later = plan_misfires(HOURLY, odd, MIDNIGHT + 2 * HOUR)
    assert (later.missed_from, later.missed_to) == (odd, MIDNIGHT + HOUR)
    assert (later.run_at, later.missed_count) == (MIDNIGHT + 2 * HOUR, 2)


def test_intervals_continue_from_the_run_time_or_the_anchor() -> None:
    """Without an anchor, intervals are counted from the stored next run time."""
    odd = MIDNIGHT + 7 * MINUTE
    rule = every(HOUR)
    assert plan_misfires(rule, odd, odd + 90 * MINUTE).run_at == odd + HOUR
    assert plan_misfires(rule, odd, odd + 90 * MINUTE, anchor=MIDNIGHT).run_at == MIDNIGHT + HOUR
