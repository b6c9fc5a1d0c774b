"""Records of recovery: blast radius, backfills, replays, cancelling by filter."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from penstock.core.records.record import JsonObject, Meta, Record, Seconds, Time, field
from penstock.flows.records import Flow
from penstock.recovery.fates import BackfillState, PartitionState
from penstock.schedules.records import ConfigChange

__all__ = [
    "Backfill",
    "BackfillPartition",
    "BackfillRequest",
    "BackfillStart",
    "BlastRadius",
    "CancelRequest",
    "CancelStep",
    "ConfigEdit",
    "ConfigEditStep",
    "EditedConfig",
    "Effect",
    "FlowReplay",
    "RefusedEdit",
    "ReplayedFlow",
    "SlowProcessor",
]

_Name: TypeAlias = Annotated[str, Meta(max_length=200)]
_Partition: TypeAlias = Annotated[str, Meta(max_length=500)]
_Reason: TypeAlias = Annotated[str, Meta(max_length=500)]


class Effect(Record):
    """One kind of effect that an action has."""

    kind: Literal[
        "starts", "overwrites", "skips", "supersedes", "cancels", "changes", "refuses", "limits",
        "slo", "duration", "undo",
    ]  # fmt: skip
    """Kind of effect, such as runs that start or data that is overwritten."""
    text: str
    """The effect as a sentence."""
    count: Annotated[int, Meta(ge=0)] | None = None
    """Number of affected items; null if nothing is counted."""
    names: list[str] = field(default_factory=list)
    """Affected ids, tables or partitions: the first 20."""


class BlastRadius(Record):
    """The blast radius of an action: the same in a dry run and in its result."""

    text: str
    """The whole effect as one sentence."""
    effects: list[Effect]
    """Runs that start, data that is overwritten, and the limits and service levels concerned."""
    command: str
    """Command that performs the action."""
    flows: int
    """Number of flows that are opened or continued."""
    runs: int
    """Number of runs that these flows start, excluding retries and the items of processors that
    fan out.
    """
    tables: list[str]
    """Tables that are written again, as their processors declare."""
    limits: list[str]
    """Shared limits that its runs need."""
    expected: Seconds | None = field(name="expected_seconds")
    """Probable duration, from the recorded durations of its phases; null if none are recorded."""
    expected_p90: Seconds | None = field(name="expected_p90_seconds")
    """90th percentile of that duration; null if none are recorded."""


class BackfillRequest(Record):
    """A range of partitions to process."""

    pipeline: Annotated[str, Meta(examples=["nba"])] = field(name="pipeline_template")
    """Registered name of a pipeline with phases."""
    first: _Partition | None = field(name="from", default=None)
    """First partition of the range, such as `2025-01-01`."""
    last: _Partition | None = field(name="to", default=None)
    """Last partition of the range, inclusive."""
    partitions: Annotated[list[_Partition], Meta(max_length=10_000)] = field(default_factory=list)
    """Partitions to process instead of a range, in this order."""
    customer: str | None = field(name="customer_id", default=None)
    """Customer that the request concerns; `default` when omitted."""
    config: str | None = field(name="config_id", default=None)
    """Config that the flows belong to. Default: the customer's only active config of the pipeline;
    required if there are several."""
    mode: _Name | None = None
    """Mode of the flows; `backfill` when omitted."""
    phases: Annotated[list[_Name], Meta(max_length=100)] = field(default_factory=list)
    """Phases to start with; earlier ones are inherited. Default: the entry phases."""
    no_downstream: bool = False
    """Do not start later phases."""
    parallelism: Annotated[int, Meta(ge=1, le=1_000)] = 4
    """Number of partitions in progress at a time."""
    order: Literal["oldest", "newest"] = "oldest"
    """Which partition of the range starts first."""
    existing: Literal["incomplete", "missing", "all"] = "incomplete"
    """Partitions to process: those that have not completed, those never started, or all.
    A partition in progress is always skipped."""
    one_pass: bool = False
    """Open a single flow for the whole range, whose partition is `FROM..TO`. Its gates count the
    rows of the range, and its processors read `run.partition_range`."""
    failures_max: Annotated[int, Meta(ge=1)] | None = None
    """Number of failed partitions after which the backfill is paused; null for no maximum."""
    parameters: JsonObject | None = None
    """Parameters passed to the processors, as a JSON object."""
    priority: Annotated[int, Meta(ge=1, le=10)] = field(name="execution_priority", default=3)
    """Priority from 1 to 10; runs with 10 are claimed first. Scheduled work has 5."""
    reason: _Reason = ""
    """Reason for the action, stored with its record."""
    is_dry_run: bool = field(name="dry_run", default=False)
    """Whether to return what would happen and change nothing."""


class Backfill(Record):
    """A range of partitions that is being processed, and its progress."""

    backfill_id: Annotated[str, Meta(examples=["bf_7h2kq0v3"])]
    """Id of the backfill (`bf_…`)."""
    customer: str = field(name="customer_id")
    """Customer that owns it."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    config_id: str | None
    """Config that its flows belong to; null if there is none."""
    mode: str
    """Mode of its flows."""
    first: str = field(name="from")
    """First partition."""
    last: str = field(name="to")
    """Last partition."""
    state: BackfillState
    """RUNNING, PAUSED, COMPLETE, FAILED or CANCELLED."""
    parallelism: int
    """Number of partitions in progress at a time."""
    order: Literal["oldest", "newest"]
    """Which partition of the range starts first."""
    existing: str
    """Partitions to process: those that have not completed, those never started, or all."""
    phases: list[str]
    """Phases that its flows start with; empty for the entry phases."""
    no_downstream: bool
    """Whether later phases are skipped."""
    one_pass: bool
    """Whether a single flow processes the whole range."""
    total: int
    """Number of partitions."""
    done: int
    """Number of partitions that have ended or were skipped."""
    counts: dict[str, int]
    """Number of partitions by state; states without partitions are omitted."""
    progress: float = field(name="progress_percentage")
    """Share of the partitions that are done, from 0 to 100."""
    eta_at: Time | None
    """Estimated end at the current pace; null until a partition has ended, and after the end."""
    reason: str
    """Reason given when it was started; empty if none was given."""
    opened_by: str
    """Name of the key, user or service that started it."""
    note: str | None
    """Reason for the pause, or the outcome; null otherwise."""
    correlation_id: str
    """Correlation id of its flows."""
    created_at: Time
    """Time at which it was created."""
    ended_at: Time | None
    """Time at which it ended; null while it is in progress or paused."""


class BackfillPartition(Record):
    """One partition of a backfill: its state, its flow and its times."""

    position: int
    """Position in the start order, counted from 1."""
    partition: str
    """Name of the partition."""
    state: PartitionState
    """PENDING, RUNNING, COMPLETE, DEGRADED, FAILED, CANCELLED or SKIPPED."""
    flow_id: str | None
    """Flow that processes it; null before it starts, and if it is skipped."""
    attempts: int
    """Number of flows that the backfill opened for it."""
    started_at: Time | None
    """Time at which its flow was opened; null until then."""
    ended_at: Time | None
    """Time at which its flow ended; null until then."""
    note: str | None
    """Why it was skipped or cancelled; null otherwise."""


class BackfillStart(Record):
    """A backfill that was started, or would be."""

    is_dry_run: bool = field(name="dry_run")
    """Whether this was a dry run, which changes nothing."""
    backfill: Backfill | None
    """The backfill; null for a dry run."""
    impact: BlastRadius
    """Effect of the action."""
    starts: list[str]
    """Partitions that are processed, in order, at most 1,000."""
    skipped: list[str]
    """Partitions that are skipped, each with the reason, at most 1,000."""


class FlowReplay(Record):
    """A part of a flow to run again, in a new generation."""

    pipeline: Annotated[str, Meta(examples=["nba"])] = field(name="pipeline_template")
    """Registered name of a pipeline with phases."""
    partition: _Partition
    """Partition of the data, such as `2025-12-31`."""
    phase: _Name | None = field(name="from_phase", default=None)
    """Phase to start with; earlier phases are inherited. Default: the entry phases, or the phases
    of `processors`."""
    processors: Annotated[list[_Name], Meta(max_length=100)] = field(default_factory=list)
    """Processors to run, by name or as `phase.name`; the others in their phases keep their
    completions. Default: all.
    """
    entities: dict[str, list[str | int]] | None = None
    """Entities that incremental processors receive instead of everything: ids by kind."""
    customer: str | None = field(name="customer_id", default=None)
    """Customer that the request concerns; `default` when omitted."""
    config: str | None = field(name="config_id", default=None)
    """Config that the flow belongs to; required if several are active."""
    mode: _Name | None = None
    """Mode of the flow. Default: the mode of the partition's newest flow."""
    force: bool = False
    """Repeat completed work, and supersede work in progress."""
    no_downstream: bool = False
    """Do not start later phases."""
    parameters: JsonObject | None = None
    """Parameters passed to the processors; those of the config when omitted."""
    priority: Annotated[int, Meta(ge=1, le=10)] = field(name="execution_priority", default=5)
    """Priority from 1 to 10; runs with 10 are claimed first."""
    reason: _Reason = ""
    """Reason for the action, stored with its record."""
    is_dry_run: bool = field(name="dry_run", default=False)
    """Whether to return what would happen and change nothing."""


class ReplayedFlow(Record):
    """The flow that a replay opened, or would open."""

    is_dry_run: bool = field(name="dry_run")
    """Whether this was a dry run, which changes nothing."""
    impact: BlastRadius
    """Effect of the action."""
    flow: Flow | None
    """The new generation; null for a dry run."""
    run_ids: list[str]
    """Ids of the runs that were created immediately."""
    superseded: list[str]
    """Older open flows of the same partition and mode, which start no more phases."""


class CancelRequest(Record):
    """Open flows and single runs to cancel; at least one filter is required."""

    customer: _Name | None = field(name="customer_id", default=None)
    """Cancel only work of this customer."""
    pipeline: _Name | None = field(name="pipeline_template", default=None)
    """Cancel only work of this pipeline."""
    first: _Partition | None = field(name="from", default=None)
    """Cancel only work of this partition and later ones, in alphabetical order."""
    last: _Partition | None = field(name="to", default=None)
    """Cancel only work of this partition and earlier ones, in alphabetical order."""
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    """Maximum number of flows, and of single runs, that one step cancels."""
    reason: _Reason = ""
    """Reason for the action, stored with its record."""
    is_dry_run: bool = field(name="dry_run", default=False)
    """Whether to return what would happen and change nothing."""


class CancelStep(Record):
    """One step of cancelling by filter; repeat it until nothing is left."""

    is_dry_run: bool = field(name="dry_run")
    """Whether this was a dry run, which changes nothing."""
    impact: BlastRadius
    """Combined effect of all steps."""
    flows: list[str]
    """Flows that this step cancelled."""
    runs: list[str]
    """Single runs that this step cancelled or asked to stop."""
    stopped: int
    """Number of runs of these flows that were cancelled or asked to stop."""
    ended: int
    """Number of matching flows and single runs that ended by themselves during this step."""
    left: int
    """Number of flows and single runs that match and are not cancelled yet."""


class SlowProcessor(Record):
    """A processor and how long its successful runs took."""

    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    phase: str
    """Name of the phase within the pipeline."""
    processor: str = field(name="processor_name")
    """Name of the processor within its phase."""
    runs: int
    """Number of runs that the durations are based on."""
    p50: Seconds = field(name="p50_seconds")
    """Median duration in seconds."""
    p95: Seconds = field(name="p95_seconds")
    """95th percentile of the duration in seconds."""
    longest: Seconds = field(name="max_seconds")
    """Longest duration in seconds."""
    total: Seconds = field(name="total_seconds")
    """Sum of the durations in seconds."""


class ConfigEdit(Record):
    """A change to all configs that match; at least one filter is required."""

    change: ConfigChange
    """Fields to change; omitted ones keep their values."""
    customer: _Name | None = field(name="customer_id", default=None)
    """Change only configs of this customer."""
    pipeline: _Name | None = field(name="pipeline_template", default=None)
    """Change only configs of this pipeline."""
    cron: _Name | None = field(name="current_cron", default=None)
    """Change only configs with this cron expression."""
    is_active: bool | None = None
    """Change only active, or only inactive, configs."""
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    """Maximum number of configs that one step reads."""
    after: Annotated[str, Meta(max_length=64)] | None = None
    """`next_after` of the previous step."""
    reason: _Reason = ""
    """Reason for the change, recorded in the audit trail."""
    is_dry_run: bool = field(name="dry_run", default=False)
    """Whether to return what would happen and change nothing."""


class EditedConfig(Record):
    """A config that was changed, or would be."""

    config_id: str
    """Id of the config (`cfg_…`)."""
    customer: str = field(name="customer_id")
    """Customer that owns it."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    before: JsonObject
    """Changed fields with their old values."""
    after: JsonObject
    """Changed fields with their new values."""


class RefusedEdit(Record):
    """A config to which the change cannot be applied."""

    config_id: str
    """Id of the config (`cfg_…`)."""
    why: str
    """Reason why the change cannot be applied, with the fix."""


class ConfigEditStep(Record):
    """One step of changing configs by filter; repeat it with `next_after` until that is null."""

    is_dry_run: bool = field(name="dry_run")
    """Whether this was a dry run, which changes nothing."""
    impact: BlastRadius
    """Effect of this step."""
    matched: int
    """Number of configs that match the filter, in all steps."""
    changed: list[EditedConfig]
    """Configs that this step changed."""
    unchanged: int
    """Number of configs of this step that already have these values."""
    refused: list[RefusedEdit]
    """Configs of this step to which the change cannot be applied."""
    next_after: str | None
    """Value of `after` for the next step; null after the last one."""
