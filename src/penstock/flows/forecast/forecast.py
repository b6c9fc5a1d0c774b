"""Forecast of a live flow: its probable end, and the probability that it misses its service level.
Pure.

A sample is an earlier flow of the same pipeline and mode: for each phase, how long it took from the
moment it could start (gate and queue included) to its end, and how long the rest of the flow took
after that, along the longest path. A forecast replays every sample from where the live flow is now:
only samples whose current phase took longer than the elapsed time, of the same weekday if there are
enough. Whole flows are replayed instead of adding the quantiles of phases, because phases tend to
be slow together, which makes the distribution of the sum much wider.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.core.clock import Micros
from penstock.flows.phases import PhaseState
from penstock.pipelines.plan import Plan
from penstock.runs.durations import BEYOND, SAMPLES_MIN, quantile

WEEKDAY_MIN: Final = 8
"""Minimum number of samples of the same weekday; with fewer, samples of all weekdays are used."""
RISK_AT: Final = 0.5
"""Probability of a miss at which a flow counts as at risk."""
_OVER: Final = (PhaseState.COMPLETE, PhaseState.DEGRADED, PhaseState.SKIPPED)


class PhaseTime(NamedTuple):
    """A phase of a sample: when it could start and when it ended."""

    ready_at: Micros
    ended_at: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSample:
    """An earlier flow: its weekday, from 0 for Monday, and its phases by name."""

    weekday: int
    phases: Mapping[str, PhaseTime]


class Frontier(NamedTuple):
    """A phase of a live flow that has not ended, and the time from which it could start."""

    phase: str
    ready_at: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Probable end of a flow, derived from samples."""

    p50_at: Micros
    p90_at: Micros
    miss: float | None
    """Probability that it ends after its target; None without a target."""
    samples: int
    is_weekday: bool
    """Whether only samples of the same weekday were used."""


class _Step(NamedTuple):
    """A phase of one sample: its own time, and the time until the flow's end with it."""

    span: Micros
    total: Micros


@dataclass(slots=True)
class History:
    """The samples of a pipeline in a mode, prepared for many forecasts."""

    plan: Plan
    samples: Sequence[FlowSample]
    _weekdays: Counter[int] | None = None
    _steps: dict[int | None, list[dict[str, _Step]]] = field(default_factory=dict)
    _longest: dict[tuple[int | None, str], tuple[list[Micros], list[Micros]]] = field(
        default_factory=dict
    )

    def weekday_of(self, weekday: int) -> int | None:
        """Return the weekday if it has enough samples, else None, which selects all samples."""
        if self._weekdays is None:
            self._weekdays = Counter(one.weekday for one in self.samples)
        return weekday if self._weekdays[weekday] >= WEEKDAY_MIN else None

    def steps(self, weekday: int | None) -> list[dict[str, _Step]]:
        """Return the phases of every sample, for one weekday or for all."""
        if weekday not in self._steps:
            self._steps[weekday] = [
                self._steps_of(one)
                for one in self.samples
                if weekday is None or one.weekday == weekday
            ]
        return self._steps[weekday]

    def latest_total(self, weekday: int | None, phase: str, elapsed: Micros) -> Micros | None:
        """Return the longest remaining time among samples whose phase took longer than `elapsed`.

        None if there are too few. This is a cheap check, because most live flows are not at risk.
        """
        key = (weekday, phase)
        if key not in self._longest:
            found = sorted(steps[phase] for steps in self.steps(weekday) if phase in steps)
            totals: list[Micros] = []
            for step in reversed(found):
                totals.append(max(step.total, totals[-1] if totals else 0))
            self._longest[key] = [step.span for step in found], totals[::-1]
        spans, longest = self._longest[key]
        position = bisect_right(spans, elapsed)
        return longest[position] if position <= len(longest) - SAMPLES_MIN else None

    def _steps_of(self, sample: FlowSample) -> dict[str, _Step]:
        found = {}
        for name, own in sample.phases.items():
            behind = [sample.phases[p] for p in self.plan.downstream(name) if p in sample.phases]
            end = max([own.ended_at, *(one.ended_at for one in behind)])
            found[name] = _Step(own.ended_at - own.ready_at, end - own.ready_at)
        return found


def forecast(
    history: History,
    frontier: Sequence[Frontier],
    *,
    now: Micros,
    weekday: int,
    target_at: Micros | None,
) -> Forecast | None:
    """Return the forecast of a live flow; None if there are too few samples or nothing is left."""
    chosen = history.weekday_of(weekday)
    steps = history.steps(chosen)
    names = [one.phase for one in frontier]
    usable = [step for step in steps if all(name in step for name in names)]
    if len(usable) < SAMPLES_MIN or not frontier:
        return None
    ends = [
        max(one.ready_at + step[one.phase].total for one in frontier)
        for step in usable
        if all(step[one.phase].span > now - one.ready_at for one in frontier)
    ]
    if len(ends) < SAMPLES_MIN:
        ends += [_end_beyond(step, frontier, now) for step in usable]
    ends.sort()
    late = 0 if target_at is None else len(ends) - bisect_right(ends, target_at)
    return Forecast(
        p50_at=quantile(ends, 0.5),
        p90_at=quantile(ends, 0.9),
        miss=None if target_at is None else late / len(ends),
        samples=len(usable),
        is_weekday=chosen is not None,
    )


def is_safe(
    history: History, frontier: Sequence[Frontier], *, now: Micros, weekday: int, target_at: Micros
) -> bool:
    """Return whether none of the samples would miss the target; a cheap check before `forecast`."""
    chosen = history.weekday_of(weekday)
    if len(history.steps(chosen)) < SAMPLES_MIN:
        return True
    for one in frontier:
        longest = history.latest_total(chosen, one.phase, now - one.ready_at)
        if longest is None or one.ready_at + longest > target_at:
            return False
    return True


def frontier_of(
    plan: Plan, states: Mapping[str, tuple[str, Micros | None]], opened_at: Micros
) -> list[Frontier]:
    """Return the phases of a live flow that are next or in progress, with when they could start.

    states: state and end of each phase by name.
    """
    found = []
    for phase in plan.phases:
        own = states.get(phase.name)
        before = [states[name] for name in phase.after if name in states]
        if own is None or own[0] in _OVER or any(state not in _OVER for state, _ in before):
            continue
        ready_at = max([ended_at or 0 for _, ended_at in before], default=opened_at)
        found.append(Frontier(phase.name, max(ready_at, opened_at)))
    return found


def _end_beyond(step: Mapping[str, _Step], frontier: Sequence[Frontier], now: Micros) -> Micros:
    """Return the end of a flow whose phases are slower than the samples'."""
    ends = []
    for one in frontier:
        elapsed, own = now - one.ready_at, step[one.phase]
        left = own.span - elapsed if own.span > elapsed else int(elapsed * BEYOND)
        ends.append(now + max(1, left) + own.total - own.span)
    return max(ends)
