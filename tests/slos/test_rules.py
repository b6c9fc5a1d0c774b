"""Error budgets, burn rates, results and overrides."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.clock import HOUR, MINUTE
from penstock.core.errors import SettingsError
from penstock.slos.declared import override_of, parse_slos
from penstock.slos.objectives import budget_left, burn_rate, compliance
from penstock.slos.results import result_of
from penstock.slos.rows import EndedRow, Sums


@pytest.mark.parametrize(
    ("sums", "objective", "left", "rate"),
    [
        (Sums(0, 0), 95, None, None),
        (Sums(100, 0), 95, 1.0, 0.0),
        (Sums(95, 5), 95, 0.0, 1.0),
        (Sums(90, 10), 95, -1.0, 2.0),
        (Sums(99, 1), 99, 0.0, 1.0),
        (Sums(5, 0), 100, 1.0, 0.0),
        (Sums(999, 1), 100, 0.0, 1.0),
    ],
)
def test_budget(sums: Sums, objective: float, left: float | None, rate: float | None) -> None:
    """The budget is the share of results that may miss; the rate compares misses with it."""
    assert budget_left(sums, objective) == pytest.approx(left)
    assert burn_rate(sums, objective) == pytest.approx(rate)


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.floats(0, 99.9), st.integers(1, 1_000))
def test_more_misses_never_leave_more(good: int, bad: int, objective: float, more: int) -> None:
    """A further miss never raises the budget or lowers the burn rate."""
    before, after = Sums(good, bad), Sums(good, bad + more)
    if before.total:
        assert budget_left(after, objective) <= budget_left(before, objective) + 1e-9  # type: ignore[operator]
        assert burn_rate(after, objective) >= burn_rate(before, objective) - 1e-9  # type: ignore[operator]
    assert 0 <= (compliance(after) or 0) <= 100


def row(**fields: Any) -> EndedRow:
    """Return a flow of 10 minutes."""
    values: dict[str, Any] = {
        "customer_key": 1, "pipeline_key": 1, "mode": "m", "phase": "", "partition": "p",
        "flow_id": 1, "correlation_id": "c", "digest": "d", "began_at": 0,
        "ended_at": 10 * MINUTE, "state": "COMPLETE", "is_degraded": False,
    }  # fmt: skip
    return EndedRow(**{**values, **fields})


@pytest.mark.parametrize(
    ("fields", "target", "outcome", "at"),
    [
        ({}, 10 * MINUTE, "met", 10 * MINUTE),
        ({}, 9 * MINUTE, "missed", 10 * MINUTE),
        ({}, None, None, 10 * MINUTE),
        ({"state": "FAILED"}, HOUR, "missed", 10 * MINUTE),
        ({"state": "CANCELLED"}, 1, None, 10 * MINUTE),
        ({"state": "DEGRADED"}, HOUR, "met", 10 * MINUTE),
        ({"ended_at": None, "state": "OPEN"}, 5 * MINUTE, "missed", 5 * MINUTE),
        ({"ended_at": None, "state": "OPEN"}, HOUR, "met", HOUR),
    ],
)
def test_result(fields: dict[str, Any], target: float | None, outcome: str | None, at: int) -> None:
    """Failed ones miss whenever they end, cancelled ones do not count, open ones are due."""
    found = result_of(row(**fields), target, 20 * MINUTE)
    assert (found.outcome, found.at) == (outcome, at)


def test_overrides() -> None:
    """The most specific entry wins; targets and objectives are independent."""
    settings = parse_slos(
        {
            "window": "7d",
            "targets": [
                {"mode": "same_day", "target": "90m"},
                {"pipeline": "nba", "target": "1h", "objective": 99},
                {"pipeline": "nba", "mode": "same_day", "customer": "acme", "target": 1800},
                {"pipeline": "nba", "phase": "raw", "target": "5m"},
                {"measure": "completeness", "target": 90},
            ],
        }
    )

    def of(customer: str | None = None, **more: str) -> tuple[float | None, float | None]:
        given = {"measure": "latency", "pipeline": "nba", "mode": "same_day", "phase": "", **more}
        found = override_of(settings.targets, customer=customer, **given)
        return found.target, found.objective

    assert of() == (HOUR, 99)
    assert of("acme") == (HOUR / 2, 99)
    assert of(pipeline="other") == (90 * MINUTE, None)
    assert of(pipeline="other", mode="overnight") == (None, None)
    assert of(phase="raw") == (5 * MINUTE, None)
    assert of(measure="completeness") == (90, None)


@pytest.mark.parametrize(
    ("table", "field"),
    [
        ({"window": "1h"}, "slos.window"),
        ({"targets": [{}]}, r"slos.targets\[0\]"),
        ({"targets": [{"measure": "sla", "mode": "m", "objective": 9}]}, r"slos.targets\[0\]"),
        ({"targets": [{"measure": "quality", "target": "1h"}]}, r"slos.targets\[0\].target"),
        ({"targets": [{"objective": 101}]}, "objective"),
        ({"wrong": 1}, "wrong"),
    ],
)
def test_invalid_settings(table: dict[str, Any], field: str) -> None:
    """Errors name the field."""
    with pytest.raises(SettingsError, match=field):
        parse_slos(table)
