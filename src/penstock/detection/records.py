"""Records of detections, of the risk of a flow and of the freshness of tables."""

from __future__ import annotations

from typing import Literal

from penstock.core.records.record import JsonObject, Record, Seconds, Time, field

__all__ = ["Detection", "FlowRisk", "PhaseForecast", "TableFreshness"]


class Detection(Record):
    """A condition that needs attention now, and the command that mends it."""

    rule: str
    """Name of the rule, which is also the rule of its alert."""
    severity: Literal["CRITICAL", "HIGH", "MEDIUM", "INFO"]
    """Severity of its alert."""
    customer: str | None = field(name="customer_id")
    """Customer that it concerns; null for the whole installation."""
    pipeline: str | None = field(name="pipeline_template")
    """Pipeline that it concerns; null for none."""
    subject_kind: str
    """What it is about: flow, run, table or processor."""
    subject: str | None
    """Id of the flow or run; null for tables and processors, which `values` names."""
    message: str
    """The condition in a sentence, with its values."""
    values: JsonObject
    """The values that the rule compared."""
    threshold: str
    """The limit that they exceeded, in words."""
    since: Time
    """Time since which the condition lasts."""
    command: str
    """Command that mends it, or leads to what mends it."""
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
    """Time that nine tenths of earlier flows stayed below, in seconds; null as above."""


class FlowRisk(Record):
    """When a flow will probably end, and how likely it misses its service level."""

    flow_id: str
    """Id of the flow (`flow_…`)."""
    as_of: Time
    """Time of the forecast."""
    slo_at: Time | None
    """Time by which the flow should end, by its service level or else its deadline."""
    eta_p50_at: Time | None
    """Time by which it will end with a probability of one half; null without enough flows."""
    eta_p90_at: Time | None
    """Time by which it will end with a probability of nine tenths; null as above."""
    slo_miss_probability: float | None
    """Probability that it ends after `slo_at`, from 0 to 1; null as above."""
    samples: int
    """Number of earlier flows that the forecast rests on."""
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
    """Age of the newest row when it was checked, in seconds; null as above."""
    max_age: Seconds = field(name="max_age_seconds")
    """Maximum age that the policy allows, in seconds."""
    status: Literal["FRESH", "STALE", "ERROR"]
    """FRESH, STALE, or ERROR if the probe failed."""
    error: str | None
    """Error of the probe; null for none."""
    checked_at: Time
    """Time of the check."""
