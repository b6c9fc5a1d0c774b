"""Estimates of durations from the recorded durations of phases. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Final, NamedTuple

from penstock.core.clock import Micros
from penstock.pipelines.plan import Plan

SAMPLES: Final = 140
"""Number of newest durations of a phase that are read."""
NEWEST: Final = 50
"""Number of newest durations used for an estimate that is not specific to a weekday."""
WEEKDAY_MIN: Final = 5
"""Minimum number of durations of a weekday for an estimate based on that weekday alone."""


class PhaseDuration(NamedTuple):
    """How long a phase took, and the weekday of the partition, from 0 for Monday, if it has one."""

    weekday: int | None
    duration_us: Micros


class Estimate(NamedTuple):
    """A duration: the median and the 90th percentile."""

    p50_us: Micros
    p90_us: Micros


def quantile(values: Sequence[Micros], share: float) -> Micros:
    """Return the smallest value that at least this share of the values does not exceed."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(len(ranked) * share - 1e-9) - 1)]


def weekday_of(partition: str) -> int | None:
    """Return the weekday of a daily or hourly partition; None for others."""
    if len(partition) < len("2025-11-16") or partition[7] != "-":
        return None
    try:
        return date.fromisoformat(partition[:10]).weekday()
    except ValueError:
        return None


def of_weekday(samples: Sequence[PhaseDuration], weekday: int | None) -> list[Micros]:
    """Return the durations of a weekday if there are enough, else the newest of any weekday."""
    same = [one.duration_us for one in samples if one.weekday == weekday]
    if weekday is not None and len(same) >= WEEKDAY_MIN:
        return same
    return [one.duration_us for one in samples[:NEWEST]]


def weekday_estimate(
    plan: Plan,
    phases: Sequence[str],
    samples: Mapping[str, Sequence[PhaseDuration]],
    weekday: int | None,
) -> Estimate | None:
    """Return the estimated duration of a flow on a weekday; None if no duration is recorded."""
    return flow_estimate(
        plan, phases, {name: of_weekday(found, weekday) for name, found in samples.items()}
    )


def flow_estimate(
    plan: Plan, phases: Sequence[str], durations: Mapping[str, Sequence[Micros]]
) -> Estimate | None:
    """Return the estimated duration of a flow that runs these phases: the longest path through
    them.

    None if none of them has a recorded duration; otherwise phases without one count as 0.
    """
    known = [name for name in phases if durations.get(name)]
    if not known:
        return None
    ends: dict[str, tuple[Micros, Micros]] = {}
    for phase in plan.phases:
        before = [ends[name] for name in phase.after if name in ends]
        start = (max((b[0] for b in before), default=0), max((b[1] for b in before), default=0))
        own = durations.get(phase.name) if phase.name in phases else None
        if own:
            start = (start[0] + quantile(own, 0.5), start[1] + quantile(own, 0.9))
        ends[phase.name] = start
    return Estimate(max(e[0] for e in ends.values()), max(e[1] for e in ends.values()))


def repeated(estimates: Sequence[tuple[Estimate | None, int]], parallelism: int) -> Estimate | None:
    """Return the estimated duration of many executions with a bounded concurrency.

    estimates: how long one takes, and how many there are, by weekday. Consecutive executions are
    assumed to be independent, so the deviation of a sum grows with its square root.
    """
    known = [(one, times) for one, times in estimates if one is not None and times]
    if not known:
        return None
    times = sum(n for _, n in known)
    waves = -(-sum(n for _, n in estimates) // parallelism)
    middle = sum(one.p50_us * n for one, n in known) / times
    spread = sum((one.p90_us - one.p50_us) * n for one, n in known) / times
    total = int(middle * waves)
    return Estimate(total, total + int(spread * math.sqrt(waves)))
