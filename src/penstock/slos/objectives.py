"""Measures of service levels, error budgets and burn rates. Pure.

An objective is the percentage of results that must reach the target. The rest is the error budget:
at 95 %, five of a hundred results may miss. The burn rate compares the misses of a short window
with the sustainable rate: at 1, the budget is used up exactly at the end of the window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock.core.clock import HOUR, Micros
from penstock.pipelines.mode import Mode
from penstock.runs.durations import quantile
from penstock.slos.rows import Sums

FAST_US: Final = HOUR
SLOW_US: Final = 6 * HOUR
LATENCY: Final = "latency"


class MeasureTerms(NamedTuple):
    """A measure: its criterion, and its default objective in percent."""

    words: str
    objective: float
    has_mode: bool = True


MEASURES: Final[Mapping[str, MeasureTerms]] = {
    LATENCY: MeasureTerms("ended within its time", 95),
    "completeness": MeasureTerms("processors of the phase completed", 95),
    "quality": MeasureTerms("quality of the phase", 95),
    "cascade": MeasureTerms("phases started by the cascade", 95),
    "self_heal": MeasureTerms("phases started without self-heal", 80),
    "duplicate_triggers": MeasureTerms("flows whose phases started once", 100),
    "failures": MeasureTerms("runs that did not fail", 95, has_mode=False),
    "sla": MeasureTerms("runs that kept their SLA", 95, has_mode=False),
}
"""The measures, by name."""


def compliance(sums: Sums) -> float | None:
    """Return the percentage of results that reached the target; None without results."""
    return 100 * sums.good / sums.total if sums.total else None


def budget_left(sums: Sums, objective: float) -> float | None:
    """Return the share of the error budget that is left; None without results."""
    if not sums.total:
        return None
    allowed = (100 - objective) / 100 * sums.total
    if allowed <= 0:
        return 1.0 if not sums.bad else 0.0
    return 1 - sums.bad / allowed


def burn_rate(sums: Sums, objective: float) -> float | None:
    """Return how many times faster than sustainable the budget is used; None without results.

    An objective of 100 % has no budget: every miss burns as if it were one of a thousand.
    """
    if not sums.total:
        return None
    allowed = max(0.1, 100 - objective) / 100
    return sums.bad / sums.total / allowed


def spread(took: Sequence[Micros]) -> tuple[Micros | None, Micros | None]:
    """Return the median and the 90th percentile of times; None if there are none."""
    if not took:
        return None, None
    ordered = sorted(took)
    return quantile(ordered, 0.5), quantile(ordered, 0.9)


def targets_of_mode(mode: Mode) -> dict[str, float | None]:
    """Return the declared targets of a mode's measures over whole flows, without latency."""
    return {
        "completeness": mode.target,
        "quality": mode.min_quality,
        "cascade": None,
        "self_heal": None,
        "duplicate_triggers": None,
    }
