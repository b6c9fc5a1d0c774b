"""Request and response bodies of runs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from penstock.server.models import JsonObject, RequestModel, ResponseModel, Time
from penstock.server.openapi import texts


class RunOut(ResponseModel):
    """A run, active or ended."""

    run_id: str = Field(description=texts.RUN_ID, examples=["run_7h2kq0v3"])
    config_id: str | None = Field(
        description="Config that started the run; null for other triggers."
    )
    customer_id: str = Field(description=texts.CUSTOMER)
    pipeline_template: str = Field(description=texts.PIPELINE)
    phase: str = Field(description=texts.PHASE)
    processor: str = Field(description=texts.PROCESSOR)
    flow_id: str | None = Field(
        description="Flow that the run belongs to; null if it belongs to none."
    )
    partition: str | None = Field(description=texts.PARTITION_OR_NULL)
    mode: str | None = Field(description="Mode of the run's flow; null without a flow.")
    slot: Time = Field(description="Scheduled time of its occurrence; retries keep it.")
    scheduled_time: Time = Field(description="Time at which this attempt is due.")
    execution_priority: int = Field(description=texts.PRIORITY)
    state: str = Field(
        description="PENDING, CLAIMED, RUNNING, COMPLETED, FAILED, TIMEOUT or CANCELLED."
    )
    state_updated_at: Time = Field(description="Time at which it entered its state.")
    waits: str | None = Field(
        description="Admission of a pending run: ready, later, paused, blocked or limited; null "
        "otherwise."
    )
    execution_start_time: Time | None = Field(description=texts.STARTED)
    execution_end_time: Time | None = Field(
        description="Time at which execution ended; null before."
    )
    execution_duration_seconds: float | None = Field(
        description="Duration of the execution in seconds; null before it ends."
    )
    claimed_by: str | None = Field(
        description="Worker that holds or held the run; null before a claim."
    )
    claimed_at: Time | None = Field(description="Time of the claim; null before a claim.")
    claim_expiry_time: Time | None = Field(
        description="Time at which an external worker's claim expires; null for built-in workers."
    )
    status: str | None = Field(description=texts.RUN_STATUS)
    result_summary: Any | None = Field(
        description="JSON that the processor reported as its result; null for none."
    )
    error_type: str | None = Field(
        description="Short name of the error's kind; null unless the run failed."
    )
    error_details: Any | None = Field(
        description="Details of the error; null unless the run failed."
    )
    records_processed: int | None = Field(description=texts.RECORDS)
    attempt_number: int = Field(description=texts.ATTEMPT)
    max_attempts: int | None = Field(
        description="Attempts that the config allows; null if the error type decides."
    )
    parent_run_id: str | None = Field(
        description="Id of the previous attempt; null for the first one."
    )
    root_run_id: str | None = Field(
        description="Id of the first attempt; null if this is the first one."
    )
    idempotency_key: str | None = Field(
        description="Key that makes a scheduled attempt unique; null for other triggers."
    )
    sla_met: bool | None = Field(
        description="Whether it started within its SLA; null before it is known."
    )
    sla_breach_minutes: float | None = Field(
        description="Minutes by which it missed its SLA; null before it is known."
    )
    is_dead: bool = Field(description=texts.IS_DEAD)
    cancel_requested_at: Time | None = Field(
        description="Time at which cancellation was requested; null if it was not."
    )
    correlation_id: str | None = Field(description=texts.CORRELATION_ID)
    ordering_key: str | None = Field(description=texts.RUN_ORDERING_KEY)
    trigger_source: str = Field(description=texts.TRIGGER_SOURCE)
    parameters: Any | None = Field(description=texts.PARAMETERS)
    created_at: Time = Field(description=texts.CREATED_AT)


class JournalOut(ResponseModel):
    """An entry of the journal."""

    at: Time = Field(description="Time at which it happened.")
    action: str = Field(description="Name of the state change or action.")
    actor: str = Field(description="Name of the key, user, worker or service that acted.")
    from_state: str | None = Field(
        description="State before the change; null if the state did not change."
    )
    to_state: str | None = Field(
        description="State after the change; null if the state did not change."
    )
    why: str | None = Field(description="Reason for the change; null if none was given.")
    detail: Any | None = Field(description="Further facts as JSON; null if there are none.")


class ProgressOut(ResponseModel):
    """The progress of an active run."""

    current_state: str = Field(description="INITIALIZING, RUNNING or FINALIZING.")
    current_stage: str | None = Field(description=texts.STAGE)
    progress_percentage: float | None = Field(description=texts.PERCENT)
    worker_id: str | None = Field(
        description="Name of the worker that executes the run; null if unknown."
    )
    execution_pod: str | None = Field(
        description="Pod or machine that executes the run; null if unknown."
    )
    execution_region: str | None = Field(
        description="Region that the run is executed in; null if unknown."
    )
    last_heartbeat_at: Time | None = Field(
        description="Time of the last heartbeat; null before the first one."
    )
    estimated_completion_time: Time | None = Field(
        description="Expected end as reported by the worker; null if unknown."
    )
    records_extracted: int = Field(description=texts.RECORDS_EXTRACTED)
    records_transformed: int = Field(description=texts.RECORDS_TRANSFORMED)
    records_loaded: int = Field(description=texts.RECORDS_LOADED)
    bytes_processed: int = Field(description=texts.BYTES)


class RunDetailOut(ResponseModel):
    """A run with its attempts, journal and progress."""

    run: RunOut = Field(description="Identity, state and result of the run.")
    attempts: list[RunOut] = Field(
        description="Other ended attempts of the same chain, oldest first."
    )
    journal: list[JournalOut] = Field(description="Journal of the run's state changes and actions.")
    progress: ProgressOut | None = Field(
        description="Progress of the run; null unless it is active."
    )


class SubmitIn(RequestModel):
    """A run to create now or later."""

    pipeline_template: str = Field(description=texts.PIPELINE, examples=["cost_billing"])
    processor: str | None = Field(
        default=None, description="Processor to run; required if the pipeline has several."
    )
    partition: str | None = Field(default=None, description=texts.PARTITION)
    parameters: JsonObject | None = Field(default=None, description=texts.PARAMETERS)
    execution_priority: int = Field(default=5, description=texts.PRIORITY)
    scheduled_time: str | None = Field(
        default=None, description="Earliest start as an ISO 8601 time; now when omitted."
    )
    ordering_key: str | None = Field(default=None, description=texts.RUN_ORDERING_KEY)
    correlation_id: str | None = Field(default=None, description=texts.CORRELATION_ID_NEW)


class RunRef(ResponseModel):
    """A reference to a created run."""

    run_id: str = Field(description=texts.RUN_ID)


class CancelIn(RequestModel):
    """The reason for a cancellation."""

    reason: str = Field(default="", description=texts.REASON, max_length=500)


class CancelOut(ResponseModel):
    """The result of a cancellation."""

    run_id: str = Field(description=texts.RUN_ID)
    outcome: Literal["cancelled", "asked"] = Field(
        description="Cancelled immediately, or its worker was asked to stop."
    )


class DoneOut(ResponseModel):
    """A confirmation that the action was performed."""

    status: Literal["done"] = Field(description="Always the text `done`.")
