"""Rows of decisions, triggers, overrides and interventions as plain records."""

from __future__ import annotations

from typing import NamedTuple

from penstock.core.clock import FAR_FUTURE
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.flows.gates.override import Override


class NewTrigger(NamedTuple):
    """The start of a phase or processor (batch of `trigger_put_many`)."""

    flow_id: int
    phase: str
    processor: str
    customer_key: CustomerKey
    verdict: str
    source: str
    is_observed: bool
    runs: int
    parent_processor: str | None = None
    """The processor whose completion led to this start."""
    parent_run_id: int | None = None
    """The run of that completion; None if an external system reported it."""


class Trigger(NamedTuple):
    """A trigger as read from the database."""

    flow_id: int
    phase: str
    processor: str
    at: int
    verdict: str
    source: str
    is_observed: bool
    runs: int


class NewDecision(NamedTuple):
    """A decision with its complete input, as canonical JSON (batch of `decision_put_many`)."""

    customer_key: CustomerKey
    pipeline_key: PipelineKey
    flow_id: int
    phase: str
    processor: str
    partition: str
    mode: str
    verdict: str
    status: str
    completeness: float
    quality: float
    input: str
    decision: str
    source: str


class DecisionRow(NamedTuple):
    """A decision as listed. `core.stored_json.loads` restores its GateInput and Decision."""

    decision_id: int
    customer_id: str
    pipeline: str
    flow_id: int
    phase: str
    processor: str
    partition: str
    mode: str
    at: int
    verdict: str
    status: str
    completeness: float
    quality: float
    input: str
    decision: str
    source: str


class DecisionFilter(NamedTuple):
    """Filter and page of a list of decisions; `before` continues an earlier page."""

    pipeline: int
    customer: int | None = None
    partition: str | None = None
    phase: str | None = None
    flow_id: int | None = None
    mode: str | None = None
    since: int = 0
    until: int = FAR_FUTURE
    before: int = 2**62
    limit: int = 50


class OverrideRow(NamedTuple):
    """An override as listed (SQL fragment `override_columns`)."""

    override_id: int
    customer_id: str
    pipeline: str
    partition: str
    phase: str | None
    processor: str | None
    dependency: str | None
    reason: str
    approved_by: str
    approved_at: int
    expires_at: int
    source: str
    notes: str
    revoked_at: int | None
    revoked_by: str | None

    @property
    def record(self) -> Override:
        """The override in the form gates use."""
        return Override(
            id=encode("ovr", self.override_id),
            customer=self.customer_id,
            pipeline=self.pipeline,
            partition=self.partition,
            reason=self.reason,
            approved_by=self.approved_by,
            approved_at=self.approved_at,
            expires_at=self.expires_at,
            phase=self.phase,
            processor=self.processor,
            dependency=self.dependency,
            source=self.source,
            notes=self.notes,
        )


class NewIntervention(NamedTuple):
    """A problem that a person must resolve (batch of `intervention_put_many`)."""

    customer_key: CustomerKey
    pipeline_key: PipelineKey
    flow_id: int
    phase: str
    processor: str
    partition: str
    missing: str
    reason: str
    tries: int
    correlation_id: str | None
    payload: str | None = None


class InterventionRow(NamedTuple):
    """An item of the manual queue."""

    intervention_id: int
    customer_id: str
    pipeline: str
    flow_id: int
    phase: str
    processor: str
    partition: str
    missing: str
    reason: str
    tries: int
    correlation_id: str | None
    payload: str | None
    status: str
    opened_at: int
    resolved_at: int | None
    resolved_by: str | None
    resolution: str | None


class OverrideFilter(NamedTuple):
    """Filter and page of a list of overrides. live: only those in force."""

    customer: int | None = None
    pipeline: int | None = None
    partition: str | None = None
    override_id: int | None = None
    live: bool = False
    before: int = FAR_FUTURE
    limit: int = 50


class InterventionFilter(NamedTuple):
    """Filter and page of a list of interventions."""

    customer: int | None = None
    status: str | None = "open"
    intervention_id: int | None = None
    before: int = FAR_FUTURE
    limit: int = 50
