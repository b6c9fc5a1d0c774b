"""Profiles, budgets and scaling as pure rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.clock import MINUTE, SECOND, iso, parse_iso
from penstock.usage.budget import is_stop_due, period_of, state_of
from penstock.usage.profile import SAMPLES_KEPT, Sample, added, outliers
from penstock.usage.scaling import Load, desired_concurrency, desired_workers


def samples(n: int = 20, *, seconds: int = 60, records: int | None = 1_000) -> list[Sample]:
    """Return executions that differ a little."""
    return [
        Sample(at, (seconds + at % 5) * SECOND, 120 * SECOND, records and records + at % 10)
        for at in range(n)
    ]


def new(seconds: int = 60, arrival: int = 120, records: int | None = 1_000) -> Sample:
    """Return a further execution."""
    return Sample(0, seconds * SECOND, arrival * SECOND, records)


@pytest.mark.parametrize(
    ("execution", "measures"),
    [
        (new(), []),
        (new(seconds=75), []),
        (new(seconds=600), ["duration"]),
        (new(arrival=3_600), ["arrival"]),
        (new(records=0), ["records"]),
        (new(records=100_000), ["records"]),
        (new(records=None), []),
        (new(seconds=600, records=0), ["duration", "records"]),
    ],
)
def test_outliers(execution: Sample, measures: list[str]) -> None:
    """Values far beyond the outer quantiles are implausible, and so is an empty result."""
    found = outliers(samples(), execution)
    assert [one.measure for one in found] == measures
    for one in found:
        assert one.samples == 20
        assert one.value > one.range.high or one.value < one.range.median


def test_too_few() -> None:
    """Fewer than ten executions judge nothing; without records nothing is expected of them."""
    assert outliers(samples(9), new(seconds=9_999)) == []
    assert outliers(samples(records=None), new(records=0)) == []


@given(st.lists(st.integers(1, 10**9), min_size=10, max_size=80), st.data())
def test_seen_values_are_plausible(values: list[int], data: st.DataObject) -> None:
    """A value between the quantiles that were recorded never is an anomaly."""
    before = [Sample(n, us, us, us) for n, us in enumerate(values)]
    middle = sorted(values)[len(values) // 2]
    assert outliers(before, Sample(0, middle, middle, middle)) == []
    assert len(added(before, before[0])) <= SAMPLES_KEPT
    assert data is not None


@pytest.mark.parametrize(
    ("period", "now", "start", "end"),
    [
        ("day", "2025-11-16T23:59:59Z", "2025-11-16T00:00:00Z", "2025-11-17T00:00:00Z"),
        ("month", "2025-11-30T12:00:00Z", "2025-11-01T00:00:00Z", "2025-12-01T00:00:00Z"),
        ("month", "2025-12-31T12:00:00Z", "2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("month", "2024-02-29T00:00:00Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"),
    ],
)
def test_periods(period: str, now: str, start: str, end: str) -> None:
    """Days and months are those of UTC."""
    assert [iso(at) for at in period_of(period, parse_iso(now))] == [start, end]


def test_states() -> None:
    """A budget warns, is exceeded, stops, or was lifted."""
    given: dict[str, object] = {"is_stopped": False, "lifted_until": None, "now": 10}
    assert state_of(79, 100, 80, **given) == "ok"  # type: ignore[arg-type]
    assert state_of(80, 100, 80, **given) == "warning"  # type: ignore[arg-type]
    assert state_of(100, 100, 80, **given) == "exceeded"  # type: ignore[arg-type]
    assert state_of(100, 100, 80, is_stopped=True, lifted_until=None, now=10) == "stopped"
    assert state_of(100, 100, 80, is_stopped=False, lifted_until=11, now=10) == "lifted"
    assert is_stop_due(100, 100, None, 10)
    assert not is_stop_due(100, 100, 11, 10)
    assert not is_stop_due(99, 100, None, 10)


@pytest.mark.parametrize(
    ("load", "concurrency", "workers"),
    [
        (Load(0, 0, 0, 0, 0, 0), 0, 0),
        (Load(0, 0, 3, 30, 100, 100 * MINUTE), 0, 0),
        (Load(1, 0, 0, 0, 0, 0), 1, 1),
        (Load(100, 0, 0, 0, 0, 0), 10, 2),
        (Load(300, 10, 2, 20, 15, 15 * MINUTE), 70, 7),
        (Load(3, 0, 0, 0, 1, 100 * MINUTE), 3, 1),
        (Load(0, 5, 1, 5, 0, 0), 5, 1),
    ],
)
def test_scaling(load: Load, concurrency: int, workers: int) -> None:
    """Enough to keep up and to drain the queue in five minutes; never more than it has runs."""
    assert (desired_concurrency(load), desired_workers(load)) == (concurrency, workers)
