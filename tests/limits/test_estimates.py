"""Estimates for a limit's queue."""

from __future__ import annotations

import pytest

from penstock.core.clock import MINUTE, SECOND
from penstock.limits.estimates import estimated_grants, median_hold, taken_last_minute


def test_median() -> None:
    """The middle one counts; without holds nothing is known."""
    assert median_hold([5, 1, 9]) == 5
    assert median_hold([]) is None


@pytest.mark.parametrize(
    ("weights", "holders", "effective", "expected"),
    [
        ([1, 1, 1], [(90, 1), (95, 1)], 2, [105, 105, 115]),
        ([1], [(0, 1)], 1, [105]),
        ([2, 1], [(95, 1), (99, 1)], 2, [109, 119]),
        ([5], [(95, 1)], 2, [105]),
        ([1], [], 0, [None]),
        ([1], [], None, [None]),
        ([1, 1], [(95, 3)], 2, [105, 105]),
    ],
)
def test_grants(
    weights: list[int],
    holders: list[tuple[int, int]],
    effective: int | None,
    expected: list[int | None],
) -> None:
    """Slots become free in the order in which holds are likely to end."""
    held = sum(weight for _, weight in holders)
    found = estimated_grants(weights, holders, held=held, effective=effective, hold=10, now=100)
    assert found == expected


def test_holders_that_are_not_listed_hold_too() -> None:
    """A full limit has no free slot, however few of its holders are known."""
    found = estimated_grants([1, 1], [(95, 1)], held=9, effective=9, hold=10, now=100)
    assert found == [105, 115]


def test_nothing_is_known_without_holds() -> None:
    """Without a measured hold there is no estimate."""
    assert estimated_grants([1], [(0, 1)], held=1, effective=1, hold=None, now=5) == [None]


@pytest.mark.parametrize(
    ("now", "expected"),
    [(5 * MINUTE, 10 + 4), (5 * MINUTE + 30 * SECOND, 12), (6 * MINUTE, 10),
     (6 * MINUTE + 30 * SECOND, 5), (7 * MINUTE, 0), (4 * MINUTE, 0)],
)  # fmt: skip
def test_last_minute(now: int, expected: int) -> None:
    """The minute before counts by the share of it that is within sixty seconds."""
    assert taken_last_minute(now, minute=5, taken=10, before=4) == expected
