"""How long work will probably take, from the recorded durations of its phases. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock.core.clock import Micros
from penstock.pipelines.plan import Plan

SAMPLES: Final = 50
"""Newest recorded durations that an estimate of a phase rests on."""


class Estimate(NamedTuple):
    """A duration: the median, and what nine of ten stay below."""

    p50_us: Micros
    p90_us: Micros


def quantile(values: Sequence[Micros], share: float) -> Micros:
    """Return the smallest value that at least this share of the values does not exceed."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(len(ranked) * share - 1e-9) - 1)]


def flow_estimate(
    plan: Plan, phases: Sequence[str], durations: Mapping[str, Sequence[Micros]]
) -> Estimate | None:
    """Return how long a flow takes that runs these phases: the longest path through them.

    None if no duration of any of them is recorded; phases without one then count as nothing.
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


def repeated(estimate: Estimate | None, times: int, parallelism: int) -> Estimate | None:
    """Return how long many executions take of which a bounded number are in progress.

    Those that follow each other are taken as independent: deviations of a sum grow with its root.
    """
    if estimate is None or not times:
        return estimate if times else None
    waves = -(-times // parallelism)
    spread = estimate.p90_us - estimate.p50_us
    total = estimate.p50_us * waves
    return Estimate(total, total + int(spread * math.sqrt(waves)))
