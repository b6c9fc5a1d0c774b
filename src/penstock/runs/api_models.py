"""Models of runs for the routes of other subjects that FastAPI serves."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from penstock.server.models import RequestModel, ResponseModel, Time
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
    max_execution_duration_minutes: float | None = Field(
        description="Minutes after which the run is ended as TIMEOUT; null after it has ended."
    )
    timeout_at: Time | None = Field(
        description="Time at which the run times out; null before it starts and after its end."
    )
    fencing_token: int = Field(description="Token of the last claim; 0 before the first one.")
    lapsed_claims: int = Field(description="Number of claims that expired before the run started.")
    bytes_processed: int | None = Field(description="Bytes that the processor reported.")
    stages: dict[str, float] | None = Field(
        description="Duration in seconds by stage; null if none was measured."
    )
    estimated_cost: float | None = Field(
        description="Cost by the pipeline's rates; null before the end."
    )
    was_retried: bool = Field(description="Whether the attempt failed and was retried.")
    is_stale: bool = Field(
        description="Whether it ended because its worker no longer sent heartbeats."
    )
    cancel_requested_by: str | None = Field(
        description="Name of the key or user that requested the cancellation; null if none."
    )
    cancel_reason: str | None = Field(
        description="Reason given with the request for cancellation; null if there is none."
    )
    trigger_message_id: str | None = Field(
        description="Message that triggered the run; null for other triggers."
    )


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


class CancelIn(RequestModel):
    """The reason for a cancellation."""

    reason: str = Field(default="", description=texts.REASON, max_length=500)


class DoneOut(ResponseModel):
    """A confirmation that the action was performed."""

    status: Literal["done"] = Field(description="Always the text `done`.")
