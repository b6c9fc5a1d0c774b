"""Request and response bodies of external workers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.server.models import JsonObject, RequestModel, ResponseModel, Time
from penstock.server.openapi import texts

Number = float


class ClaimIn(RequestModel):
    """A request to claim runs."""

    worker_id: str = Field(
        description=texts.WORKER_ID, examples=["worker-pod-abc123"], max_length=255
    )
    max_claims: int = Field(
        default=1, description="Maximum number of runs to claim.", ge=1, le=1000
    )
    claim_duration_seconds: Number = Field(
        default=300, description=texts.CLAIM_SECONDS, ge=10, le=3600
    )
    wait_seconds: Number = Field(
        default=0, description="Seconds to wait for a run if none is ready.", ge=0, le=60
    )
    pool: str = Field(
        default="external", description="Worker pool to claim runs from.", max_length=63
    )
    processors: list[str] = Field(
        default_factory=list,
        description="Claim only runs of these; each is `pipeline` or `pipeline/phase/processor`.",
        max_length=1000,
    )


class ClaimByIdIn(RequestModel):
    """A request to claim a given run."""

    worker_id: str = Field(description=texts.WORKER_ID, max_length=255)
    claim_duration_seconds: Number = Field(
        default=300, description=texts.CLAIM_SECONDS, ge=10, le=3600
    )


class ClaimedRun(ResponseModel):
    """A run that a worker has claimed."""

    run_id: str = Field(description=texts.RUN_ID, examples=["run_7h2kq0v3"])
    config_id: str | None = Field(
        description="Config that started the run; null for other triggers."
    )
    customer_id: str = Field(description=texts.CUSTOMER)
    pipeline_template: str = Field(description=texts.PIPELINE)
    phase: str = Field(description=texts.PHASE)
    processor: str = Field(description=texts.PROCESSOR)
    partition: str | None = Field(description=texts.PARTITION_OR_NULL)
    mode: str | None = Field(description="Mode of the run's flow; null without a flow.")
    scheduled_time: Time = Field(description="Time at which this attempt was due.")
    claim_expiry_time: Time = Field(
        description="Time at which the claim expires unless a heartbeat extends it."
    )
    fencing_token: int = Field(description=texts.FENCING)
    execution_priority: int = Field(description=texts.PRIORITY)
    attempt_number: int = Field(description=texts.ATTEMPT)
    max_execution_duration_minutes: float = Field(description=texts.MAX_DURATION)
    parameters: JsonObject | None = Field(description=texts.PARAMETERS)
    correlation_id: str | None = Field(description=texts.CORRELATION_ID)


class ClaimOut(ResponseModel):
    """The runs that were claimed."""

    claimed_runs: list[ClaimedRun] = Field(description="Claimed runs; empty if none is ready.")


class ExecutionContext(RequestModel):
    """Where a run is executed."""

    pod_name: str | None = Field(
        default=None, description="Name of the pod or machine.", max_length=255
    )
    region: str | None = Field(
        default=None, description="Region of the pod or machine.", max_length=255
    )


class ClaimHolderIn(RequestModel):
    """The worker that holds a run."""

    worker_id: str | None = Field(
        default=None, description=texts.WORKER_ID_OR_HEADER, max_length=255
    )
    fencing_token: int | None = Field(default=None, description=texts.FENCING_OPTIONAL, ge=0)


class StartRunIn(ClaimHolderIn):
    """The start of a claimed run."""

    execution_context: ExecutionContext | None = Field(
        default=None, description="Where the run is executed, for display."
    )


class ProgressIn(RequestModel):
    """The progress of a run; omitted values keep their last reported value."""

    current_state: Literal["INITIALIZING", "RUNNING", "FINALIZING"] = Field(
        default="RUNNING", description="Coarse state of the execution."
    )
    current_stage: str | None = Field(
        default=None, description=texts.STAGE, examples=["transforming"], max_length=255
    )
    progress_percentage: Number | None = Field(
        default=None, description=texts.PERCENT, ge=0, le=100
    )
    records_processed: int | None = Field(
        default=None, description="Alternative name of `records_loaded`.", ge=0
    )
    records_extracted: int | None = Field(default=None, description=texts.RECORDS_EXTRACTED, ge=0)
    records_transformed: int | None = Field(
        default=None, description=texts.RECORDS_TRANSFORMED, ge=0
    )
    records_loaded: int | None = Field(default=None, description=texts.RECORDS_LOADED, ge=0)
    bytes_processed: int | None = Field(default=None, description=texts.BYTES, ge=0)
    estimated_completion_time: str | None = Field(
        default=None, description="Expected end as an ISO 8601 time.", max_length=40
    )


class HeartbeatIn(ProgressIn):
    """A heartbeat of a run, with its progress."""

    worker_id: str | None = Field(
        default=None, description=texts.WORKER_ID_OR_HEADER, max_length=255
    )
    fencing_token: int | None = Field(default=None, description=texts.FENCING_OPTIONAL, ge=0)


class ClaimStatusOut(ResponseModel):
    """The state of a held run, and whether to continue."""

    run_id: str = Field(description=texts.RUN_ID)
    state: str = Field(description="Either CLAIMED or RUNNING.")
    fencing_token: int = Field(description=texts.FENCING)
    cancel_requested: bool = Field(
        description="Whether the worker must stop and confirm through `cancelled`."
    )
    claim_expiry_time: Time = Field(description="Time before which the next heartbeat must arrive.")
    execution_start_time: Time | None = Field(description=texts.STARTED)
    timeout_at: Time | None = Field(
        description="Time at which the run times out; null before it starts."
    )


class CompletionIn(RequestModel):
    """The result of a run."""

    status: Literal["SUCCESS", "PARTIAL_SUCCESS"] = Field(
        default="SUCCESS", description="Whether all or only part of the work succeeded."
    )
    result_summary: JsonObject | None = Field(
        default=None,
        description="JSON object that is stored with the run.",
        examples=[{"records_loaded": 1999500}],
    )
    records_processed: int | None = Field(default=None, description=texts.RECORDS, ge=0)
    bytes_processed: int | None = Field(default=None, description=texts.BYTES, ge=0)
    stages: dict[str, Number] | None = Field(
        default=None, description="Duration in seconds by stage, such as `extract`."
    )


class CompleteIn(CompletionIn):
    """The completion of a run."""

    worker_id: str | None = Field(
        default=None, description=texts.WORKER_ID_OR_HEADER, max_length=255
    )
    fencing_token: int | None = Field(default=None, description=texts.FENCING_OPTIONAL, ge=0)


class FailIn(ClaimHolderIn):
    """The failure of a run."""

    error_type: str = Field(
        description="RATE_LIMIT_EXCEEDED, TRANSIENT_NETWORK, AUTHENTICATION_FAILED or any other "
        "name.",
        examples=["AUTHENTICATION_FAILED"],
        min_length=1,
        max_length=64,
    )
    error_details: JsonObject | None = Field(
        default=None,
        description="Details of the error; secrets are redacted.",
        examples=[{"message": "Invalid service account credentials"}],
    )
    should_retry: bool | None = Field(
        default=None, description="Force or forbid a retry; the error type decides when omitted."
    )
    retry_after_seconds: Number | None = Field(
        default=None, description="Minimum seconds until the next attempt.", ge=0, le=2_592_000
    )


class RunResultOut(ResponseModel):
    """The result of ending a run."""

    run_id: str = Field(description=texts.RUN_ID)
    state: str = Field(description="Final state: COMPLETED, FAILED, TIMEOUT or CANCELLED.")
    status: str | None = Field(description=texts.RUN_STATUS)
    retry_run_id: str | None = Field(description="Id of the next attempt; null if there is none.")
    retry_after: Time | None = Field(
        description="Time at which the next attempt is due; null if there is none."
    )
    is_dead: bool = Field(description=texts.IS_DEAD)
    consecutive_failures: int = Field(
        description="Failures in a row of the run's config; 3 raise an alert, 5 disable the config."
    )


class HeartbeatItem(HeartbeatIn):
    """One heartbeat of a batch."""

    run_id: str = Field(description=texts.RUN_ID, max_length=64)


class HeartbeatBatchIn(RequestModel):
    """Heartbeats of several runs."""

    worker_id: str | None = Field(
        default=None, description=texts.WORKER_ID_OR_HEADER, max_length=255
    )
    heartbeats: list[HeartbeatItem] = Field(
        description="One heartbeat per run, at most 1,000.", min_length=1, max_length=1000
    )


class CompletionItemIn(CompleteIn):
    """One completion of a batch."""

    run_id: str = Field(description=texts.RUN_ID, max_length=64)


class CompletionBatchIn(RequestModel):
    """Completions of several runs."""

    worker_id: str | None = Field(
        default=None, description=texts.WORKER_ID_OR_HEADER, max_length=255
    )
    completions: list[CompletionItemIn] = Field(
        description="One completion per run, at most 1,000.", min_length=1, max_length=1000
    )


class ItemProblem(ResponseModel):
    """The reason why one item of a batch was refused."""

    status: int = Field(description="HTTP status that a single request would have had.")
    code: str = Field(description=texts.PROBLEM_CODE)
    detail: str = Field(description="Explanation in one sentence.")


class HeartbeatOutcome(ResponseModel):
    """The outcome of one heartbeat."""

    run_id: str = Field(description=texts.RUN_ID)
    pulse: ClaimStatusOut | None = Field(
        description="State of the run; null if the heartbeat was refused."
    )
    problem: ItemProblem | None = Field(
        description="Reason for the refusal; null if the heartbeat was accepted."
    )


class HeartbeatBatchOut(ResponseModel):
    """The outcomes of a batch of heartbeats."""

    outcomes: list[HeartbeatOutcome] = Field(description=texts.BATCH_ORDER)


class CompletionOutcome(ResponseModel):
    """The outcome of one completion."""

    run_id: str = Field(description=texts.RUN_ID)
    end: RunResultOut | None = Field(
        description="Result of ending the run; null if the completion was refused."
    )
    problem: ItemProblem | None = Field(
        description="Reason for the refusal; null if the completion was accepted."
    )


class CompletionBatchOut(ResponseModel):
    """The outcomes of a batch of completions."""

    outcomes: list[CompletionOutcome] = Field(description=texts.BATCH_ORDER)
