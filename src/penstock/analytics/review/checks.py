"""The daily checks, and the actions of the weekly review. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from shlex import join
from typing import Final, NamedTuple

from penstock.analytics.records import (
    Acknowledgments,
    DependencyHealth,
    EndToEnd,
    FailingProcessor,
    OverrideUsage,
    RunSeries,
)
from penstock.analytics.review.records import (
    DailyCheck,
    ReviewAction,
    ReviewedProcessor,
)

NACK_RATE: Final = 0.10
NACKS_FROM: Final = 10
"""Minimum number of attempts or deliveries for a meaningful nack rate."""
HISTORICAL_A_DAY: Final = 5
OVERRIDES_A_DAY: Final = 3
FAILURE_RATE: Final = 0.05
OPTIONAL_MISS_RATE: Final = 0.20
OPTIONAL_FROM: Final = 5
FLOW_SUCCESS: Final = 0.95
LATE_STARTS: Final = 10
DEAD_LETTERS: Final = 10

LIMITS: Final = {"same_day": 100, "historical": 10, "optional": 50, "overrides": 5}
"""Weekly counts above which an action is recommended."""
_ADVICE: Final = {
    "same_day": "Check whether the producer publishes its completion, and on time.",
    "historical": "Schedule a backfill of the missing days.",
    "optional": "Check whether the source is unreliable; if so, remove the dependency.",
    "overrides": "Fix the cause: repeated overrides hide it.",
}


class Waiting(NamedTuple):
    """A same-day table that flows have been waiting for."""

    table: str
    hours: float
    command: str


def nack_check(acks: Acknowledgments) -> DailyCheck:
    """Check the nack rate of every processor and subscription."""
    sums: dict[str, list[int]] = {}
    for hour in acks.hours:
        name = hour.name if hour.pipeline is None else f"{hour.pipeline}/{hour.name}"
        total = sums.setdefault(name, [0, 0])
        total[0] += hour.acks
        total[1] += hour.nacks
    rates = {
        name: nacks / (acked + nacks)
        for name, (acked, nacks) in sums.items()
        if acked + nacks >= NACKS_FROM
    }
    worst = max(rates, key=lambda name: rates[name], default=None)
    value = 0.0 if worst is None else rates[worst]
    if worst is None:
        text = "too few attempts and deliveries for a rate"
    else:
        text = f"highest nack rate {value:.1%}, of {worst}"
    return _check("nack_rate", value, NACK_RATE, text, "penstock analytics acks")


def stuck_check(waiting: Sequence[Waiting], limit_hours: float = 2.0) -> DailyCheck:
    """Check that no same-day dependency has been missing for long."""
    worst = max(waiting, key=lambda one: one.hours, default=None)
    if worst is None:
        return _check("same_day_stuck", 0.0, limit_hours, "no flow waits for a same-day table", "")
    text = f"{worst.table} has been missing for {worst.hours:.1f} h"
    if len(waiting) > 1:
        text += f", and {len(waiting) - 1} more"
    return _check("same_day_stuck", worst.hours, limit_hours, text, worst.command)


def historical_check(both_days: DependencyHealth, today: DependencyHealth) -> DailyCheck:
    """Check the historical failures of a phase or processor: of today or yesterday, if more."""
    new, all_ = _historical_failures(today), _historical_failures(both_days)
    failures = {name: max(new[name], count - new[name]) for name, count in all_.items()}
    worst = max(failures, key=lambda name: failures[name], default=None)
    value = 0.0 if worst is None else float(failures[worst])
    text = "no historical dependency was missing"
    if worst is not None:
        on_day = "today" if failures[worst] == new[worst] else "yesterday"
        text = f"{value:g} historical failures {on_day} in {worst}"
    return _check(
        "historical_failures", value, HISTORICAL_A_DAY, text, "penstock analytics dependencies"
    )


def _historical_failures(health: DependencyHealth) -> Counter[str]:
    failures: Counter[str] = Counter()
    for gate in health.gates:
        if gate.kind == "historical" and gate.failures:
            place = f"{gate.pipeline}/{gate.phase}"
            failures[f"{place}.{gate.processor}" if gate.processor else place] += gate.failures
    return failures


def override_check(used: Iterable[OverrideUsage]) -> DailyCheck:
    """Check the executions under overrides."""
    value = sum(one.executions for one in used)
    text = f"{value} executions under overrides"
    return _check(
        "overrides", value, OVERRIDES_A_DAY, text, "penstock analytics overrides --days 1"
    )


def optional_check(health: DependencyHealth) -> DailyCheck:
    """Check how often optional dependencies were missing."""
    rates = [one for one in health.optional if one.checks >= OPTIONAL_FROM]
    worst = max(rates, key=lambda one: one.miss_rate or 0.0, default=None)
    value = 0.0 if worst is None else worst.miss_rate or 0.0
    text = "no optional table was checked often enough"
    if worst is not None:
        text = f"{worst.table} was missing in {value:.0%} of checks"
    return _check(
        "optional_missing", value, OPTIONAL_MISS_RATE + 1e-9, text,
        "penstock analytics dependencies",
    )  # fmt: skip


def failure_check(series: RunSeries) -> DailyCheck:
    """Check the share of runs that failed."""
    failed = sum(one.failed for one in series.points)
    ended = failed + sum(one.completed for one in series.points)
    value = failed / ended if ended else 0.0
    text = f"{failed:,} of {ended:,} runs failed ({value:.1%})"
    return _check("failure_rate", value, FAILURE_RATE, text, "penstock analytics trends --days 1")


def late_check(series: RunSeries) -> DailyCheck:
    """Check the runs that started later than their SLA allows."""
    value = sum(one.started_late for one in series.points)
    text = f"{value:,} runs started late"
    return _check("late_starts", value, LATE_STARTS, text, "penstock runs list --sla-breached")


def flow_check(modes: Iterable[EndToEnd]) -> DailyCheck:
    """Check the share of flows that completed."""
    found = list(modes)
    ended = sum(one.flows for one in found)
    completed = sum(one.completed for one in found)
    failed = 1 - completed / ended if ended else 0.0
    text = f"{completed:,} of {ended:,} flows completed"
    command = "penstock flows list --state FAILED"
    return _check("flow_failures", failed, 1 - FLOW_SUCCESS + 1e-9, text, command)


def dead_letter_check(count: int) -> DailyCheck:
    """Check the open dead letters."""
    text = f"{count}{'+' if count > DEAD_LETTERS else ''} open dead letters"
    return _check("dead_letters", count, DEAD_LETTERS + 1, text, "penstock dlq groups")


def _check(name: str, value: float, limit: float, text: str, command: str) -> DailyCheck:
    is_bad = value >= limit
    return DailyCheck(
        check=name,
        verdict="FAIL" if is_bad else "OK",
        value=round(float(value), 4),
        limit=round(float(limit), 4),
        text=text,
        command=command if is_bad else None,
    )


def reviewed(
    health: DependencyHealth, failing: Iterable[FailingProcessor]
) -> list[ReviewedProcessor]:
    """Return failures by phase or processor, most historical failures first."""
    sums: dict[tuple[str, str], dict[str, int]] = {}

    def count(pipeline: str, name: str, kind: str, n: int) -> None:
        found = sums.setdefault((pipeline, name), {})
        found[kind] = found.get(kind, 0) + n

    for gate in health.gates:
        name = f"{gate.phase}.{gate.processor}" if gate.processor else gate.phase
        count(gate.pipeline, name, gate.kind, gate.failures)
    for used in health.overrides:
        count(used.pipeline, f"{used.phase}.{used.processor}", "overrides", used.executions)
    for one in failing:
        count(one.pipeline, f"{one.phase}.{one.processor}", "runs", one.runs)
        count(one.pipeline, f"{one.phase}.{one.processor}", "failures", one.failures)
    made = [
        ReviewedProcessor(
            pipeline=pipeline,
            name=name,
            same_day_failures=found.get("same_day", 0),
            historical_failures=found.get("historical", 0),
            optional_failures=found.get("optional", 0),
            overrides=found.get("overrides", 0),
            runs=found.get("runs", 0),
            failures=found.get("failures", 0),
        )
        for (pipeline, name), found in sums.items()
    ]
    made.sort(key=lambda one: (one.pipeline, one.name))
    made.sort(key=lambda one: (one.historical_failures, one.same_day_failures, one.failures))
    return made[::-1][:50]


def actions_of(rows: Iterable[ReviewedProcessor]) -> list[ReviewAction]:
    """Return the thresholds of a week that were exceeded."""
    made = []
    for row in rows:
        counts = {
            "same_day": row.same_day_failures,
            "historical": row.historical_failures,
            "optional": row.optional_failures,
            "overrides": row.overrides,
        }
        for kind, count in counts.items():
            if count > LIMITS[kind]:
                what = "overrides" if kind == "overrides" else "dependencies"
                made.append(
                    ReviewAction(
                        kind=kind,  # type: ignore[arg-type]
                        pipeline=row.pipeline,
                        name=row.name,
                        count=count,
                        threshold=LIMITS[kind],
                        text=_ADVICE[kind],
                        command=join(["penstock", "analytics", what, "--pipeline", row.pipeline]),
                    )
                )
    return made
