"""Service levels and metrics."""

from __future__ import annotations

import pytest

from penstock.core import sla
from penstock.core.clock import MINUTE, SECOND


@pytest.mark.parametrize(
    ("started", "over"),
    [(0, 0), (30 * MINUTE, 0), (30 * MINUTE + 1, 1), (45 * MINUTE, 15 * MINUTE), (-MINUTE, 0)],
)
def test_breach(started: int, over: int) -> None:
    """A start at the threshold meets the SLA; a later breach is counted from the threshold."""
    assert sla.breach(0, started, 30 * MINUTE) == over
    assert (started > sla.breaches_at(0, 30 * MINUTE)) is (over > 0)


def test_ratios_without_data_are_none() -> None:
    """There is no division by zero, and no data does not count as full compliance."""
    assert sla.compliance(0, 0) is None
    assert sla.failure_rate(0, 0) is None
    assert sla.compliance(4, 3) == 0.75
    assert sla.failure_rate(1, 4) == 0.25


def test_estimated_cost() -> None:
    """Seconds and gigabytes are charged at their own rates."""
    assert sla.estimated_cost(10 * SECOND, 2_000_000_000, 0.5, 0.25) == pytest.approx(5.5)
