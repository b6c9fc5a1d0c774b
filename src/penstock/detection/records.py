"""Records of detections, of the risk of a flow and of the freshness of tables."""

from __future__ import annotations

from typing import Literal

from penstock.core.records.record import JsonObject, Record, Seconds, Time, field

__all__ = ["Detection", "FlowRisk", "PhaseForecast", "TableFreshness"]


class Detection(Record):
    """A condition that needs attention now, and the command that fixes it."""

    rule: str
    """Name of the rule, which is also the rule of its alert."""
    severity: Literal["CRITICAL", "HIGH", "MEDIUM", "INFO"]
    """Severity of its alert."""
    customer: str | None = field(name="customer_id")
    """Customer that it concerns; null for the whole installation."""
    pipeline: str | None = field(name="pipeline_template")
    """Pipeline that it concerns; null if there is none."""
    subject_kind: str
    """Kind of its subject: flow, run, table or processor."""
    subject: str | None
    """Id of the flow or run; null for tables and processors, which `values` names."""
    message: str
    """Description of the condition, with its values."""
    values: JsonObject
    """The values that the rule compared."""
    threshold: str
    """Limit that they exceeded, in plain language."""
    since: Time
    """Time since which the condition has held."""
    command: str
    """Command that fixes it, or that shows how to fix it."""
    runbook: str
    """Section of the runbooks about this rule."""


class PhaseForecast(Record):
    """A phase of a live flow, and how long it usually takes."""

    phase: str
    """Name of the phase within the pipeline."""
    is_current: bool
    """Whether it is next or in progress."""
    expected_p50: Seconds | None = field(name="expected_p50_seconds")
    """Median time from when it can start to its end, in seconds; null without earlier flows."""
    expected_p90: Seconds | None = field(name="expected_p90_seconds")
    """90th percentile of that time, in seconds; null in the same cases."""


class FlowRisk(Record):
    """When a flow will probably end, and how likely it is to miss its service level."""

    flow_id: str
    """Id of the flow (`flow_…`)."""
    as_of: Time
    """Time of the forecast."""
    slo_at: Time | None
    """Time by which the flow should end, by its service level or else its deadline."""
    eta_p50_at: Time | None
    """Median estimate of its end; null if there are too few earlier flows."""
    eta_p90_at: Time | None
    """90th percentile of its estimated end; null in the same cases."""
    slo_miss_probability: float | None
    """Probability that it ends after `slo_at`, from 0 to 1; null in the same cases."""
    samples: int
    """Number of earlier flows that the forecast is based on."""
    is_weekday: bool
    """Whether those are flows of the same weekday only."""
    text: str
    """The forecast as a sentence."""
    phases: list[PhaseForecast]
    """Phases that have not ended, in order."""


class TableFreshness(Record):
    """The newest check of a freshness policy."""

    pipeline: str = field(name="pipeline_template")
    """Pipeline that declares the policy."""
    table: str
    """Name of the table."""
    newest_at: Time | None
    """Time of its newest row; null if it has none or could not be probed."""
    age: Seconds | None = field(name="age_seconds")
    """Age of the newest row when it was checked, in seconds; null in the same cases."""
    max_age: Seconds = field(name="max_age_seconds")
    """Maximum age that the policy allows, in seconds."""
    status: Literal["FRESH", "STALE", "ERROR"]
    """FRESH, STALE, or ERROR if the probe failed."""
    error: str | None
    """Error of the probe; null if there was none."""
    checked_at: Time
    """Time of the check."""
