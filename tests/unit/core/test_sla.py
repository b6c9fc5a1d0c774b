"""Service levels and derived figures."""

from __future__ import annotations

import pytest

from penstock.core import sla
from penstock.core.clock import MINUTE, SECOND


@pytest.mark.parametrize(
    ("started", "over"),
    [(0, 0), (30 * MINUTE, 0), (30 * MINUTE + 1, 1), (45 * MINUTE, 15 * MINUTE), (-MINUTE, 0)],
)
def test_breach(started: int, over: int) -> None:
    """Exactly at the threshold is met; later counts from the threshold."""
    assert sla.breach(0, started, 30 * MINUTE) == over
    assert (started > sla.breaches_at(0, 30 * MINUTE)) is (over > 0)


def test_figures_without_basis_are_none() -> None:
    """Nothing divides by zero, and an empty week is not a perfect one."""
    assert sla.compliance(0, 0) is None
    assert sla.failure_rate(0, 0) is None
    assert sla.compliance(4, 3) == 0.75
    assert sla.failure_rate(1, 4) == 0.25


def test_estimated_cost() -> None:
    """Seconds and gigabytes are charged at their own rates."""
    assert sla.estimated_cost(10 * SECOND, 2_000_000_000, 0.5, 0.25) == pytest.approx(5.5)
