"""Metrics that rules compare with thresholds, and their measurements.

Pure. A metric has a value for each subject, such as each pool with waiting runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from penstock.core.clock import MINUTE, SECOND, format_duration
from penstock.core.naming import CustomerKey


class Metric(NamedTuple):
    """A metric: its description and its unit."""

    words: str
    unit: str = ""


LOW_QUALITY_PERCENT: Final = 15.01
"""Quality shortfall from which a customer counts as affected."""
CUSTOM: Final = "custom"
"""Metric of the rules that pipelines declare in Python."""
METRICS: Final[Mapping[str, Metric]] = {
    "dead_letter_age_minutes": Metric("age of the oldest open dead letter", "minutes"),
    "recent_dead_letters": Metric("dead letters of the last 10 minutes"),
    "ready_runs": Metric("runs waiting for a worker"),
    "queue_age_minutes": Metric("waiting time of the next run in the queue", "minutes"),
    "unserved_minutes": Metric("waiting time in a pool without a live worker", "minutes"),
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
    "disk_used_percent": Metric("used share of the database disk", "%"),
    "clock_lead_seconds": Metric("how far recorded times are ahead of the clock", "seconds"),
    "database_gap_seconds": Metric("time for which the database was unreachable", "seconds"),
    "dead_letter_growth": Metric("growth of open dead letters in 10 minutes"),
    "permission_errors": Metric("failures for lack of permission in 10 minutes"),
    "backlog_growth_minutes": Metric("time for which a backlog has grown", "minutes"),
    "failed_deliveries_per_minute": Metric("deliveries that failed in a minute"),
    "http_5xx_percent": Metric("share of requests that failed with 5xx in 5 minutes", "%"),
    "http_5xx": Metric("requests that failed with 5xx in 5 minutes"),
    "http_4xx_percent": Metric("share of requests rejected in 10 minutes (at least 20)", "%"),
    "override_days": Metric("days in a row with an override of the same processor"),
    "quality_loss_percent": Metric("quality shortfall of a phase", "%"),
    "late_flows": Metric("flows over their service level"),
    "burn_rate": Metric("burn rate of an error budget", "x"),
    "budget_spent_percent": Metric("used share of an error budget", "%"),
    "cascade_miss_percent": Metric("share of phases that the cascade did not start", "%"),
    "duplicate_triggers": Metric("flows of the last 24 hours that started a phase more than once"),
    "historical_failures": Metric("failed checks of history in 6 hours"),
    "historical_failure_percent": Metric("share of failed checks of history in 6 hours", "%"),
    "dependency_failures_per_week": Metric("failed checks of a table in 7 days"),
    "phase_mean_minutes": Metric("mean duration of a phase without a target", "minutes"),
    "flow_mean_minutes": Metric("mean duration of a flow without a target", "minutes"),
    "limit_wait_minutes": Metric("95th percentile of waiting times for a limit", "minutes"),
    "gate_check_seconds": Metric("95th percentile of the duration of gate checks", "seconds"),
    "anomalous_executions": Metric("customers of a processor with an implausible execution"),
    "empty_executions": Metric("customers of a processor whose execution had no records"),
    "budget_used_percent": Metric("used share of a budget that is in its warning range", "%"),
    "budget_stops": Metric("budgets that hold runs back"),
    "audit_backlog_minutes": Metric("age of the oldest entry that an audit sink lacks", "minutes"),
    "desired_workers": Metric("workers that a pool needs"),
    CUSTOM: Metric("the value of its function", "x"),
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
    key: str = ""
    """Distinguishes several measurements of a subject, such as those of a pipeline's phases."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    fix: str | None = None
    """Command that fixes this subject. Default: the rule's command."""


class MeasuredFleet(NamedTuple):
    """Measurements for the rules, and the open alerts by rule and severity."""

    measurements: list[Measurement]
    open_alerts: Mapping[tuple[str, str], int]


def shown_value(metric: str, value: float) -> str:
    """Return a value of a metric with its unit."""
    unit = METRICS[metric].unit
    if unit == "minutes":
        return format_duration(round(value * MINUTE) // SECOND * SECOND)
    if unit == "seconds":
        return format_duration(round(value) * SECOND)
    if unit == "x":
        return f"{value:.3g}"
    if unit == "%" and value < 1_000:
        return f"{value:.3g} %"
    return f"{value:,.0f} %" if unit == "%" else f"{value:,.0f}"
