"""How long recovery will take: by weekday where there is enough history."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.clock import MINUTE
from penstock.recovery.estimate import (
    WEEKDAY_MIN,
    Estimate,
    PhaseDuration,
    of_weekday,
    repeated,
    weekday_of,
)

SUNDAY = 6
QUIET = [PhaseDuration(day, MINUTE) for day in range(6) for _ in range(WEEKDAY_MIN)]
LONG = [PhaseDuration(SUNDAY, 30 * MINUTE)] * WEEKDAY_MIN


def test_weekdays_of_partitions() -> None:
    """Days and hours have one; weeks, months and names have none."""
    assert weekday_of("2025-11-16") == weekday_of("2025-11-16T05") == SUNDAY
    assert [weekday_of(name) for name in ("2025-W46", "2025-11", "eu-west", "")] == [None] * 4


def test_a_weekday_with_history_has_its_own_durations() -> None:
    """A long Sunday does not lengthen Monday; without enough Sundays all days count."""
    assert set(of_weekday(QUIET + LONG, SUNDAY)) == {30 * MINUTE}
    assert set(of_weekday(QUIET + LONG, 0)) == {MINUTE}
    assert set(of_weekday(QUIET + LONG[1:], SUNDAY)) == {MINUTE, 30 * MINUTE}
    assert len(of_weekday(QUIET + LONG, None)) == len(QUIET + LONG)


def test_weekdays_add_up() -> None:
    """A week one at a time takes its six short days and its long one."""
    short, long = Estimate(MINUTE, MINUTE), Estimate(30 * MINUTE, 30 * MINUTE)
    assert repeated([(short, 6), (long, 1)], 1) == Estimate(36 * MINUTE, 36 * MINUTE)
    assert repeated([(short, 6), (None, 2)], 1) == Estimate(8 * MINUTE, 8 * MINUTE)
    assert repeated([(None, 3)], 1) is None
    assert repeated([], 1) is None


@given(st.integers(1, 500), st.integers(1, 50), st.integers(1, 10**9), st.integers(0, 10**9))
def test_more_at_a_time_never_takes_longer(times: int, most: int, p50: int, spread: int) -> None:
    """Estimates fall with parallelism, and nine of ten stay above the median."""
    one = Estimate(p50, p50 + spread)
    found, wider = repeated([(one, times)], most), repeated([(one, times)], most + 1)
    assert found is not None
    assert wider is not None
    assert wider.p50_us <= found.p50_us <= found.p90_us
