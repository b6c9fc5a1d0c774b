"""For workers outside: claim, start, heartbeat, complete, fail.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class ClaimIn(TypedDict):
    """Claim runs."""

    worker_id: str  # The worker's own name.
    max_claims: NotRequired[int]  # At most as many.
    claim_duration_seconds: NotRequired[float]  # Until the claim lapses, unless it is extended.
    wait_seconds: NotRequired[float]  # Wait as long for work when there is none.
    pool: NotRequired[str]  # The pool to serve.
    processors: NotRequired[list[str]]  # Only these: pipelines, or pipeline/phase/processor.


class ClaimedRun(TypedDict):
    """A run in a worker's hands."""

    run_id: str  # Its id.
    config_id: str | None  # The config that started it.
    customer_id: str  # Whose it is.
    pipeline_template: str  # Its pipeline.
    phase: str  # Its phase.
    processor: str  # What is to be done.
    partition: str | None  # The slice of data.
    mode: str | None  # The flow's mode.
    scheduled_time: str  # When it was due.
    claim_expiry_time: str  # When the claim lapses.
    fencing_token: int  # To be given with every further call.
    execution_priority: int  # 1 to 10, 10 first.
    attempt_number: int  # Which attempt, from 1.
    max_execution_duration_minutes: float  # Longer runs time out.
    parameters: dict[str, Any] | None  # What it is given.
    correlation_id: str | None  # Ties together what one cause set off.


class ClaimOut(TypedDict):
    """Runs that were claimed."""

    claimed_runs: list[ClaimedRun]  # Empty when nothing was ready.


class ClaimByIdIn(TypedDict):
    """Claim one given run."""

    worker_id: str  # The worker's own name.
    claim_duration_seconds: NotRequired[float]  # Until the claim lapses, unless it is extended.


class ExecutionContext(TypedDict):
    """Where it runs."""

    pod_name: NotRequired[str | None]  # Which machine.
    region: NotRequired[str | None]  # Which region.


class StartRunIn(TypedDict):
    """The run starts."""

    worker_id: NotRequired[str | None]  # The worker's own name; X-Worker-Id says the same.
    # The fencing token of the claim; without it the caller must be the one that claimed.
    fencing_token: NotRequired[int | None]
    execution_context: NotRequired[ExecutionContext | None]  # Where.


class PulseOut(TypedDict):
    """Whether to go on, and until when the run is held."""

    run_id: str  # Which run.
    state: str  # CLAIMED or RUNNING.
    fencing_token: int  # The current token.
    cancel_requested: bool  # Stop, then confirm with `cancelled`: somebody asked for it.
    claim_expiry_time: str  # Beat again before this.
    execution_start_time: str | None  # When it started.
    timeout_at: str | None  # When it is over its time.


class HeartbeatIn(TypedDict):
    """A heartbeat."""

    current_state: NotRequired[Literal["INITIALIZING", "RUNNING", "FINALIZING"]]  # Roughly.
    current_stage: NotRequired[str | None]  # What it is doing.
    progress_percentage: NotRequired[float | None]  # 0 to 100.
    records_processed: NotRequired[int | None]  # The same as records_loaded.
    records_extracted: NotRequired[int | None]  # Records read.
    records_transformed: NotRequired[int | None]  # Records worked on.
    records_loaded: NotRequired[int | None]  # Records written.
    bytes_processed: NotRequired[int | None]  # Bytes.
    estimated_completion_time: NotRequired[str | None]  # ISO 8601.
    worker_id: NotRequired[str | None]  # The worker's own name; X-Worker-Id says the same.
    # The fencing token of the claim; without it the caller must be the one that claimed.
    fencing_token: NotRequired[int | None]


class BeatItem(TypedDict):
    """One heartbeat of a batch."""

    current_state: NotRequired[Literal["INITIALIZING", "RUNNING", "FINALIZING"]]  # Roughly.
    current_stage: NotRequired[str | None]  # What it is doing.
    progress_percentage: NotRequired[float | None]  # 0 to 100.
    records_processed: NotRequired[int | None]  # The same as records_loaded.
    records_extracted: NotRequired[int | None]  # Records read.
    records_transformed: NotRequired[int | None]  # Records worked on.
    records_loaded: NotRequired[int | None]  # Records written.
    bytes_processed: NotRequired[int | None]  # Bytes.
    estimated_completion_time: NotRequired[str | None]  # ISO 8601.
    worker_id: NotRequired[str | None]  # The worker's own name; X-Worker-Id says the same.
    # The fencing token of the claim; without it the caller must be the one that claimed.
    fencing_token: NotRequired[int | None]
    run_id: str  # Which run.


class BeatsIn(TypedDict):
    """Heartbeats of many runs."""

    worker_id: NotRequired[str | None]  # The worker's own name; X-Worker-Id says the same.
    heartbeats: list[BeatItem]  # One per run.


class Refusal(TypedDict):
    """Why one item of a batch was refused."""

    status: int  # The HTTP status it would have had alone.
    code: str  # Stable, for programs.
    detail: str  # In a sentence.


class BeatOutcome(TypedDict):
    """What became of one heartbeat."""

    run_id: str  # Which run.
    pulse: PulseOut | None  # The answer, unless it was refused.
    problem: Refusal | None  # Why it was refused.


class BeatsOut(TypedDict):
    """What became of each heartbeat."""

    outcomes: list[BeatOutcome]  # In the order of the batch.


class CompleteIn(TypedDict):
    """The run is done."""

    status: NotRequired[Literal["SUCCESS", "PARTIAL_SUCCESS"]]  # Wholly or partly.
    result_summary: NotRequired[dict[str, Any] | None]  # Anything worth keeping.
    records_processed: NotRequired[int | None]  # How many records.
    bytes_processed: NotRequired[int | None]  # Bytes.
    stages: NotRequired[dict[str, float] | None]  # Seconds by stage, such as extract.
    worker_id: NotRequired[str | None]  # The worker's own name; X-Worker-Id says the same.
    # The fencing token of the claim; without it the caller must be the one that claimed.
    fencing_token: NotRequired[int | None]


class EndOut(TypedDict):
    """What became of a run."""

    run_id: str  # Which run.
    state: str  # Its final state.
    status: str | None  # SUCCESS, PARTIAL_SUCCESS, FAILURE or TIMEOUT.
    retry_run_id: str | None  # The next attempt, when there is one.
    retry_after: str | None  # When it is due.
    is_dead: bool  # Whether it is a dead letter now.
    consecutive_failures: int  # Of its config; 3 alert, 5 disable.


class ReportItem(TypedDict):
    """One completion of a batch."""

    status: NotRequired[Literal["SUCCESS", "PARTIAL_SUCCESS"]]  # Wholly or partly.
    result_summary: NotRequired[dict[str, Any] | None]  # Anything worth keeping.
    records_processed: NotRequired[int | None]  # How many records.
    bytes_processed: NotRequired[int | None]  # Bytes.
    stages: NotRequired[dict[str, float] | None]  # Seconds by stage, such as extract.
    worker_id: NotRequired[str | None]  # The worker's own name; X-Worker-Id says the same.
    # The fencing token of the claim; without it the caller must be the one that claimed.
    fencing_token: NotRequired[int | None]
    run_id: str  # Which run.


class ReportsIn(TypedDict):
    """Completions of many runs."""

    worker_id: NotRequired[str | None]  # The worker's own name; X-Worker-Id says the same.
    completions: list[ReportItem]  # One per run.


class ReportOutcome(TypedDict):
    """What became of one completion."""

    run_id: str  # Which run.
    end: EndOut | None  # Its end, unless it was refused.
    problem: Refusal | None  # Why it was refused.


class ReportsOut(TypedDict):
    """What became of each completion."""

    outcomes: list[ReportOutcome]  # In the order of the batch.


class FailIn(TypedDict):
    """The run failed."""

    worker_id: NotRequired[str | None]  # The worker's own name; X-Worker-Id says the same.
    # The fencing token of the claim; without it the caller must be the one that claimed.
    fencing_token: NotRequired[int | None]
    error_type: str  # RATE_LIMIT_EXCEEDED, TRANSIENT_NETWORK, AUTHENTICATION_FAILED … or any name.
    error_details: NotRequired[dict[str, Any] | None]  # What went wrong; secrets are taken out.
    # Insist on a retry, or on none; else the error type decides.
    should_retry: NotRequired[bool | None]
    retry_after_seconds: NotRequired[float | None]  # Not before.


class Holder(TypedDict):
    """Who speaks."""

    worker_id: NotRequired[str | None]  # The worker's own name; X-Worker-Id says the same.
    # The fencing token of the claim; without it the caller must be the one that claimed.
    fencing_token: NotRequired[int | None]
