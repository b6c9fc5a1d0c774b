"""What a probe saw of one dependency, and what that is worth: completeness, quality, words.

A `Sighting` is what was found; `assess` is the only place that turns it into numbers, so that a
recorded sighting can be judged again. Nothing here looks at data or reads a clock: the age of data
is taken at `judged_at`, the end of the upstream phase, so that waiting does not make it worse.
Probes make sightings, the orchestrator and `gate check` assess them, `core.gate` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from enum import StrEnum
from typing import Any, Final

from penstock.core.clock import HOUR, Micros
from penstock.core.formatting import percent
from penstock.pipelines.dependency import Dependency, Kind

COMPLETE_QUALITY: Final = 0.95
DEGRADED_COMPLETENESS: Final = 80.0
DEGRADED_QUALITY: Final = 0.90
FRESHNESS: Final = ((1, 1.0), (6, 0.8), (12, 0.5))
"""Up to so many times max_age, freshness is this; beyond the last, `FRESHNESS_LEAST`."""
FRESHNESS_LEAST: Final = 0.3
SPANS_NAMED: Final = 5


class Status(StrEnum):
    """How a dependency is shown; decisions look at the numbers instead."""

    COMPLETE = "COMPLETE"
    DEGRADED = "DEGRADED"
    MISSING = "MISSING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What a probe found; `error` alone says that it could not look.

    not_null_share: the share of filled cells in the required columns, None when there are none to
    look at. days_present and days_missing are for historical dependencies, the missing ones as
    ISO dates in order. newest_us: the time of the newest row, by the age column.
    """

    key: str
    looked_at: Micros
    rows: int | None = None
    expected: int | None = None
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
    """A dependency as the gate weighs it; `issues` are sentences for people."""

    key: str
    table: str
    kind: Kind
    completeness: float
    quality: float
    status: Status
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
    needed_by: tuple[str, ...] = ()
    """The processors that need it, where a gate looks at the needs of several."""

    @property
    def is_short(self) -> bool:
        """Whether a historical dependency has fewer days than it needs."""
        return self.kind is Kind.HISTORICAL and (self.days_present or 0) < (self.min_days or 0)

    @property
    def is_too_short(self) -> bool:
        """Whether a historical dependency has too few days even for degraded work."""
        return self.is_short and (self.days_present or 0) < (self.degraded_days or 0)


def assess(
    dependency: Dependency,
    sighting: Sighting | None,
    *,
    judged_at: Micros,
    age_counts: bool = True,
    needed_by: Sequence[str] = (),
) -> Assessment:
    """Judge one dependency; never raises, and no sighting is a missing dependency.

    judged_at: when the upstream phase completed, or now without one. age_counts: False in backfill,
    where old data is what was asked for. needed_by: the processors that need it.
    """
    error = "it was not looked at" if sighting is None else sighting.error
    if sighting is None or error is not None or _is_blank(dependency, sighting):
        made = _unseen(dependency, error or "the probe returned nothing")
    elif dependency.kind is Kind.HISTORICAL:
        made = _historical(dependency, sighting)
    else:
        made = _rows(dependency, sighting, judged_at, age_counts)
    return replace(made, needed_by=tuple(needed_by)) if needed_by else made


def _is_blank(dependency: Dependency, sighting: Sighting) -> bool:
    if dependency.kind is Kind.HISTORICAL:
        return sighting.days_present is None
    return sighting.rows is None


def _shared(dependency: Dependency) -> dict[str, Any]:
    """Return what an assessment takes over from the declaration."""
    return {
        "key": dependency.key,
        "table": dependency.table,
        "kind": dependency.kind,
        "critical": dependency.critical,
        "weight": dependency.weight,
        "fail_if_missing": dependency.fail_if_missing,
        "lookback_days": dependency.lookback_days,
        "min_days": dependency.min_days,
        "degraded_days": dependency.degraded_days,
    }


def _unseen(dependency: Dependency, error: str) -> Assessment:
    return Assessment(
        **_shared(dependency),
        completeness=0.0,
        quality=0.0,
        status=Status.MISSING,
        absent=True,
        issues=(f"probe failed: {error}",),
        days_present=0 if dependency.kind is Kind.HISTORICAL else None,
        error=error,
    )


def _historical(dependency: Dependency, sighting: Sighting) -> Assessment:
    present = max(0, sighting.days_present or 0)
    enough, least = dependency.min_days or 1, dependency.degraded_days or 1
    if present >= enough:
        status = Status.COMPLETE
    else:
        status = Status.DEGRADED if present >= least else Status.MISSING
    issues = []
    if present < (dependency.lookback_days or enough):
        issues.append(f"{present}/{dependency.lookback_days} days" + _days(sighting.days_missing))
    return Assessment(
        **_shared(dependency),
        completeness=min(100.0, present * 100 / enough),
        quality=1.0 if present else 0.0,
        status=status,
        absent=present == 0,
        issues=tuple(issues),
        days_present=present,
        days_missing=sighting.days_missing,
    )


def _rows(
    dependency: Dependency, sighting: Sighting, judged_at: Micros, age_counts: bool
) -> Assessment:
    rows = max(0, sighting.rows or 0)
    expected = max(0, dependency.expect.number if sighting.expected is None else sighting.expected)
    absent = rows == 0 and expected > 0
    completeness = min(100.0, rows * 100 / expected) if expected else 100.0
    age = None if sighting.newest_us is None else max(0, judged_at - sighting.newest_us)
    freshness = _freshness(dependency, rows, age) if age_counts else None
    validity = None
    if dependency.not_null and sighting.not_null_share is not None:
        validity = min(1.0, max(0.0, sighting.not_null_share))
    consistency = None
    if sighting.checks_total > 0:
        failed = min(len(sighting.checks_failed), sighting.checks_total)
        consistency = (sighting.checks_total - failed) / sighting.checks_total
    quality = 0.0 if absent else _quality(dependency, freshness, validity, consistency)
    issues = _issues(sighting, rows, expected, validity)
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


def _freshness(dependency: Dependency, rows: int, age: Micros | None) -> float | None:
    if dependency.max_age_us is None or rows == 0:
        return None
    if age is None:  # rows without a time: nobody can say that they are fresh
        return FRESHNESS_LEAST
    for times, value in FRESHNESS:
        if age <= times * dependency.max_age_us:
            return value
    return FRESHNESS_LEAST


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
    # Nine digits: 0.95 made of parts must not read as 0.9499999999999999 and miss its threshold.
    return min(1.0, round(sum(weight * value for weight, value in applied) / total, 9))


def _status(completeness: float, quality: float) -> Status:
    if completeness >= 100 and quality >= COMPLETE_QUALITY:
        return Status.COMPLETE
    if completeness >= DEGRADED_COMPLETENESS and quality >= DEGRADED_QUALITY:
        return Status.DEGRADED
    return Status.MISSING


def _issues(sighting: Sighting, rows: int, expected: int, validity: float | None) -> list[str]:
    issues = []
    if rows < expected:
        issues.append(f"{rows}/{expected} rows ({percent(rows * 100 / expected)})")
    if validity is not None and validity < 1 and rows:
        issues.append(f"{percent((1 - validity) * 100)} of required cells empty")
    issues += [f"check failed: {name}" for name in sighting.checks_failed]
    return issues


def _age_words(age: Micros | None) -> str:
    return "age of data unknown" if age is None else f"data {age / HOUR:.1f} hours old"


def _days(missing: Sequence[str]) -> str:
    if not missing:
        return ""
    named = spans(missing)
    rest = len(named) - SPANS_NAMED
    return f", missing {', '.join(named[:SPANS_NAMED])}" + (f" and {rest} more" if rest > 0 else "")


def spans(days: Sequence[str]) -> list[str]:
    """Return days as people name them: "2025-11-05 to 2025-11-11" where they follow each other."""
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
    except ValueError:  # partitions that are no dates have no order of days
        return False
