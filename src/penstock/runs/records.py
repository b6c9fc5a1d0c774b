"""Records of runs: submissions, and runs with their attempts, journal and progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from penstock.audit.records import JournalEntry
from penstock.core.records.record import (
    DurationInput,
    JsonObject,
    Meta,
    Minutes,
    Record,
    Seconds,
    Time,
    field,
)
from penstock.runs.action_records import Artifact, RunAction, RunCheckpoint, SubFlow
from penstock.runs.states import RunState

__all__ = [
    "Cancellation",
    "LogEntry",
    "Run",
    "RunCounts",
    "RunDetail",
    "RunLogs",
    "RunProgress",
    "RunRef",
    "RunStateName",
    "Submission",
]

if TYPE_CHECKING:
    RunStateName: TypeAlias = (
        RunState
        | Literal[
            "PENDING",
            "CLAIMED",
            "RUNNING",
            "COMPLETED",
            "FAILED",
            "TIMEOUT",
            "CANCELLED",
            "EXPIRED",
        ]
    )
    """A state of a run, or its name."""
else:
    RunStateName = RunState

Waits: TypeAlias = Literal["ready", "later", "paused", "blocked", "limited", "gated", "suspended"]


class Submission(Record):
    """A run to create now or later."""

    pipeline: str = field(name="pipeline_template")
    """Registered name of the pipeline."""
    customer: str | None = field(name="customer_id", default=None)
    """Customer that the run belongs to; the client's customer or `default` when omitted."""
    processor: str | None = None
    """Processor to run; required if the pipeline has several."""
    partition: str | None = None
    """Partition of the data, such as `2025-12-31`."""
    parameters: JsonObject | None = None
    """Parameters passed to the processor, as a JSON object."""
    priority: int = field(name="execution_priority", default=5)
    """Priority from 1 to 10; runs with 10 are claimed first."""
    at: Time | None = field(name="scheduled_time", default=None)
    """Earliest start as an ISO 8601 time; now when omitted."""
    delay: DurationInput | None = None
    """Time to wait before the run may start, such as `10m`; an alternative to a time."""
    expires_after: DurationInput | None = None
    """Time after which a due run that was not started ends in state EXPIRED, such as `1h`; the
    processor's when omitted."""
    ordering_key: str | None = None
    """Runs with the same key are executed one after another."""
    correlation_id: str | None = None
    """Correlation id of the new work; reuse an existing one to continue its trace."""
    mode: str | None = field(name="processing_mode", default=None)
    """Mode in which the processor's gate decides; `manual` when omitted, which never waits. A
    processor without needs has no gate."""
    force: bool = False
    """Bypass the processor's gate; recorded in the journal and the audit log."""
    force_reason: Annotated[str, Meta(max_length=500)] = ""
    """Reason for bypassing the gate, stored in the journal; only with `force`."""


class RunRef(Record):
    """A reference to a created run."""

    run_id: str
    """Id of the run (`run_…`)."""


class Run(Record):
    """A run, active or ended."""

    run_id: str
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
    item_key: str | None
    """Key of the run's item; null if its processor does not run per item."""
    item: Any
    """The item, as listed by the source of the processor's items; null if there is none."""
    flow_id: str | None
    """Flow that the run belongs to; null if it belongs to none."""
    partition: str | None
    """Partition of the data, such as `2025-12-31`; null if it has none."""
    mode: str | None
    """Mode of the run's flow; null if there is no flow."""
    occurrence_time: Time = field(name="slot")
    """Scheduled time of its occurrence; retries keep it."""
    scheduled_time: Time
    """Time at which this attempt is due."""
    priority: int = field(name="execution_priority")
    """Priority from 1 to 10; runs with 10 are claimed first."""
    state: RunState
    """PENDING, CLAIMED, RUNNING, COMPLETED, FAILED, TIMEOUT, CANCELLED or EXPIRED."""
    state_updated_at: Time
    """Time at which it entered its state."""
    waits: Waits | None
    """Admission of a pending run; `suspended` means that it waits for a flow; null if it is not
    pending.
    """
    started_at: Time | None = field(name="execution_start_time")
    """Time at which execution started; null until then."""
    finished_at: Time | None = field(name="execution_end_time")
    """Time at which execution ended; null until then."""
    duration: Seconds | None = field(name="execution_duration_seconds")
    """Duration of the execution in seconds; null before it ends."""
    max_duration: Minutes | None = field(name="max_execution_duration_minutes")
    """Minutes after which the run ends in state TIMEOUT; null after it has ended."""
    expires_at: Time | None
    """Time at which the run ends in state EXPIRED unless it starts earlier; null if it does not
    expire or has started.
    """
    timeout_at: Time | None
    """Time at which the run times out; null before it starts and after it has ended."""
    claimed_by: str | None
    """Worker that holds or held the run; null before a claim."""
    claimed_at: Time | None
    """Time of the claim; null before a claim."""
    claim_expires_at: Time | None = field(name="claim_expiry_time")
    """Time at which an external worker's claim expires; null for built-in workers."""
    fencing_token: int
    """Token of the last claim, which increases with every claim; 0 before the first one."""
    lapsed_claims: int
    """Number of claims that expired before the run started."""
    status: str | None
    """SUCCESS, PARTIAL_SUCCESS, FAILURE or TIMEOUT; null if it did not finish."""
    result: Any = field(name="result_summary")
    """JSON that the processor reported as its result; null if it reported none."""
    error_type: str | None
    """Error type; null unless the run failed."""
    error_class: str | None
    """Class of the exception, such as `KeyError`; null if none was reported."""
    error_details: Any
    """Details of the error: `message`, `type` and `traceback` of an exception, or what an external
    worker reported; null unless the run failed."""
    records: int | None = field(name="records_processed")
    """Number of records that the processor reported."""
    bytes_processed: int | None
    """Number of bytes that the processor reported; null before the end or if it reported none."""
    stages: dict[str, Seconds] | None
    """Duration in seconds by stage, such as `extract`; null if none was measured."""
    estimated_cost: float | None
    """Cost at the pipeline's rates per second and per gigabyte; null before the run ends."""
    attempt: int = field(name="attempt_number")
    """Number of this attempt, counted from 1."""
    max_attempts: int | None
    """Attempts that the config allows; null if the error type decides."""
    was_retried: bool
    """Whether the attempt failed and was retried automatically."""
    is_stale: bool
    """Whether the run was ended because its worker no longer sent heartbeats."""
    parent_run_id: str | None
    """Id of the previous attempt; null for the first one."""
    root_run_id: str | None
    """Id of the first attempt; null if this is the first one."""
    idempotency_key: str | None
    """Key that makes a scheduled attempt unique; null for other triggers."""
    is_sla_met: bool | None = field(name="sla_met")
    """Whether it started within its SLA; null if it has no SLA, and until the outcome is known."""
    sla_breach: Minutes | None = field(name="sla_breach_minutes")
    """Minutes by which it missed its SLA, up to now if it has not started; null without an SLA."""
    is_dead: bool
    """Whether the run became a dead letter."""
    cancel_requested_at: Time | None
    """Time at which cancellation was requested; null if it was not."""
    cancel_requested_by: str | None
    """Name of the key or user that requested the cancellation; null if it was not requested."""
    cancel_reason: str | None
    """Reason given with the request for cancellation; null if there is none."""
    correlation_id: str | None
    """Correlation id shared by everything that the same cause started."""
    ordering_key: str | None
    """Runs with the same key are executed one after another."""
    trigger_source: str
    """What triggered the work, such as `scheduler` or `manual`."""
    trigger_message_id: str | None
    """Message that triggered the run; null for other triggers."""
    parameters: Any
    """Parameters passed to the processor, as a JSON object."""
    created_at: Time
    """Time at which the run was created."""


class RunCounts(Record):
    """Run counts by state: active runs now, and runs that ended in the last 24 hours."""

    as_of: Time
    """Time at which the runs were counted, by the database clock."""
    since: Time
    """Start of the hour from which ended runs are counted."""
    running: int
    """Number of runs that are executing."""
    claimed: int
    """Number of claimed runs that have not started."""
    pending: int
    """Number of pending runs: ready, later, paused and waiting ones."""
    ready: int
    """Number of pending runs that wait only for a worker."""
    later: int
    """Number of pending runs that are not due yet."""
    paused: int
    """Number of pending runs that a pause holds back."""
    waiting: int
    """Number of pending runs that wait for another run, a limit, a gate or a flow."""
    has_more_pending: bool
    """Whether there are more pending runs than the 10,000 that were counted."""
    completed: int | None
    """Number of runs that completed; this and the counts below are null if filtered by pipeline or
    processor.
    """
    failed: int | None
    """Number of runs that failed, including attempts that were retried."""
    timeout: int | None
    """Number of runs that timed out."""
    cancelled: int | None
    """Number of runs that were cancelled."""
    expired: int | None
    """Number of runs that expired before they were started."""
    has_more_ended: bool
    """Whether a customer has more ended runs than the 10,000 that were counted."""


class RunProgress(Record):
    """The progress of an active run."""

    current_state: str
    """INITIALIZING, RUNNING or FINALIZING."""
    stage: str | None = field(name="current_stage")
    """Free text that names the current step, such as `transforming`."""
    percent: float | None = field(name="progress_percentage")
    """Progress in percent, from 0 to 100."""
    worker: str | None = field(name="worker_id")
    """Name of the worker that executes the run; null if unknown."""
    pod: str | None = field(name="execution_pod")
    """Pod or machine that executes the run; null if unknown."""
    region: str | None = field(name="execution_region")
    """Region that the run is executed in; null if unknown."""
    last_heartbeat_at: Time | None
    """Time of the last heartbeat; null before the first one."""
    estimated_completion_at: Time | None = field(name="estimated_completion_time")
    """Expected end as reported by the worker; null if unknown."""
    records_extracted: int
    """Number of records read from the source."""
    records_transformed: int
    """Number of records transformed."""
    records_loaded: int
    """Number of records written to the target."""
    bytes_processed: int
    """Number of bytes processed."""


class RunEndpoint(Record):
    """The endpoint that the run of an HTTP processor is sent to."""

    url: str
    """Its URL, without the query."""
    last_status: int | None
    """HTTP status of its last response that accepted or failed an attempt; null if there is none.
    """


class RunInput(Record):
    """The input of an incremental processor's run."""

    everything: bool
    """Whether it processes everything."""
    reason: str | None
    """Why it processes everything; null if it receives the changes since its last success."""
    entities_total: dict[str, int]
    """Number of changed entities by kind; empty if it processes everything."""
    partitions: list[str]
    """Partitions of the flows that reported the changes."""


class SimilarRuns(Record):
    """Dead runs of the last 24 hours that failed the same way: same processor, error type and text
    apart from numbers, ids and quotes.
    """

    fingerprint: str
    """Fingerprint of the error, as in the groups of dead letters."""
    runs: int
    """Number of such runs, including this one; 1,000 if there are more."""
    customers: int
    """Number of customers that own these runs."""
    first_at: Time
    """Time at which the first of them became a dead letter."""


class RunDetail(Record):
    """A run with its attempts, journal and progress."""

    run: Run
    """Identity, state and result of the run."""
    attempts: list[Run]
    """Other attempts of the same chain, oldest first; the last one may wait or execute."""
    journal: list[JournalEntry]
    """Journal of the run's state changes and actions."""
    progress: RunProgress | None
    """Progress of the run; null unless it is active."""
    eta_p50_at: Time | None = None
    """Median estimate of its end, from recorded durations; before it
    has started, as if it started now. Null for an ended run, and if fewer than five durations are
    recorded."""
    eta_p90_at: Time | None = None
    """90th percentile of its estimated end; null in the same cases."""
    actions: list[RunAction] = field(default_factory=list)
    """Messages, runs and flows that its completion created."""
    artifacts: list[Artifact] = field(default_factory=list)
    """Artifacts of the run, by name."""
    checkpoint: RunCheckpoint | None = None
    """Checkpoint that its attempts share, with secrets masked; null if none was saved."""
    sub_flows: list[SubFlow] = field(default_factory=list)
    """Flows that the run waited for."""
    caused_by: str | None = None
    """Run that created this one as an action (`run_…`); null for other origins."""
    endpoint: RunEndpoint | None = None
    """Endpoint of an HTTP processor; null for other processors."""
    changed: RunInput | None = None
    """Input of an incremental processor; null for other processors."""
    similar: SimilarRuns | None = None
    """Dead runs that failed the same way; null if the run did not fail or there are none."""
    still_kept_until: Time | None = None
    """Time until which the ended run is kept; null for a live run, and if retention was never
    applied."""


class LogEntry(Record):
    """An entry that a processor logged while it executed a run."""

    at: Time
    """Time at which the entry was logged, by the clock of the worker."""
    level: str
    """DEBUG, INFO, WARNING, ERROR or CRITICAL, or another name of standard logging."""
    logger: str
    """Name of the logger; `penstock.run` for entries of `run.log`."""
    message: str
    """Text of the entry, with secrets masked; a traceback follows the text."""


class RunLogs(Record):
    """The log entries of a run: the first 500 and the last 500."""

    run_id: str
    """Id of the run (`run_…`)."""
    entries: list[LogEntry]
    """Entries of the run, oldest first; empty if it logged none or retention removed them."""


class Cancellation(Record):
    """The result of a cancellation."""

    run_id: str
    """Id of the run (`run_…`)."""
    outcome: Literal["cancelled", "asked", "forced"]
    """Whether the run was cancelled immediately, its worker was asked to stop, or it was ended by
    force.
    """
