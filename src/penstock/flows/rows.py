"""Rows of flows, phases, completions and their log tables as plain records."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from penstock.core.clock import FAR_FUTURE
from penstock.core.naming import CustomerKey, PipelineKey, ProcessorKey
from penstock.entities.rows import ReportedEntities
from penstock.flows.phases import ENDED, PhaseState

LATE_DATA: Final = "late_data"
"""Trigger source of a generation that was started by late data."""
BACKFILL: Final = "backfill"
"""Trigger source of the flows of a backfill, and the channel on which their ends are announced."""
REPLAY: Final = "replay"
"""Trigger source of a generation that a person opened to repeat work."""


class FlowRow(NamedTuple):
    """A flow (SQL fragment `flow_columns`)."""

    flow_id: int
    customer_key: CustomerKey
    customer_id: str
    pipeline_key: PipelineKey
    pipeline: str
    config_id: int
    partition: str
    mode: str
    generation: int
    state: str
    correlation_id: str
    trigger_source: str
    created_at: int
    ended_at: int | None
    digest: str
    start_phase: str | None
    parent_flow_id: int | None
    deadline_at: int | None
    no_downstream: bool
    is_degraded: bool
    missing: str
    occurrence_time: int
    start_at: int | None
    start_gap: int
    priority: int
    is_ordered: bool
    parameters: str | None
    opened_by: str
    message_id: str | None = None
    """The message that opened the flow."""
    began_at: int | None = None
    """When the flow before it ended; None if it waited for none, or still waits."""

    @property
    def begun_at(self) -> int:
        """When it began: opened, or released by the end of the flow before it."""
        return self.created_at if self.began_at is None else self.began_at

    @property
    def key(self) -> tuple[int, int, int, str, str]:
        """The columns that all generations of the flow share."""
        return self.customer_key, self.pipeline_key, self.config_id, self.partition, self.mode

    @property
    def breaker_key(self) -> tuple[int, int, str]:
        """The key of the flow's breakers: customer, pipeline, partition."""
        return self.customer_key, self.pipeline_key, self.partition

    @property
    def is_open(self) -> bool:
        """Whether the flow has not ended."""
        return self.ended_at is None


class Locked(NamedTuple):
    """A locked flow, and whether it has overrides or breakers to read."""

    flow: FlowRow
    has_overrides: bool
    has_breakers: bool
    now: int
    """Time of the lock; decisions in this transaction use it as the current time."""
    waits_for_flow: int | None = None
    """An earlier open flow of the same config that this flow waits for."""


class NewFlow(NamedTuple):
    """A flow to be opened (batch of `flow_insert_many`)."""

    customer_key: CustomerKey
    pipeline_key: PipelineKey
    config_id: int
    partition: str
    mode: str
    generation: int
    correlation_id: str
    trigger_source: str
    digest: str
    start_phase: str | None = None
    parent_flow_id: int | None = None
    deadline_at: int | None = None
    no_downstream: bool = False
    occurrence_time: int = 0
    start_at: int | None = None
    start_gap: int = 0
    priority: int = 5
    is_ordered: bool = False
    parameters: str | None = None
    opened_by: str = "scheduler"
    message_id: str | None = None
    subscription: str | None = None
    by_hand: bool = False
    """Opened by a trigger or a report: the overlap policy of its config ignores it."""

    @property
    def key(self) -> tuple[int, int, int, str, str]:
        """The columns that all generations of the flow share."""
        return self.customer_key, self.pipeline_key, self.config_id, self.partition, self.mode


class NewPhase(NamedTuple):
    """A phase, or the gate of a processor, of a new flow (batch of `phase_insert_many`)."""

    flow_id: int
    customer_key: CustomerKey
    phase: str
    processor: str = ""
    state: str = PhaseState.PENDING.value
    started_at: int | None = None
    ended_at: int | None = None
    probe_at: int | None = None
    is_degraded: bool = False
    gate: str | None = None
    fallback_at: int | None = None
    """When the scheduler starts it if the cascade has not; None if it never does."""


class PhaseRow(NamedTuple):
    """A phase of a flow, or the gate of one of its processors."""

    flow_id: int
    gate_id: int
    phase: str
    processor: str
    state: str
    since_at: int
    started_at: int | None
    ended_at: int | None
    probe_at: int | None
    probe_again: bool
    waiting_since: int | None
    tries: int
    is_degraded: bool
    gate: str | None
    evidence: str | None

    @property
    def gate_context(self) -> dict[str, Any]:
        """Context that the gate passes to the phase's runs; empty if there is none."""
        return {} if self.gate is None else dict(json.loads(self.gate))

    @property
    def is_ended(self) -> bool:
        """Whether the phase has ended, in any state."""
        return self.state in ENDED

    @property
    def is_over(self) -> bool:
        """Whether a flow can end with the phase in this state."""
        return self.is_ended and self.state != PhaseState.FAILED


class PhaseMarkRow(NamedTuple):
    """The state of a phase of a flow (statement `phase_marks`)."""

    flow_id: int
    phase: str
    state: str
    is_degraded: bool
    verdict: str | None
    since_at: int
    started_at: int | None
    ended_at: int | None


class LoggedPhase(NamedTuple):
    """An ended phase in the log, which outlives its flow."""

    flow_id: int
    partition: str
    mode: str
    phase: str
    status: str
    started_at: int | None
    completed_at: int


class ConfigDefaults(NamedTuple):
    """Settings that a scheduled flow takes from its config."""

    config_id: int
    customer_key: CustomerKey
    pipeline_key: PipelineKey
    digest: str
    priority: int
    is_ordered: bool
    max_execution_us: int
    sla_us: int
    offset_us: int
    timezone: str


class FlowFilter(NamedTuple):
    """Filter and page of a list of flows; `before` continues an earlier page.

    fragment: beginning of the partition, the pipeline's name or the customer's id.
    direction: -1 lists open flows oldest first; `before` is then the negated id.
    """

    customer: int | None = None
    pipeline: int | None = None
    partition: str | None = None
    mode: str | None = None
    state: str | None = None
    phase_state: str | None = None
    since: int = 0
    until: int = FAR_FUTURE
    fragment: str | None = None
    first_id: int = 0
    last_id: int = FAR_FUTURE
    direction: int = 1
    before: int = FAR_FUTURE
    limit: int = 50


class FlowEvent(NamedTuple):
    """A flow event: a processor of `phase` reported. phase None: evaluate the whole flow."""

    flow_id: int
    phase: str | None
    is_failure: bool
    processor: str | None = None
    """The processor that completed; None for other events."""


class CompletionRow(NamedTuple):
    """A completion as read from the database."""

    flow_id: int
    phase: str
    processor: str
    status: str
    at: int
    quality: float | None
    processor_key: ProcessorKey
    run_id: int | None
    execution_id: str | None
    records: int | None
    entities: str | None
    """Number of reported ids by kind, as JSON; of completions before migration 0027, the ids."""
    total_expected: int | None = None
    completeness_pct: float | None = None
    reported_in: int | None = None
    """The flow in which it was reported, if that is an earlier generation."""

    @property
    def reported_by(self) -> tuple[int, int]:
        """Flow and processor under which its changed entities are stored."""
        return self.reported_in or self.flow_id, self.processor_key


class SingleRunCompletion(NamedTuple):
    """The completion of a run without a flow, for the message about it."""

    run_id: int
    customer_id: str
    pipeline: str
    phase: str
    processor: str
    partition: str | None
    mode: str | None
    correlation_id: str | None
    trigger_source: str
    status: str
    records: int | None
    quality: float | None
    total_expected: int | None
    completeness_pct: float | None
    first_run_id: int


def legacy_reported(row: CompletionRow) -> ReportedEntities | None:
    """Return the changed entities of a completion that holds the ids itself; None for others."""
    given = None if row.entities is None else json.loads(row.entities)
    if not isinstance(given, dict):
        return None
    ids = {kind: listed for kind, listed in given.items() if isinstance(listed, list)}
    counts = {kind: len(listed) for kind, listed in ids.items()}
    return ReportedEntities(counts, ids, None) if ids else None


class NewCompletion(NamedTuple):
    """A reported or inherited completion (batch of `completion_put_many`)."""

    flow_id: int
    processor_key: ProcessorKey
    customer_key: CustomerKey
    status: str
    at: int
    run_id: int | None = None
    execution_id: str | None = None
    records: int | None = None
    quality: float | None = None
    entities: str | None = None
    total_expected: int | None = None
    completeness_pct: float | None = None
    reported_in: int | None = None


class PhaseLogRow(NamedTuple):
    """A phase that ended (batch of `phase_log_put_many`)."""

    customer_key: CustomerKey
    pipeline_key: PipelineKey
    flow_id: int
    phase: str
    partition: str
    mode: str
    status: str
    started_at: int | None
    completed_at: int
    duration_us: int | None
    expected: int
    completed: int
    processors_completed: str
    processors_missing: str
    completeness: float
    quality: float | None
    dependencies_met: bool
    dependency_issues: str
    correlation_id: str
    config_id: int


class CheckLogRow(NamedTuple):
    """A check whose outcome changed (batch of `check_log_put_many`)."""

    customer_key: CustomerKey
    pipeline_key: PipelineKey
    flow_id: int
    phase: str
    processor: str
    partition: str
    mode: str
    required_table: str
    kind: str
    partition_spec: str
    expected_rows: int | None
    found_rows: int | None
    completeness: float
    quality: float
    freshness_seconds: int | None
    check_status: str
    issues: str
    verdict: str
    correlation_id: str
    probed_us: int | None = None
    scanned_bytes: int | None = None


class WaitingFilter(NamedTuple):
    """Filter of open flows whose waiting or blocked gates are evaluated again."""

    pipeline: int
    customer: int | None = None
    partition: str | None = None
    flow_id: int | None = None
    phase: str | None = None
