"""Records of service levels: targets, results and breaches."""

from __future__ import annotations

from typing import Literal, TypeAlias

from penstock.core.records.record import Minutes, Record, Seconds, Time, field

__all__ = ["Slo", "SloBreach", "SloPoint"]

Measure: TypeAlias = Literal[
    "latency", "completeness", "quality", "failures", "cascade", "self_heal",
    "duplicate_triggers", "sla",
]  # fmt: skip
"""What a service level measures."""
BreachKind: TypeAlias = Literal["flow", "phase", "run"]


class SloPoint(Record):
    """The result of one flow or phase."""

    partition: str
    """Partition of the flow."""
    customer: str = field(name="customer_id")
    """Customer of the flow."""
    flow_id: str
    """Id of the flow (`flow_…`)."""
    took: Seconds | None = field(name="seconds")
    """Time from start to end, in seconds; null while it is open."""
    outcome: Literal["met", "missed"] | None
    """Whether it met its target; null if there is no target, or if the flow was cancelled."""
    is_degraded: bool
    """Whether it ran without some of its data."""
    at: Time
    """Time of its end, or the time at which it became late."""


class Slo(Record):
    """A service level of a pipeline, and its results in a window."""

    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    mode: str | None
    """Mode of the flows; null for measures over runs of all modes."""
    phase: str | None
    """Phase that is measured; null for the whole flow."""
    measure: Measure
    """latency (time from start to end), completeness, quality, failures (runs that failed), cascade
    (phases that the cascade started), self_heal, duplicate_triggers, or sla (runs that started on
    time and completed)."""
    target: float | None
    """Seconds (latency), percent (completeness) or score (quality) to reach; null if none is
    declared, or for a measure that is itself a percentage."""
    objective_percentage: float
    """Percentage of results that must reach the target."""
    met: int
    """Results in the window that reached it."""
    missed: int
    """Results in the window that did not."""
    compliance_percentage: float | None
    """Percentage of results that reached it; null if there are no results."""
    budget_left: float | None
    """Share of the error budget that is left: 1 if untouched, 0 if used up, negative if overdrawn;
    null if there are no results.
    """
    burn_rate: float | None
    """Rate at which the last hour used the budget, where 1 is sustainable; null if that hour has no
    results."""
    burn_rate_slow: float | None
    """The same over the last six hours."""
    p50: Seconds | None = field(name="p50_seconds")
    """Median time of the newest results, in seconds; null for measures other than latency."""
    p90: Seconds | None = field(name="p90_seconds")
    """90th percentile of the newest results, in seconds; null in the same cases."""
    points: list[SloPoint]
    """The newest results, oldest first; empty for measures other than latency."""


class SloBreach(Record):
    """A flow or phase that missed its target, or a run that missed its SLA."""

    kind: BreachKind
    """flow, phase or run."""
    customer: str = field(name="customer_id")
    """Customer of the flow or run."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    mode: str | None
    """Mode of the flow; null for a run outside a flow."""
    phase: str | None
    """Name of the phase; null for a whole flow."""
    partition: str | None
    """Partition of the data; null for a run without one."""
    subject: str
    """Id of the flow (`flow_…`) or run (`run_…`)."""
    expected_by: Time
    """Time by which the flow or phase should have ended, or the run started."""
    actual_at: Time | None
    """Time at which it actually ended or started; null if it has not."""
    late: Minutes = field(name="breach_minutes")
    """Minutes by which it was late, so far if it is open; 0 if it failed before it was due."""
    state: str
    """State of the flow, phase or run."""
    at: Time
    """Time at which the breach was recorded."""
