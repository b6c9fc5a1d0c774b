"""Request and response bodies of gates, overrides and interventions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.server.models import RequestModel, ResponseModel, Time
from penstock.server.openapi import texts


class DependencyOut(ResponseModel):
    """A dependency as a gate evaluated it."""

    table: str = Field(description="Name of the table that was probed.")
    kind: str = Field(description="same_day, historical or optional.")
    status: str = Field(description="COMPLETE, DEGRADED or MISSING.")
    completeness: float = Field(description="Completeness of this dependency in percent, 0 to 100.")
    quality: float = Field(description="Quality of this dependency, from 0 (worst) to 1 (best).")
    found_rows: int | None = Field(
        description="Number of rows that the probe counted; null if rows were not counted."
    )
    required_rows: int | None = Field(
        description="Number of rows that were expected; null without an expectation."
    )
    days_present: int | None = Field(
        description="Days of history that were found; null unless historical."
    )
    days_required: int | None = Field(
        description="Days of history that are required; null unless historical."
    )
    days_missing: list[str] = Field(description="Dates of the days of history that were not found.")
    age_seconds: float | None = Field(
        description="Age of the newest row in seconds; null without an age column."
    )
    issues: list[str] = Field(description="Sentences that say what is wrong; empty if nothing is.")
    needed_by: list[str] = Field(
        description="Processors of the phase that declare this dependency."
    )
    fail_if_missing: bool = Field(
        description="Whether the gate fails if the dependency is missing."
    )


class _DecisionFields(ResponseModel):
    phase: str = Field(description=texts.GATE_PHASE)
    processor: str | None = Field(description=texts.GATE_PROCESSOR)
    verdict: str = Field(description="PROCEED, PROCEED_DEGRADED, WAIT or FAIL.")
    status: str = Field(
        description="State of the gate in one word, such as `ready` or `waiting_same_day`."
    )
    rule: int = Field(description="Number of the rule, 1 to 4, that determined the verdict.")
    completeness: float = Field(description=texts.COMPLETENESS)
    quality: float = Field(description=texts.QUALITY)
    reasons: list[str] = Field(description="Sentences that justify the verdict.")
    warnings: list[str] = Field(description=texts.WARNINGS)
    missing: list[str] = Field(description=texts.MISSING)
    alert: str | None = Field(
        description="Level of the alert: INFO, WARNING, ERROR or CRITICAL; null for none."
    )
    recheck_at: Time | None = Field(
        description="Time of the next evaluation; null if none is planned."
    )
    waits_until: Time | None = Field(
        description="Time at which waiting ends; null if the gate does not wait."
    )
    overrides_used: list[str] = Field(
        description="Ids of the overrides that the verdict depends on."
    )
    needs_a_person: bool = Field(description="Whether an intervention was opened for an operator.")
    dependencies: list[DependencyOut] = Field(
        description="Evaluation of each dependency, the evidence of the verdict."
    )


class DecisionOut(_DecisionFields):
    """A recorded gate decision with its evidence."""

    decision_id: str = Field(description="Id of the decision (`dec_…`).", examples=["dec_7h2kq0v3"])
    customer_id: str = Field(description=texts.CUSTOMER)
    pipeline_template: str = Field(description=texts.PIPELINE)
    flow_id: str = Field(description=texts.FLOW_ID)
    partition: str = Field(description=texts.PARTITION)
    mode: str = Field(description=texts.MODE)
    decided_at: Time = Field(description="Time at which the decision was made.")
    trigger_source: str = Field(description=texts.TRIGGER_SOURCE)


class GateCheckOut(_DecisionFields):
    """The decision a gate would make now; nothing was changed."""

    flow_id: str | None = Field(
        description="Flow that the gate was evaluated for; null if none was named."
    )
    partition: str = Field(description=texts.PARTITION)
    mode: str = Field(description=texts.MODE)
    looked_at: Time = Field(description="Time at which the data was probed.")
    is_asked: bool = Field(description="Whether the flow would evaluate this gate now.")


class GateCheckIn(RequestModel):
    """A gate to evaluate now."""

    pipeline_template: str = Field(description=texts.PIPELINE, examples=["nba"])
    phase: str = Field(description=texts.GATE_PHASE, examples=["analytics"], max_length=200)
    processor: str | None = Field(
        default=None, description="Evaluate only the gate of this processor."
    )
    partition: str | None = Field(default=None, description=texts.PARTITION_OR_MODES)
    mode: str | None = Field(
        default=None, description="Mode to evaluate in; chosen by the time of day when omitted."
    )
    customer_id: str | None = Field(default=None, description=texts.CUSTOMER_OR_DEFAULT)
    flow_id: str | None = Field(
        default=None, description="Flow whose completions and overrides count; none when omitted."
    )


class ModeChangesIn(RequestModel):
    """Changed settings of the mode; omitted settings keep their recorded values."""

    proceed_at: float | None = Field(
        default=None,
        description="Completeness in percent from which the gate proceeds.",
        ge=0,
        le=100,
    )
    min_quality: float | None = Field(
        default=None,
        description="Lowest quality, from 0 to 1, at which the gate proceeds.",
        ge=0,
        le=1,
    )
    degraded_at: float | None = Field(
        default=None,
        description="Completeness in percent from which the gate proceeds degraded.",
        ge=0,
        le=100,
    )
    otherwise: Literal["WAIT", "FAIL"] | None = Field(
        default=None, description="Verdict below both thresholds; WAIT requires a `max_wait`."
    )
    recheck: str | None = Field(
        default=None,
        description="Time between two evaluations while waiting, as a duration.",
        examples=["10m"],
    )
    max_wait: str | None = Field(
        default=None,
        description="Longest time to wait before deciding, as a duration.",
        examples=["6h"],
    )


class WhatIfIn(RequestModel):
    """Recorded decisions to evaluate again."""

    pipeline_template: str = Field(description=texts.PIPELINE, examples=["nba"])
    changes: ModeChangesIn = Field(description=texts.MODE_CHANGES)
    partition: str | None = Field(default=None, description=texts.PARTITION_FILTER)
    phase: str | None = Field(default=None, description=texts.PHASE_FILTER)
    flow_id: str | None = Field(default=None, description="Evaluate only decisions of this flow.")
    customer_id: str | None = Field(default=None, description=texts.CUSTOMER_FILTER)
    limit: int = Field(
        default=50, description="Maximum number of decisions, the newest first.", ge=1, le=1_000
    )


class ReevaluatedDecisionOut(ResponseModel):
    """A recorded decision beside its verdict under changed settings."""

    decision_id: str = Field(description="Id of the recorded decision (`dec_…`).")
    flow_id: str = Field(description=texts.FLOW_ID)
    partition: str = Field(description=texts.PARTITION)
    mode: str = Field(description=texts.MODE)
    phase: str = Field(description=texts.GATE_PHASE)
    processor: str | None = Field(description=texts.GATE_PROCESSOR)
    decided_at: Time = Field(description="Time of the recorded decision.")
    then: str = Field(description=texts.VERDICT_THEN)
    now: str = Field(description=texts.VERDICT_NOW)
    changed: bool = Field(description="Whether the two verdicts differ.")
    completeness: float = Field(description=texts.COMPLETENESS)
    quality: float = Field(description=texts.QUALITY)
    reasons: list[str] = Field(
        description="Sentences that justify the verdict under the changed settings."
    )


class WhatIfOut(ResponseModel):
    """Recorded decisions evaluated under changed settings."""

    items: list[ReevaluatedDecisionOut] = Field(
        description="Decisions that were evaluated again, newest first."
    )


class BacktestIn(RequestModel):
    """Days of recorded decisions to evaluate again."""

    pipeline_template: str = Field(description=texts.PIPELINE, examples=["nba"])
    changes: ModeChangesIn = Field(description=texts.MODE_CHANGES)
    days: int = Field(
        default=30, description="Number of days before now to evaluate.", ge=1, le=3_660
    )
    phase: str | None = Field(default=None, description=texts.PHASE_FILTER)
    customer_id: str | None = Field(default=None, description=texts.CUSTOMER_FILTER)


class VerdictChangeOut(ResponseModel):
    """The number of decisions that would change from one verdict to another."""

    then: str = Field(description=texts.VERDICT_THEN)
    now: str = Field(description=texts.VERDICT_NOW)
    decisions: int = Field(description="Number of decisions with this pair of verdicts.")


class BacktestOut(ResponseModel):
    """The effect that changed settings would have had."""

    decisions: int = Field(
        description="Number of decisions that were evaluated again, at most 5,000."
    )
    changed: int = Field(description="Number of decisions whose verdict would differ.")
    moves: list[VerdictChangeOut] = Field(
        description="Counts by recorded verdict and verdict under the changed settings."
    )
    items: list[ReevaluatedDecisionOut] = Field(description="Decisions whose verdict would differ.")


class OverrideIn(RequestModel):
    """An override to grant; the caller is recorded as its approver."""

    pipeline_template: str = Field(description=texts.PIPELINE, examples=["nba"])
    partition: str = Field(description=texts.PARTITION, min_length=1, max_length=500)
    customer_id: str | None = Field(default=None, description=texts.CUSTOMER_OR_DEFAULT)
    phase: str | None = Field(
        default=None, description="Phase that the override applies to; all phases when omitted."
    )
    processor: str | None = Field(
        default=None,
        description="Processor that the override applies to; all processors when omitted.",
    )
    dependency: str | None = Field(
        default=None,
        description="Table that may be missing; any dependency when omitted.",
        max_length=500,
    )
    reason: str = Field(
        description="Justification of the override, kept with it.", min_length=1, max_length=2_000
    )
    expires: str | None = Field(
        default=None,
        description="Duration of the override, at most 7 days; alternative to `expires_at`.",
        examples=["4h"],
    )
    expires_at: str | None = Field(
        default=None, description="Time at which the override ends, at most 7 days ahead."
    )
    notes: str = Field(
        default="", description="Additional notes, kept with the override.", max_length=2_000
    )


class OverrideOut(ResponseModel):
    """An approval to proceed without a dependency."""

    override_id: str = Field(description="Id of the override (`ovr_…`).", examples=["ovr_7h2kq0v3"])
    customer_id: str = Field(description=texts.CUSTOMER)
    pipeline_template: str = Field(description=texts.PIPELINE)
    partition: str = Field(description=texts.PARTITION)
    phase: str | None = Field(
        description="Phase that the override applies to; null for all phases."
    )
    processor: str | None = Field(
        description="Processor that the override applies to; null for all processors."
    )
    dependency: str | None = Field(
        description="Table that may be missing; null for any dependency."
    )
    reason: str = Field(description="Justification given when it was granted.")
    approved_by: str = Field(description="Name of the key or user that granted it.")
    approved_at: Time = Field(description="Time at which it was granted.")
    expires_at: Time = Field(description="Time at which it ends.")
    revoked_at: Time | None = Field(description="Time at which it was revoked; null if it was not.")
    revoked_by: str | None = Field(
        description="Name of the key or user that revoked it; null if it was not."
    )
    source: str = Field(description="Interface it was granted through, such as `api` or `cli`.")
    notes: str = Field(description="Additional notes; empty if there are none.")


class OverrideRevokeIn(RequestModel):
    """The reason for revoking an override."""

    reason: str = Field(default="", description=texts.REASON, max_length=500)


class InterventionOut(ResponseModel):
    """A blocked gate that an operator has to resolve."""

    intervention_id: str = Field(
        description="Id of the intervention (`int_…`).", examples=["int_7h2kq0v3"]
    )
    customer_id: str = Field(description=texts.CUSTOMER)
    pipeline_template: str = Field(description=texts.PIPELINE)
    flow_id: str = Field(description=texts.FLOW_ID)
    phase: str = Field(description=texts.GATE_PHASE)
    processor: str | None = Field(description=texts.GATE_PROCESSOR)
    partition: str = Field(description=texts.PARTITION)
    missing: list[str] = Field(description=texts.MISSING)
    reason: str = Field(description="Sentences that say why the gate cannot proceed.")
    tries: int = Field(description="Number of evaluations that found too little history.")
    correlation_id: str | None = Field(description=texts.CORRELATION_ID)
    status: str = Field(description="Either `open` or `resolved`.")
    opened_at: Time = Field(description="Time at which the intervention was opened.")
    resolved_at: Time | None = Field(
        description="Time at which it was resolved; null while it is open."
    )
    resolved_by: str | None = Field(
        description="Name of the key or user that resolved it; `penstock` if it resolved itself."
    )
    resolution: str | None = Field(
        description="Description of what was done; null while it is open."
    )
    command: str | None = Field(
        description="Shell command that resolves it; null once it is resolved."
    )


class InterventionResolveIn(RequestModel):
    """The resolution of an intervention."""

    resolution: str = Field(
        description="Description of what was done, kept with the intervention.",
        min_length=1,
        max_length=2_000,
    )
