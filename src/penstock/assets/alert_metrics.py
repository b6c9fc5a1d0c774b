"""The metrics of alert rules as Prometheus metrics. Pure.

Rules measure in minutes, percent and counts; Prometheus uses base units. So `queue_age_minutes` is
exported in seconds, under a name that says so, and thresholds are converted with it. The label
`subject` contains the name of the measured object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from penstock.alerts.measures import METRICS
from penstock.telemetry.catalog import DECLARED, DeclaredMetric

FACTORS: Final = {"minutes": 60.0, "seconds": 1.0, "%": 0.01}
NOT_EXPORTED: Final = frozenset({"database_gap_seconds"})
"""Metrics known only to the process that evaluates rules; `penstock_up` replaces them."""
SAME_NAME: Final[Mapping[str, str]] = {
    "quota_errors": "quota_limited",
    "limit_wait_minutes": "limit_wait_p95_minutes",
}
"""Names for metrics whose own name means something else in Prometheus."""


def alert_metric(name: str) -> DeclaredMetric:
    """Return the declaration of a rule's metric as it is exported."""
    known = METRICS[name]
    stem = SAME_NAME.get(name, name)
    for ending in ("_minutes", "_seconds", "_percent"):
        stem = stem.removesuffix(ending)
    suffix = {"minutes": "_seconds", "seconds": "_seconds", "%": "_ratio"}.get(known.unit, "")
    words = known.words[0].upper() + known.words[1:]
    return DeclaredMetric(
        f"penstock_{stem}{suffix}", "gauge", f"{words}, as alert rules measure it.", ("subject",),
        "fleet",
    )  # fmt: skip


def exported_value(name: str, value: float) -> float:
    """Return a value of a rule's metric in its base unit."""
    return value * FACTORS.get(METRICS[name].unit, 1.0)


def alert_metrics() -> Sequence[DeclaredMetric]:
    """Return the exported metrics of rules, without those that other code already exports."""
    known = {metric.name for metric in DECLARED}
    made = [alert_metric(name) for name in METRICS if name not in NOT_EXPORTED]
    return [metric for metric in made if metric.name not in known]


def all_metrics() -> Sequence[DeclaredMetric]:
    """Return every metric that Penstock exposes."""
    return (*DECLARED, *alert_metrics())
