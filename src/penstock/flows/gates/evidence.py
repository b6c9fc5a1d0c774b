"""Evidence: the observation of a dependency, and its assessment as completeness and quality.

`assess` is the only code that turns an `Observation` into numbers, so that a recorded
observation can be assessed again. Nothing here reads data or a clock: the age of data is measured
at `judged_at`, the end of the upstream phase, so that it does not grow while a gate waits. Probes
create observations, the orchestrator and `gate check` assess them, and `flows.gates.gate` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from enum import StrEnum
from typing import Any, Final

from penstock.core.clock import HOUR, Micros
from penstock.core.formatting import format_percent
from penstock.pipelines.dependency import Dependency, DependencyKind, ExpectKind

COMPLETE_QUALITY: Final = 0.95
DEGRADED_COMPLETENESS: Final = 80.0
DEGRADED_QUALITY: Final = 0.90
FRESHNESS_STEPS: Final = ((1, 1.0), (6, 0.8), (12, 0.5))
"""Pairs of (multiple of max_age, freshness up to that age); `FRESHNESS_MIN` beyond the last."""
FRESHNESS_MIN: Final = 0.3
DATE_RANGES_SHOWN: Final = 5


class DependencyStatus(StrEnum):
    """The displayed status of a dependency; decisions use completeness and quality instead."""

    COMPLETE = "COMPLETE"
    DEGRADED = "DEGRADED"
    MISSING = "MISSING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The observation of a probe; `error` is set only if the probe failed.

    not_null_share: the share of non-null cells in the required columns, None if there are no such
    cells. days_present and days_missing are set for historical dependencies; days_missing holds
    ISO dates in order. units: rows of the table that a per-unit expectation counts. newest_us: the
    time of the newest row, by the age column. looked_at: when the probe ran; took_us: how long it
    took. scanned_bytes: bytes that the warehouse read, if it reports them.
    """

    key: str
    looked_at: Micros
    rows: int | None = None
    expected: int | None = None
    units: int | None = None
    newest_us: Micros | None = None
    not_null_share: float | None = None
    checks_total: int = 0
    checks_failed: tuple[str, ...] = ()
    days_present: int | None = None
    days_missing: tuple[str, ...] = ()
    error: str | None = None
    scanned_bytes: int | None = None
    took_us: Micros = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """The assessment of a dependency that the gate uses; `issues` are texts for users."""

    key: str
    table: str
    kind: DependencyKind
    completeness: float
    quality: float
    status: DependencyStatus
    absent: bool = False
    issues: tuple[str, ...] = ()
    critical: bool = True
    weight: float = 1.0
    fail_if_missing: bool = False
    rows: int | None = None
    expected: int | None = None
    freshness: float | None = None
    validity: float | None = None
    consistency: float | None = None
    age_us: Micros | None = None
    lookback_days: int | None = None
    min_days: int | None = None
    degraded_days: int | None = None
    days_present: int | None = None
    days_missing: tuple[str, ...] = ()
    error: str | None = None
    floor: float | None = None
    """Completeness in percent below which it counts as absent; None for the mode's default."""
    probed_us: Micros | None = None
    """How long the probe took."""
    scanned_bytes: int | None = None
    needed_by: tuple[str, ...] = ()
    """The processors that need the dependency, if the gate covers several processors."""

    @property
    def is_below_min_days(self) -> bool:
        """Whether a historical dependency has fewer than `min_days` days."""
        return self.kind is DependencyKind.HISTORICAL and (self.days_present or 0) < (
            self.min_days or 0
        )

    @property
    def is_below_degraded_days(self) -> bool:
        """Whether a historical dependency has fewer than `degraded_days` days."""
        return self.is_below_min_days and (self.days_present or 0) < (self.degraded_days or 0)


def assess(
    dependency: Dependency,
    observation: Observation | None,
    *,
    judged_at: Micros,
    age_counts: bool = True,
    needed_by: Sequence[str] = (),
) -> Assessment:
    """Assess one dependency; never raises. Without an observation it counts as missing.

    judged_at: when the upstream phase completed, or now if there is none. age_counts: False in
    backfill mode, where old data is expected. needed_by: the processors that need the dependency.
    """
    error = "no probe result" if observation is None else observation.error
    if observation is None or error is not None or _is_blank(dependency, observation):
        assessment = _unprobed(dependency, error or "the probe returned no data")
    elif dependency.kind is DependencyKind.HISTORICAL:
        assessment = _historical(dependency, observation)
    else:
        assessment = _rows(dependency, observation, judged_at, age_counts)
    if observation is not None:
        took, scanned = observation.took_us or None, observation.scanned_bytes
        assessment = replace(assessment, probed_us=took, scanned_bytes=scanned)
    return replace(assessment, needed_by=tuple(needed_by)) if needed_by else assessment


def _is_blank(dependency: Dependency, observation: Observation) -> bool:
    if dependency.kind is DependencyKind.HISTORICAL:
        return observation.days_present is None
    return observation.rows is None


def _shared(dependency: Dependency) -> dict[str, Any]:
    """Return the fields that an assessment copies from the declaration."""
    return {
        "key": dependency.key,
        "table": dependency.table,
        "kind": dependency.kind,
        "critical": dependency.critical,
        "weight": dependency.weight,
        "fail_if_missing": dependency.fail_if_missing,
        "floor": dependency.floor,
        "lookback_days": dependency.lookback_days,
        "min_days": dependency.min_days,
        "degraded_days": dependency.degraded_days,
    }


def _unprobed(dependency: Dependency, error: str) -> Assessment:
    error = error.rstrip().removesuffix(".")  # it becomes a part of sentences
    return Assessment(
        **_shared(dependency),
        completeness=0.0,
        quality=0.0,
        status=DependencyStatus.MISSING,
        absent=True,
        issues=(f"probe failed: {error}",),
        days_present=0 if dependency.kind is DependencyKind.HISTORICAL else None,
        error=error,
    )


def _historical(dependency: Dependency, observation: Observation) -> Assessment:
    present = max(0, observation.days_present or 0)
    needed, degraded_from = dependency.min_days or 1, dependency.degraded_days or 1
    if present >= needed:
        status = DependencyStatus.COMPLETE
    else:
        status = DependencyStatus.DEGRADED if present >= degraded_from else DependencyStatus.MISSING
    issues = []
    if present < (dependency.lookback_days or needed):
        issues.append(
            f"{present}/{dependency.lookback_days} days" + _days(observation.days_missing)
        )
    return Assessment(
        **_shared(dependency),
        completeness=min(100.0, present * 100 / needed),
        quality=1.0 if present else 0.0,
        status=status,
        absent=present == 0,
        issues=tuple(issues),
        days_present=present,
        days_missing=observation.days_missing,
    )


def _rows(
    dependency: Dependency, observation: Observation, judged_at: Micros, age_counts: bool
) -> Assessment:
    rows = max(0, observation.rows or 0)
    expected = max(
        0, dependency.expect.number if observation.expected is None else observation.expected
    )
    if _is_uncountable(dependency, observation):
        return _without_reference(dependency, rows)
    absent = rows == 0 and expected > 0
    completeness = min(100.0, rows * 100 / expected) if expected else 100.0
    age = None if observation.newest_us is None else max(0, judged_at - observation.newest_us)
    freshness = _freshness(dependency, rows, age) if age_counts else None
    validity = None
    if dependency.not_null and observation.not_null_share is not None:
        validity = min(1.0, max(0.0, observation.not_null_share))
    consistency = None
    if observation.checks_total > 0:
        failed = min(len(observation.checks_failed), observation.checks_total)
        consistency = (observation.checks_total - failed) / observation.checks_total
    quality = 0.0 if absent else _quality(dependency, freshness, validity, consistency)
    issues = _issues(observation, rows, expected, validity)
    if freshness is not None and freshness < 1 and not absent:
        issues.insert(1 if rows < expected else 0, _age_words(age))
    return Assessment(
        **_shared(dependency),
        completeness=completeness,
        quality=quality,
        status=_status(completeness, quality),
        absent=absent,
        issues=tuple(issues),
        rows=rows,
        expected=expected,
        freshness=freshness,
        validity=validity,
        consistency=consistency,
        age_us=age,
    )


def _is_uncountable(dependency: Dependency, observation: Observation) -> bool:
    """Whether the table that determines the expected rows is empty."""
    expect = dependency.expect
    return expect.kind is ExpectKind.PER and observation.units == 0 and not expect.zero_is_off_day


def _without_reference(dependency: Dependency, rows: int) -> Assessment:
    """Return the assessment for an empty reference table: missing data, never a complete day."""
    return Assessment(
        **_shared(dependency),
        completeness=0.0,
        quality=0.0,
        status=DependencyStatus.MISSING,
        absent=True,
        issues=(f"0 expected because {dependency.expect.table} has no rows",),
        rows=rows,
        expected=0,
    )


def _freshness(dependency: Dependency, rows: int, age: Micros | None) -> float | None:
    if dependency.max_age_us is None or rows == 0:
        return None
    if age is None:  # rows without a time cannot be shown to be fresh
        return FRESHNESS_MIN
    for times, value in FRESHNESS_STEPS:
        if age <= times * dependency.max_age_us:
            return value
    return FRESHNESS_MIN


def _quality(
    dependency: Dependency,
    freshness: float | None,
    validity: float | None,
    consistency: float | None,
) -> float:
    weights = dependency.quality
    parts = [
        (weights.freshness, freshness),
        (weights.validity, validity),
        (weights.consistency, consistency),
    ]
    applied = [(weight, value) for weight, value in parts if value is not None and weight > 0]
    if not applied:
        return 1.0
    total = sum(weight for weight, _ in applied)
    # Round to nine digits, so that a sum of 0.9499999999999999 still meets a threshold of 0.95.
    return min(1.0, round(sum(weight * value for weight, value in applied) / total, 9))


def _status(completeness: float, quality: float) -> DependencyStatus:
    if completeness >= 100 and quality >= COMPLETE_QUALITY:
        return DependencyStatus.COMPLETE
    if completeness >= DEGRADED_COMPLETENESS and quality >= DEGRADED_QUALITY:
        return DependencyStatus.DEGRADED
    return DependencyStatus.MISSING


def _issues(
    observation: Observation, rows: int, expected: int, validity: float | None
) -> list[str]:
    issues = []
    if rows < expected:
        issues.append(f"{rows}/{expected} rows ({format_percent(rows * 100 / expected)})")
    if validity is not None and validity < 1 and rows:
        issues.append(f"{format_percent((1 - validity) * 100)} of required cells empty")
    issues += [f"check failed: {name}" for name in observation.checks_failed]
    return issues


def _age_words(age: Micros | None) -> str:
    return "age of data unknown" if age is None else f"data {age / HOUR:.1f} hours old"


def _days(missing: Sequence[str]) -> str:
    if not missing:
        return ""
    named = date_ranges(missing)
    rest = len(named) - DATE_RANGES_SHOWN
    return f", missing {', '.join(named[:DATE_RANGES_SHOWN])}" + (
        f" and {rest} more" if rest > 0 else ""
    )


def date_ranges(days: Sequence[str]) -> list[str]:
    """Return days as text, with consecutive days as a range: "2025-11-05 to 2025-11-11"."""
    found: list[list[str]] = []
    for day in sorted(dict.fromkeys(days)):
        if found and _is_next(found[-1][-1], day):
            found[-1].append(day)
        else:
            found.append([day])
    return [f"{run[0]} to {run[-1]}" if len(run) > 1 else run[0] for run in found]


def _is_next(day: str, other: str) -> bool:
    try:
        return date.fromisoformat(other) - date.fromisoformat(day) == timedelta(days=1)
    except ValueError:  # partitions that are not dates are never consecutive
        return False
