"""Records of external workers: claims, heartbeats, completions and failures."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from penstock.core.records.record import JsonObject, Meta, Minutes, Record, Time, field
from penstock.runs.action_records import ARTIFACTS_MAX, NewArtifact, RunActions, RunTrigger

WorkerName = Annotated[
    str,
    Meta(
        description="Name that identifies the worker, at most 255 characters.",
        examples=["worker-pod-abc123"],
        max_length=255,
    ),
]
Count = Annotated[int, Meta(ge=0)]
Artifacts = Annotated[list[NewArtifact], Meta(max_length=ARTIFACTS_MAX)]
ClaimDuration = Annotated[
    float,
    Meta(description="Seconds until the claim expires unless it is extended.", ge=10, le=3600),
]


class ClaimRequest(Record):
    """A request to claim runs."""

    worker_id: WorkerName
    """Name that identifies the worker, at most 255 characters."""
    max_claims: Annotated[int, Meta(ge=1, le=1000)] = 1
    """Maximum number of runs to claim."""
    claim_duration_seconds: ClaimDuration = 300
    """Seconds until the claim expires unless it is extended."""
    wait_seconds: Annotated[float, Meta(ge=0, le=60)] = 0
    """Seconds to wait for a run if none is ready."""
    pool: Annotated[str, Meta(max_length=63)] = "external"
    """Worker pool to claim runs from."""
    processors: Annotated[list[str], Meta(max_length=1000)] = field(default_factory=list)
    """Claim only runs of these; each is `pipeline` or `pipeline/phase/processor`."""


class ChangedInput(Record):
    """The input of an incremental processor."""

    everything: bool
    """Whether everything must be processed; see `reason`."""
    reason: str | None
    """Why everything must be processed; null if `entities` has all changes."""
    entities: dict[str, list[str | int]]
    """Ids that changed since the processor last succeeded, by kind; empty if everything must be
    processed.
    """
    partitions: list[str]
    """Partitions of the flows that reported the changes."""


class ClaimedRun(Record):
    """A run that a worker has claimed."""

    run_id: Annotated[str, Meta(examples=["run_7h2kq0v3"])]
    """Id of the run (`run_…`)."""
    config_id: str | None
    """Config that started the run; null for other triggers."""
    customer: str = field(name="customer_id")
    """Customer that owns the run."""
    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    phase: str
    """Name of the phase within the pipeline."""
    processor: str
    """Name of the processor within its phase."""
    partition: str | None
    """Partition of the data, such as `2025-12-31`; null if it has none."""
    mode: str | None
    """Mode of the run's flow; null if there is no flow."""
    scheduled_time: Time
    """Time at which this attempt was due."""
    claim_expiry_time: Time
    """Time at which the claim expires unless a heartbeat extends it."""
    fencing_token: int
    """Fencing token of the claim; send it with every later call for the run."""
    priority: int = field(name="execution_priority")
    """Priority from 1 to 10; runs with 10 are claimed first."""
    attempt: int = field(name="attempt_number")
    """Number of this attempt, counted from 1."""
    max_execution_duration: Minutes = field(name="max_execution_duration_minutes")
    """Minutes after which a run ends in state TIMEOUT."""
    parameters: JsonObject | None
    """Parameters passed to the processor, as a JSON object."""
    correlation_id: str | None
    """Correlation id shared by everything that the same cause started."""
    occurrence_time: Time = field(name="slot")
    """Scheduled time of its occurrence; retries keep it."""
    flow_id: str | None
    """Flow that the run belongs to; null if it belongs to none."""
    verdict: str | None
    """Verdict of the run's gate: PROCEED or PROCEED_DEGRADED; null if there is no flow."""
    is_degraded: bool = field(name="degraded")
    """Whether the run was started with incomplete data; see `missing`."""
    missing: list[str]
    """Tables and processors that were missing when this phase, or one before it, started."""
    item_key: str | None
    """Key of the run's item; null if its processor does not run per item."""
    item: Any
    """The item, as listed by the source of the processor's items; null if there is none."""
    changed: ChangedInput | None = None
    """Input of the processor; null if it is not declared incremental."""


class ClaimedRuns(Record):
    """The runs that were claimed."""

    claimed_runs: list[ClaimedRun]
    """Claimed runs; empty if none is ready."""


class ExecutionContext(Record):
    """Where a run is executed."""

    pod_name: Annotated[str, Meta(max_length=255)] | None = None
    """Name of the pod or machine."""
    region: Annotated[str, Meta(max_length=255)] | None = None
    """Region of the pod or machine."""


class RunHolder(Record):
    """The worker that holds a run."""

    worker_id: Annotated[str, Meta(max_length=255)] | None = None
    """Name that identifies the worker; the header X-Worker-Id is equivalent."""
    fencing_token: Count | None = None
    """Fencing token of the claim; when omitted, the caller must be the one that claimed the run."""


class RunStart(RunHolder):
    """The start of a claimed run."""

    execution_context: ExecutionContext | None = None
    """Where the run is executed, for display."""


class RunHeartbeat(RunHolder):
    """A heartbeat of a run, with its progress; omitted values keep their last reported value."""

    current_state: Literal["INITIALIZING", "RUNNING", "FINALIZING"] = "RUNNING"
    """Coarse state of the execution."""
    current_stage: Annotated[str, Meta(max_length=255)] | None = None
    """Free text that names the current step, such as `transforming`."""
    progress_percentage: Annotated[float, Meta(ge=0, le=100)] | None = None
    """Progress in percent, from 0 to 100."""
    records_processed: Count | None = None
    """Alternative name of `records_loaded`."""
    records_extracted: Count | None = None
    """Number of records read from the source."""
    records_transformed: Count | None = None
    """Number of records transformed."""
    records_loaded: Count | None = None
    """Number of records written to the target."""
    bytes_processed: Count | None = None
    """Number of bytes processed."""
    estimated_completion_time: Annotated[str, Meta(max_length=40)] | None = None
    """Expected end as an ISO 8601 time."""


class RunClaim(Record):
    """The state of a held run, and whether to continue."""

    run_id: str
    """Id of the run (`run_…`)."""
    state: str
    """Either CLAIMED or RUNNING."""
    fencing_token: int
    """Fencing token of the claim; send it with every later call for the run."""
    cancel_requested: bool
    """Whether the worker must stop and confirm through `cancelled`."""
    claim_expiry_time: Time
    """Time before which the next heartbeat must arrive."""
    started_at: Time | None = field(name="execution_start_time")
    """Time at which execution started; null until then."""
    timeout_at: Time | None
    """Time at which the run times out; null before it starts."""


class RunCompletion(RunHolder):
    """The completion of a run, with its result."""

    status: Literal["SUCCESS", "PARTIAL_SUCCESS"] = "SUCCESS"
    """Whether all or only part of the work succeeded."""
    result_summary: JsonObject | None = None
    """JSON object that is stored with the run."""
    records_processed: Count | None = None
    """Number of records that the processor reported."""
    bytes_processed: Count | None = None
    """Number of bytes processed."""
    stages: dict[str, float] | None = None
    """Duration in seconds by stage, such as `extract`."""
    actions: RunActions | None = None
    """Messages, runs and flows to create in the transaction that completes the run."""
    artifacts: Artifacts = field(default_factory=list)
    """Artifacts that the run stored elsewhere."""


class RunFailure(RunHolder):
    """Report of an external worker that its run failed."""

    error_type: Annotated[str, Meta(min_length=1, max_length=64)]
    """RATE_LIMIT_EXCEEDED, TRANSIENT_NETWORK, AUTHENTICATION_FAILED or any other name."""
    error_details: JsonObject | None = None
    """Details of the error; secrets are redacted."""
    should_retry: bool | None = None
    """Force or forbid a retry; the error type decides when omitted."""
    retry_after_seconds: Annotated[float, Meta(ge=0, le=2_592_000)] | None = None
    """Minimum seconds until the next attempt."""
    artifacts: Artifacts = field(default_factory=list)
    """Artifacts that the run stored elsewhere."""


class RunStateReport(RunHolder):
    """The state that the next attempt of a run continues from."""

    state: JsonObject
    """State as a JSON object of at most 64 KB; it replaces the previously saved state."""


class NewLogEntry(Record):
    """An entry of a run's log."""

    message: Annotated[str, Meta(max_length=8_000, examples=["1,999,500 rows loaded"])]
    """Text of the entry; secrets are masked, and more than 2,000 characters are cut."""
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"
    """Level of the entry."""
    logger: Annotated[str, Meta(max_length=200)] = "worker"
    """Name of the logger."""
    at: Time | None = None
    """Time at which the entry was logged; the time of the request when omitted."""


class RunLogReport(RunHolder):
    """Entries to add to the log of a run."""

    entries: Annotated[list[NewLogEntry], Meta(min_length=1, max_length=1_000)] = field(
        default_factory=list
    )
    """Entries, oldest first; 1 to 1,000, with at most 250,000 characters in all."""


class RunLogReceipt(Record):
    """Receipt for entries of a run's log."""

    run_id: str
    """Id of the run (`run_…`)."""
    entries: int
    """Number of entries that were added."""


class RunWaitRequest(RunHolder):
    """A flow that a run waits for."""

    trigger: RunTrigger
    """Flow to open, or to find if it exists. Its `key` names the wait; without one there is one
    wait for each pipeline, partition and mode."""


class EndedRun(Record):
    """The result of ending a run."""

    run_id: str
    """Id of the run (`run_…`)."""
    state: str
    """Final state: COMPLETED, FAILED, TIMEOUT or CANCELLED."""
    status: str | None
    """SUCCESS, PARTIAL_SUCCESS, FAILURE or TIMEOUT; null if it did not finish."""
    retry_run_id: str | None
    """Id of the next attempt; null if there is none."""
    retry_after: Time | None
    """Time at which the next attempt is due; null if there is none."""
    is_dead: bool
    """Whether the run became a dead letter."""
    consecutive_failures: int
    """Consecutive failures of the run's config; three open an alert, five disable the config."""


class HeartbeatItem(RunHeartbeat):
    """One heartbeat of a batch."""

    run_id: Annotated[str, Meta(max_length=64)]
    """Id of the run (`run_…`)."""


class HeartbeatBatch(Record):
    """Heartbeats of several runs."""

    worker_id: Annotated[str, Meta(max_length=255)] | None = None
    """Name that identifies the worker; the header X-Worker-Id is equivalent."""
    heartbeats: Annotated[list[HeartbeatItem], Meta(min_length=1, max_length=1000)]
    """One heartbeat per run, at most 1,000."""


class CompletionEntry(RunCompletion):
    """One completion of a batch."""

    run_id: Annotated[str, Meta(max_length=64)]
    """Id of the run (`run_…`)."""


class CompletionBatch(Record):
    """Completions of several runs."""

    worker_id: Annotated[str, Meta(max_length=255)] | None = None
    """Name that identifies the worker; the header X-Worker-Id is equivalent."""
    completions: Annotated[list[CompletionEntry], Meta(min_length=1, max_length=1000)]
    """One completion per run, at most 1,000."""


class ItemProblem(Record):
    """The reason why one item of a batch was rejected."""

    status: int
    """HTTP status that a single request would have had."""
    code: str
    """Stable, machine-readable code of the problem."""
    detail: str
    """Explanation in one sentence."""


class HeartbeatOutcome(Record):
    """The outcome of one heartbeat."""

    run_id: str
    """Id of the run (`run_…`)."""
    held: RunClaim | None = field(name="pulse")
    """State of the run; null if the heartbeat was rejected."""
    problem: ItemProblem | None
    """Reason for the rejection; null if the heartbeat was accepted."""


class HeartbeatOutcomes(Record):
    """The outcomes of a batch of heartbeats."""

    outcomes: list[HeartbeatOutcome]
    """One outcome per item, in the order of the request."""


class CompletionOutcome(Record):
    """The outcome of one completion."""

    run_id: str
    """Id of the run (`run_…`)."""
    end: EndedRun | None
    """Result of ending the run; null if the completion was rejected."""
    problem: ItemProblem | None
    """Reason for the rejection; null if the completion was accepted."""


class CompletionOutcomes(Record):
    """The outcomes of a batch of completions."""

    outcomes: list[CompletionOutcome]
    """One outcome per item, in the order of the request."""
