"""Profiles of processors: the plausible range of values, from earlier executions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.core.clock import SECOND, Micros, format_duration
from penstock.runs.durations import quantile
from penstock.usage.rows import AnomalyRow

SAMPLES_MIN: Final = 10
SAMPLES_KEPT: Final = 60
MARGIN: Final = 2.0
"""Maximum distance of a value beyond the outer quantile, in multiples of the quantile's distance
from the median.
"""
LEAST_SHARE: Final = 0.25
"""Minimum distance as a share of the median, because even nearly identical executions vary a
little.
"""
LEAST_TIME: Final = 5 * SECOND


class Sample(NamedTuple):
    """One execution: its end, duration, time from scheduled time to end, and records."""

    at: Micros
    duration_us: Micros
    arrival_us: Micros
    records: int | None


class Plausible(NamedTuple):
    """The plausible range of values, from earlier executions."""

    low: float | None
    high: float
    median: float


class Outlier(NamedTuple):
    """A value outside its range."""

    measure: str
    value: float
    range: Plausible
    samples: int


def plausible(values: Sequence[int], least: float, *, has_low: bool) -> Plausible:
    """Return the plausible range: the outer quantiles extended by a margin."""
    ordered = sorted(values)
    low, middle, high = (quantile(ordered, share) for share in (0.05, 0.5, 0.95))
    least = max(least, LEAST_SHARE * middle)
    bottom = low - MARGIN * max(middle - low, least)
    return Plausible(
        low=max(0.0, bottom) if has_low else None,
        high=high + MARGIN * max(high - middle, least),
        median=float(middle),
    )


def outliers(before: Sequence[Sample], new: Sample) -> list[Outlier]:
    """Return the outliers of an execution, compared with earlier ones."""
    if len(before) < SAMPLES_MIN:
        return []
    found = []
    counted = [one.records for one in before if one.records is not None]
    checks = [
        ("duration", new.duration_us, [one.duration_us for one in before], LEAST_TIME, False),
        ("arrival", new.arrival_us, [one.arrival_us for one in before], 60 * SECOND, False),
    ]
    if new.records is not None and len(counted) >= SAMPLES_MIN:
        checks.append(("records", new.records, counted, 5, True))
    for measure, value, values, least, has_low in checks:
        seen = plausible(values, least, has_low=has_low)
        is_empty = measure == "records" and value == 0 and min(values) > 0
        if value > seen.high or (seen.low is not None and value < seen.low) or is_empty:
            found.append(Outlier(measure, float(value), seen, len(values)))
    return found


def added(before: Sequence[Sample], new: Sample) -> list[Sample]:
    """Return the newest samples, including a new one."""
    return [*before, new][-SAMPLES_KEPT:]


def anomaly_text(row: AnomalyRow) -> str:
    """Return an anomaly as a sentence, with the history it is based on."""
    what = {"duration": "took", "records": "processed", "arrival": "ended"}[row.measure]
    after = " after its scheduled time" if row.measure == "arrival" else ""
    low = "up to " if row.low is None else f"{_shown(row.measure, row.low)} to "
    return (
        f"{row.pipeline}/{row.processor} {what} {_shown(row.measure, row.value)}{after}; "
        f"{low}{_shown(row.measure, row.high)} is plausible after {row.samples} earlier executions "
        f"(median {_shown(row.measure, row.median)})"
    )


def _shown(measure: str, value: float) -> str:
    if measure == "records":
        return f"{value:,.0f} records"
    return format_duration(round(value) // SECOND * SECOND)
