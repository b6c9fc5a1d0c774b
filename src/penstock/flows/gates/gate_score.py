"""Overall completeness and quality of a gate: weighted means over its dependencies.

Same-day dependencies count by their weight; the upstream processors count as one more dependency of
weight 1. A dependency satisfied by an override is excluded. Historical and optional dependencies
are evaluated elsewhere. Pure arithmetic without a verdict: `flows.gates.gate` decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final

from penstock.flows.gates.evidence import Assessment, DependencyStatus
from penstock.flows.gates.override import Override, covering_overrides
from penstock.flows.gates.verdict import GateInput
from penstock.pipelines.dependency import DependencyKind

FLOOR_DEFAULT: Final = 50.0
"""Floor of critical dependencies in percent in modes that never start degraded."""
EPSILON: Final = 1e-9
"""Tolerance for floating-point errors in weighted sums; far smaller than any threshold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateScore:
    """Completeness and quality without overridden dependencies; these, and the overrides used."""

    completeness: float
    quality: float
    overrides: tuple[Override, ...]
    overridden: tuple[Assessment, ...]


def gate_score(given: GateInput, *, spare: bool) -> GateScore:
    """Return the weighted evidence. spare: also exclude incomplete data that an override covers."""
    weighed: list[Assessment] = []
    overridden: list[Assessment] = []
    approvals: list[Override] = []
    for a in given.assessments:
        if a.kind is DependencyKind.OPTIONAL:
            continue
        lacks = is_critical_absent(a) or a.is_below_degraded_days
        if spare and a.kind is DependencyKind.SAME_DAY:
            lacks = lacks or a.completeness < 100 or a.quality < given.mode.min_quality
        found = covering_overrides(a, given.overrides, given.now) if lacks else ()
        approvals += found
        if found:
            overridden.append(a)
        if a.kind is DependencyKind.SAME_DAY and not found:
            weighed.append(a)
    return GateScore(
        completeness=_completeness(weighed, given),
        quality=_quality(weighed, given.reported),
        overrides=tuple(dict.fromkeys(approvals)),
        overridden=tuple(overridden),
    )


def _completeness(weighed: Sequence[Assessment], given: GateInput) -> float:
    parts = [(max(0.0, a.weight), _within(a.completeness, 100.0)) for a in weighed]
    if given.upstream is not None:
        done, wanted = given.upstream.completed, given.upstream.expected
        parts.append((1.0, _within(done * 100 / wanted, 100.0) if wanted > 0 else 100.0))
    return _mean(parts, 100.0)


def _quality(weighed: Sequence[Assessment], reported: Sequence[float]) -> float:
    if not weighed:
        return _mean([(1.0, _within(score, 1.0)) for score in reported], 1.0)
    return _mean([(max(0.0, a.weight), _within(a.quality, 1.0)) for a in weighed], 1.0)


def _mean(parts: Sequence[tuple[float, float]], best: float) -> float:
    """Return the weighted mean: exactly `best` if every part is, or if the weights sum to 0."""
    total = fsum(weight for weight, _ in parts)
    if total <= 0:
        return best
    lost = fsum(weight * (best - value) for weight, value in parts) / total
    return max(0.0, round(best - lost, 9))


def _within(value: float, most: float) -> float:
    return min(most, max(0.0, value))


def degraded_by(given: GateInput, view: GateScore) -> str | None:
    """Return the kind of dependency that makes a start degraded although both thresholds are met.

    None if there is none.
    """
    if any(a.is_below_min_days for a in given.assessments):
        return "historical"
    if view.overrides:
        return "same_day"
    if any(is_optional_missing(a) for a in given.assessments):
        return "optional"
    return None


def is_critical_absent(a: Assessment) -> bool:
    """Return whether a critical same-day dependency is absent, which rule 2 handles."""
    return a.kind is DependencyKind.SAME_DAY and a.critical and a.absent


def is_below_floor(given: GateInput, a: Assessment) -> bool:
    """Return whether a critical same-day dependency has too few rows to be averaged with others."""
    if given.rules < 2 or a.kind is not DependencyKind.SAME_DAY or not a.critical or a.absent:
        return False
    lowest = given.mode.degraded_at
    floor = a.floor if a.floor is not None else FLOOR_DEFAULT if lowest is None else lowest
    return a.completeness + EPSILON < floor


def is_below_proceed_at(given: GateInput, a: Assessment) -> bool:
    """Return whether a critical same-day dependency alone prevents PROCEED."""
    return (
        given.rules >= 2
        and a.kind is DependencyKind.SAME_DAY
        and a.critical
        and a.completeness + EPSILON < given.mode.proceed_at
    )


def weakest(given: GateInput, overridden: Sequence[Assessment] = ()) -> Assessment | None:
    """Return the least complete same-day dependency, ties by quality; None if all are complete.

    overridden: dependencies that do not count.
    """
    lacking = [
        a
        for a in given.assessments
        if a not in overridden
        and a.kind is DependencyKind.SAME_DAY
        and (a.weight > 0 or a.critical)
        and (a.completeness < 100 or a.quality < given.mode.min_quality)
    ]
    return min(lacking, key=lambda a: (a.completeness, a.quality), default=None)


def is_optional_missing(a: Assessment) -> bool:
    """Return whether an optional dependency has no data."""
    return a.kind is DependencyKind.OPTIONAL and (a.absent or a.status is DependencyStatus.MISSING)


def is_lacking(a: Assessment) -> bool:
    """Return whether a dependency is reported as missing or incomplete."""
    if a.kind is DependencyKind.SAME_DAY:
        return a.absent or a.completeness < 100
    return a.is_below_min_days or is_optional_missing(a)
