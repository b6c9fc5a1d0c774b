"""Records of flows: the flow and its parts, requests to open one, reports of completed work."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from penstock.audit.records import JournalEntry
from penstock.core.records.record import JsonObject, Meta, Record, Seconds, Time, field
from penstock.flows.cascade import CompletionStatus, FlowState
from penstock.flows.gates.records import GateDecision
from penstock.flows.gates.verdict import Verdict
from penstock.flows.phases import PhaseState

__all__ = [
    "Completeness",
    "CompletionReceipt",
    "CompletionReport",
    "DependencyCheck",
    "Flow",
    "FlowCancellation",
    "FlowCompletion",
    "FlowDetail",
    "FlowGrid",
    "FlowPhase",
    "FlowPreview",
    "FlowRef",
    "FlowRequest",
    "FlowTrigger",
    "GridFlow",
    "GridMode",
    "PhaseMark",
    "PhasePreview",
    "PhaseTrigger",
]

HeldUpState: TypeAlias = Literal["WAITING", "BLOCKED"]
Count = Annotated[int, Meta(ge=0)]
RecordCount = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class FlowRef(Record):
    """Identity and state of a flow."""

    flow_id: Annotated[str, Meta(examples=["flow_7h2kq0v3"])]
    """Id of the flow (`flow_…`)."""
    customer: str = field(name="customer_id")
    """Customer that owns the flow."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    partition: str
    """Partition of the data, such as `2025-12-31`."""
    mode: str
    """Operating mode; it sets the thresholds of the gates."""
    generation: int
    """Number of the flow among those of its partition and mode, from 1."""
    state: FlowState
    """OPEN, COMPLETE, DEGRADED, FAILED or CANCELLED."""
    correlation_id: str
    """Correlation id shared by everything that the same cause started."""
    created_at: Time
    """Time at which the flow was opened."""
    ended_at: Time | None
    """Time at which the flow ended; null while it is open."""
    deadline_at: Time | None
    """Time at which the flow fails unless it has ended; null while it waits for the flow before it
    (overlap `queue`, catch-up `all`): its deadline counts from when that has ended."""


BY_GENERATION: Final = "superseded by a new generation that"
BY_REPLAY: Final = "superseded by a replay that"
"""How the reason of a flow begins that was cancelled because a newer generation was opened."""


class PhaseMark(Record):
    """The state of a phase of a flow, without its evidence."""

    phase: str
    """Name of the phase within the pipeline."""
    state: PhaseState
    """PENDING, WAITING, BLOCKED, IN_PROGRESS, COMPLETE, DEGRADED, FAILED or SKIPPED."""
    verdict: Verdict | None
    """Last verdict of its gate; null if it has not been evaluated."""
    is_degraded: bool
    """Whether it started with incomplete data."""
    since: Time
    """Time at which it entered its state."""
    started_at: Time | None
    """Time at which its runs were created; null until then."""
    ended_at: Time | None
    """Time at which it ended; null until then."""


class Flow(FlowRef):
    """One execution of a pipeline for a partition."""

    phase_state: HeldUpState | None
    """BLOCKED or WAITING if a phase of the open flow is; null otherwise."""
    is_degraded: bool
    """Whether the flow ended with incomplete data."""
    missing: list[str]
    """Tables and processors that were missing when the flow proceeded."""
    trigger_source: str
    """What triggered the work, such as `scheduler` or `manual`."""
    opened_by: str
    """Name of the key, user or service that opened it."""
    config_id: str | None
    """Config that the flow belongs to; null if the customer had none of this pipeline."""
    parent_flow_id: str | None
    """Flow of the previous generation whose phases were reused; null if there is none."""
    start_phase: str | None
    """Phase that the flow started with; null if it started at the entry phases."""
    slo_at: Time | None = None
    """Time by which the open flow should end, by its service level or else its deadline."""
    eta_p50_at: Time | None = None
    """Median estimate of when the open flow will end; null if there are too few
    earlier flows, and in lists unless `risk` is given."""
    eta_p90_at: Time | None = None
    """90th percentile of the estimated end of the open flow; null in the same cases."""
    slo_miss_probability: float | None = None
    """Probability that the open flow ends after `slo_at`, from 0 to 1; null in the same cases."""
    phases: list[PhaseMark] | None = None
    """States of its phases in the order of the pipeline; null unless `phases` is given."""
    phases_expected: int | None = None
    """Number of phases that the flow runs; null in lists unless `phases` or `risk` is given."""
    phases_completed: int | None = None
    """Number of those that completed, degraded or not; null in the same cases."""
    progress_percentage: float | None = None
    """Share of the expected phases that completed, 0 to 100; null in the same cases."""
    cancel_reason: str | None = None
    """Recorded reason of a cancelled flow; it begins with `superseded by a new generation that` or
    `superseded by a replay that` if a newer generation was opened. Null for other flows, without a
    reason, and once the journal no longer has it."""

    @property
    def is_superseded(self) -> bool:
        """Whether it was cancelled because a newer generation was opened."""
        return (self.cancel_reason or "").startswith((BY_GENERATION, BY_REPLAY))


class GridFlow(Record):
    """The newest flow of a partition in a mode."""

    partition: str
    """Partition of the data, such as `2025-12-31`."""
    mode: str
    """Operating mode of the flow."""
    flow_id: str
    """Id of the newest flow (`flow_…`)."""
    is_kept: bool
    """Whether the flow can still be read; the log of its phases is kept longer."""
    generation: int
    """Number of the newest generation that is known, from 1."""
    state: FlowState
    """OPEN, COMPLETE, DEGRADED, FAILED or CANCELLED."""
    phase_state: HeldUpState | None
    """BLOCKED or WAITING if a phase of the open flow is; null otherwise."""
    created_at: Time
    """Time at which the flow was opened; its first phase's start once only the log is kept."""
    ended_at: Time | None
    """Time at which it ended; null while it is open."""
    duration: Seconds | None = field(name="duration_seconds")
    """Time from its opening to its end in seconds; null while it is open."""
    phases: list[PhaseMark]
    """States of its phases in the order of the pipeline."""


class GridMode(Record):
    """The columns of a mode in the grid."""

    mode: str
    """Name of the mode."""
    slo: Seconds | None = field(name="slo_seconds")
    """Seconds within which a flow of the mode should end; null if it has no service level."""
    phases: list[str]
    """Phases that flows of the mode run, in the order of the pipeline."""


class FlowGrid(Record):
    """Partitions and phases of a pipeline, with the state of each."""

    customer: str = field(name="customer_id")
    """Customer that owns the flows."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    as_of: Time
    """Time at which the data was read, by the database clock."""
    partitions: list[str]
    """Partitions, newest first; daily partitions have no gaps, even where there are no flows."""
    modes: list[GridMode]
    """Modes of the flows, with the phases of each."""
    flows: list[GridFlow]
    """The newest flow of each partition and mode, in the order of `partitions`."""
    has_more: bool
    """Whether older partitions exist."""


class FlowPhase(Record):
    """A phase of a flow, or the gate of one of its processors."""

    phase: str
    """Name of the phase within the pipeline."""
    processor: str | None
    """Processor that the gate belongs to; null for the gate of a whole phase."""
    state: PhaseState
    """PENDING, WAITING, BLOCKED, IN_PROGRESS, COMPLETE, DEGRADED, FAILED or SKIPPED."""
    since: Time
    """Time at which it entered its state."""
    started_at: Time | None
    """Time at which its runs were created; null until then."""
    ended_at: Time | None
    """Time at which it ended; null until then."""
    next_probe_at: Time | None = field(name="next_look_at")
    """Time of the next evaluation; null if none is planned."""
    waiting_since: Time | None
    """Time of the first WAIT verdict of its gate; null if there was none."""
    tries: int
    """Number of evaluations that found too little history."""
    is_degraded: bool
    """Whether it started with incomplete data."""
    verdict: Verdict | None
    """Last verdict of its gate; null if it has not been evaluated."""
    missing: list[str]
    """Tables that are absent or incomplete."""
    warnings: list[str]
    """Sentences that name data that is missing, late or of low quality."""


class FlowCompletion(Record):
    """The reported completion of a processor."""

    phase: str
    """Name of the phase within the pipeline."""
    processor: str
    """Name of the processor within its phase."""
    status: CompletionStatus
    """success, partial or failed."""
    at: Time
    """Time at which the completion was recorded."""
    run_id: str | None
    """Id of the run; null if Penstock did not run the processor."""
    execution_id: str | None
    """Execution id given by an external system; null for runs of Penstock."""
    records: int | None = field(name="records_processed")
    """Number of records that the processor reported."""
    quality: float | None = field(name="quality_score")
    """Quality that the processor reported, from 0 to 1; null if it reported none."""
    total_expected: int | None
    """Number of records that the processor expected; null if it did not report it."""
    completeness_pct: float | None
    """Share of the expected records in percent, as reported or computed; null if unknown."""
    entities: Any = field(name="entities_changed")
    """Ids of changed entities, grouped by kind; null if none were reported, or more than 1,000."""
    entities_total: dict[str, int] | None
    """Number of reported ids by kind; null if none were reported."""
    everything_changed: str | None
    """Why everything may have changed; null if the ids are known or nothing was reported."""


class PhaseTrigger(Record):
    """A trigger that started a phase."""

    phase: str
    """Name of the phase within the pipeline."""
    processor: str | None
    """Processor that the gate belongs to; null for the gate of a whole phase."""
    at: Time
    """Time at which the phase was triggered."""
    verdict: Verdict
    """PROCEED or PROCEED_DEGRADED."""
    trigger_source: str
    """What triggered the work, such as `scheduler` or `manual`."""
    is_observed: bool
    """Whether the trigger was only recorded and created no runs."""
    runs: int
    """Number of runs that it created."""


class ProcessorInput(Record):
    """The input of an incremental processor in a flow."""

    phase: str
    """Name of the phase within the pipeline."""
    processor: str
    """Name of the processor within its phase."""
    everything: bool
    """Whether it processes everything."""
    reason: str | None
    """Why it processes everything; null if it receives the changes since its last success."""
    entities_total: dict[str, int]
    """Number of changed entities by kind; empty if it processes everything."""
    partitions: list[str]
    """Partitions of the flows that reported the changes."""


class FlowDetail(Record):
    """A flow with its phases, completions, triggers, decisions and journal."""

    flow: Flow
    """Identity, state and origin of the flow."""
    phases: list[FlowPhase]
    """Phases of the flow and gates of their processors."""
    completions: list[FlowCompletion]
    """Completions that its processors reported."""
    triggers: list[PhaseTrigger]
    """Triggers that started its phases."""
    decisions: list[GateDecision]
    """Decisions of its gates, newest first."""
    journal: list[JournalEntry]
    """Journal of the flow's state changes and actions."""
    inputs: list[ProcessorInput] = field(default_factory=list)
    """Inputs of its incremental processors; empty before they start."""


class FlowRequest(Record):
    """A flow to open, or a part of one."""

    pipeline: Annotated[str, Meta(examples=["nba"])] = field(name="pipeline_template")
    """Registered name of a pipeline with phases."""
    customer: str | None = field(name="customer_id", default=None)
    """Customer that the request concerns; `default` when omitted."""
    partition: str | None = None
    """Partition of the data; the mode's current partition when omitted."""
    mode: str | None = None
    """Mode of the flow. Default: the mode of the partition's newest flow, else `manual`."""
    phases: Annotated[list[str], Meta(max_length=100)] = field(default_factory=list)
    """Phases to start with, in a new generation; earlier phases are inherited."""
    backfill: bool = False
    """Whether past data is processed; the mode then defaults to `backfill`."""
    config: str | None = field(name="config_id", default=None)
    """Config that the flow belongs to. Default: the customer's only active config of the pipeline;
    required if there are several."""
    force: bool = False
    """Open a new generation even if the partition has a flow."""
    keep_older: bool = False
    """Keep older open generations running. By default they are superseded: no more runs start."""
    no_downstream: bool = False
    """Do not start later phases."""
    parameters: JsonObject | None = None
    """Parameters passed to the processor, as a JSON object."""
    priority: int = field(name="execution_priority", default=5)
    """Priority from 1 to 10; runs with 10 are claimed first."""
    correlation_id: str | None = None
    """Correlation id of the new work; reuse an existing one to continue its trace."""


class FlowTrigger(Record):
    """The flow that a trigger opened or found."""

    flow: Flow
    """Flow that was opened, or that existed already."""
    is_new: bool
    """Whether this request opened the flow."""
    run_ids: list[str]
    """Ids of the runs that were created immediately."""
    superseded: list[str] = field(default_factory=list)
    """Older open flows of the same partition and mode, which start no more phases."""


class PhasePreview(Record):
    """What a trigger would do with one phase."""

    phase: str
    """Name of the phase within the pipeline."""
    fate: Literal["first", "follows", "inherited", "skipped"]
    """Whether it is evaluated first, started later, inherited from the previous generation or
    skipped."""
    processors: list[str]
    """Processors whose completion the phase expects."""


class FlowPreview(Record):
    """What a trigger would do."""

    customer: str = field(name="customer_id")
    """Customer that would own the flow."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    partition: str
    """Partition of the data, such as `2025-12-31`."""
    mode: str
    """Mode that the flow would run in."""
    is_new: bool
    """Whether a flow would be opened."""
    generation: int
    """Generation that the flow would have."""
    flow_id: str | None
    """Id of the existing flow; null if there is none."""
    config_id: str | None = None
    """Config that the flow would belong to; null if there is none."""
    superseded: list[str] = field(default_factory=list)
    """Older open flows that would start no more phases."""
    text: str
    """The preview as a sentence."""
    phases: list[PhasePreview]
    """Preview of each phase; empty if no flow would be opened."""


class FlowCancellation(Record):
    """The effect of a cancellation."""

    flow_id: str
    """Id of the flow (`flow_…`)."""
    runs: int
    """Number of runs that were cancelled or asked to stop."""


class Completeness(Record, omit_defaults=True):
    """Share of the expected work that was done."""

    total_expected: Count | None = None
    """Number of records that were expected."""
    total_processed: RecordCount | None = None
    """Number of records that were processed."""
    completeness_pct: Annotated[float, Meta(ge=0, le=100)] | None = None
    """Share of the expected records in percent, 0 to 100."""
    quality_score: Annotated[float, Meta(ge=0, le=1)] | None = None
    """Quality of the result, from 0 (worst) to 1 (best)."""


class DependencyCheck(Record, omit_defaults=True):
    """A dependency as the processor found it; stored with the report."""

    table: Annotated[str, Meta(max_length=500)]
    """Name of the table that was checked."""
    required_rows: Count | None = None
    """Number of rows that the processor needed."""
    found_rows: Count | None = None
    """Number of rows that the processor found."""
    status: Annotated[str, Meta(max_length=64)] | None = None
    """Result of the check, such as COMPLETE or DEGRADED."""


class CompletionReport(Record):
    """The completion of a processor that Penstock does not run."""

    pipeline: Annotated[str, Meta(examples=["nba"])] = field(name="pipeline_template")
    """Registered name of the pipeline."""
    customer: str | None = field(name="customer_id", default=None)
    """Customer that the request concerns; `default` when omitted."""
    processor: Annotated[str, Meta(min_length=1, max_length=200)] = field(name="processor_name")
    """Name of the processor within its phase."""
    phase: str | None = None
    """Phase of the processor; required if the name occurs in several phases."""
    partition: Annotated[str, Meta(max_length=500)] | None = None
    """Partition of the data, such as `2025-12-31`."""
    game_date: Annotated[str, Meta(max_length=500)] | None = None
    """Alternative name of `partition`."""
    status: Literal["success", "partial", "failed"] = "success"
    """Outcome; `partial` counts as completed."""
    correlation_id: str | None = None
    """Correlation id of the report; reuse an existing one to continue its trace."""
    execution_id: str | None = None
    """Distinguishes a repeated report from a second execution, however late. Without it, an
    identical report counts as a repeat while its flow is open, and for ten minutes after it if the
    flow ended COMPLETE or DEGRADED and partitions may not repeat."""
    mode: str | None = field(name="processing_mode", default=None)
    """Mode of the flow; the open flow's mode when omitted."""
    trigger_source: Annotated[str, Meta(max_length=64)] | None = None
    """What triggered the execution, as free text."""
    completeness: Completeness | None = None
    """Share of the expected work that was done."""
    dependencies_met: bool | None = None
    """Whether all dependencies were available."""
    dependency_checks: Annotated[list[DependencyCheck], Meta(max_length=1_000)] = field(
        default_factory=list
    )
    """Dependencies as the processor found them."""
    entities: dict[str, list[str | int]] | None = field(name="entities_changed", default=None)
    """Ids of changed entities, grouped by kind; more than 10,000 count as everything. An empty
    object means that nothing changed; when omitted, the changes are unknown."""
    everything_changed: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    """Reason why everything may have changed, such as `full reload`; replaces the ids."""
    records: RecordCount | None = field(name="records_processed", default=None)
    """Number of records that the processor reported."""
    metadata: JsonObject | None = None
    """Additional data that is stored with the report."""


class CompletionReceipt(Record):
    """The outcome of a completion report."""

    outcome: Literal["taken", "opened", "known", "dead"]
    """Accepted by an open flow, opened a new flow, already known, or stored as a dead letter
    because the pipeline has no such processor."""
    flow_id: str | None
    """Flow that the report belongs to; null for a dead letter."""
    dead_letter_id: str | None
    """Id of the dead letter; null unless the report became one."""
