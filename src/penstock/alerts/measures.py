"""Metrics that rules compare with thresholds, and what is measured of them.

Pure. A metric has a value for each subject that has one, such as each pool with waiting runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.core.clock import MINUTE, SECOND, format_duration
from penstock.core.naming import CustomerKey


class Metric(NamedTuple):
    """A metric: what it is, in words, and its unit."""

    words: str
    unit: str = ""


METRICS: Final[Mapping[str, Metric]] = {
    "dead_letter_age_minutes": Metric("age of the oldest open dead letter", "minutes"),
    "recent_dead_letters": Metric("dead letters in 10 minutes"),
    "ready_runs": Metric("runs that wait for a worker"),
    "queue_age_minutes": Metric("wait of the next run in the queue", "minutes"),
    "unserved_minutes": Metric("wait in a pool without a live worker", "minutes"),
    "overdue_minutes": Metric("delay of the scheduler", "minutes"),
    "overtime_runs": Metric("runs over their maximum execution time"),
    "unstoppable_runs": Metric("runs that ignore a request to stop"),
    "failure_percent": Metric("share of failed runs in this and the last hour", "%"),
    "sla_breaches_today": Metric("runs that missed their SLA today"),
    "nack_percent": Metric("share of nacks in this and the last hour", "%"),
    "unacked_minutes": Metric("age of the oldest message that is not acked", "minutes"),
    "outbox_age_minutes": Metric("age of the oldest message in the outbox", "minutes"),
    "overrides_per_day": Metric("overrides granted in 24 hours"),
    "quota_errors": Metric("quota errors of a limit in 10 minutes"),
    "disk_used_percent": Metric("used share of the disk of the database", "%"),
    "clock_lead_seconds": Metric("lead of recorded times over the clock", "seconds"),
    "database_gap_seconds": Metric("time without a reachable database", "seconds"),
}
"""The metrics of rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The value of a metric for one subject."""

    metric: str
    value: float
    subject_kind: str = "system"
    subject: int = 0
    name: str = "the installation"
    customer_key: CustomerKey | None = None
    pipeline: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


class MeasuredFleet(NamedTuple):
    """What rules measure, and the open alerts by rule and severity."""

    measurements: list[Measurement]
    open_alerts: Mapping[tuple[str, str], int]


def shown_value(metric: str, value: float) -> str:
    """Return a value of a metric with its unit."""
    unit = METRICS[metric].unit
    if unit == "minutes":
        return format_duration(round(value * MINUTE) // SECOND * SECOND)
    if unit == "seconds":
        return format_duration(round(value) * SECOND)
    return f"{value:.3g} %" if unit == "%" else f"{value:,.0f}"
