"""Runs in requests and answers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from penstock.server.models import Asked, JsonObject, Time, Told


class RunOut(Told):
    """A run, live or ended."""

    run_id: str = Field(description="Its id.", examples=["run_7h2kq0v3"])
    config_id: str | None = Field(description="The config that started it.")
    customer_id: str = Field(description="Whose it is.")
    pipeline_template: str = Field(description="Its pipeline.")
    phase: str = Field(description="Its phase.")
    processor: str = Field(description="What does the work.")
    flow_id: str | None = Field(description="The flow it belongs to.")
    partition: str | None = Field(description="The slice of data.")
    mode: str | None = Field(description="The flow's mode.")
    slot: Time = Field(description="The slot it was meant for; retries keep it.")
    scheduled_time: Time = Field(description="When this attempt is due.")
    execution_priority: int = Field(description="1 to 10, 10 first.")
    state: str = Field(
        description="PENDING, CLAIMED, RUNNING, COMPLETED, FAILED, TIMEOUT or CANCELLED."
    )
    state_updated_at: Time = Field(description="Since when.")
    waits: str | None = Field(
        description="Why it is pending: ready, later, paused, blocked, limited."
    )
    execution_start_time: Time | None = Field(description="When it started.")
    execution_end_time: Time | None = Field(description="When it ended.")
    execution_duration_seconds: float | None = Field(description="How long it took.")
    claimed_by: str | None = Field(description="Who holds or held it.")
    claimed_at: Time | None = Field(description="Since when.")
    claim_expiry_time: Time | None = Field(description="Until when, when held from outside.")
    status: str | None = Field(description="SUCCESS, PARTIAL_SUCCESS, FAILURE or TIMEOUT.")
    result_summary: Any | None = Field(description="What the processor reported.")
    error_type: str | None = Field(description="What kind of error.")
    error_details: Any | None = Field(description="The error.")
    records_processed: int | None = Field(description="How many records.")
    attempt_number: int = Field(description="Which attempt, from 1.")
    max_attempts: int | None = Field(
        description="How many the config allows; null leaves it to the error type."
    )
    parent_run_id: str | None = Field(description="The attempt before.")
    root_run_id: str | None = Field(description="The first attempt.")
    idempotency_key: str | None = Field(description="What makes a scheduled attempt unique.")
    sla_met: bool | None = Field(description="Whether it started in time.")
    sla_breach_minutes: float | None = Field(description="How far it was beyond.")
    is_dead: bool = Field(description="Whether it is a dead letter.")
    cancel_requested_at: Time | None = Field(description="When somebody asked it to stop.")
    correlation_id: str | None = Field(description="Ties together what one cause set off.")
    ordering_key: str | None = Field(description="Runs of one key run one after another.")
    trigger_source: str = Field(description="What started it.")
    parameters: Any | None = Field(description="What it is given.")
    created_at: Time = Field(description="When it was created.")


class JournalOut(Told):
    """A line of the journal."""

    at: Time = Field(description="When.")
    action: str = Field(description="What happened.")
    actor: str = Field(description="Who did it.")
    from_state: str | None = Field(description="The state before.")
    to_state: str | None = Field(description="The state after.")
    why: str | None = Field(description="Why.")
    detail: Any | None = Field(description="More.")


class ProgressOut(Told):
    """Live progress."""

    current_state: str = Field(description="INITIALIZING, RUNNING or FINALIZING.")
    current_stage: str | None = Field(description="What it is doing.")
    progress_percentage: float | None = Field(description="0 to 100.")
    worker_id: str | None = Field(description="Who runs it.")
    execution_pod: str | None = Field(description="Where.")
    execution_region: str | None = Field(description="Where.")
    last_heartbeat_at: Time | None = Field(description="When it was last heard of.")
    estimated_completion_time: Time | None = Field(description="When it expects to be done.")
    records_extracted: int = Field(description="Records read.")
    records_transformed: int = Field(description="Records worked on.")
    records_loaded: int = Field(description="Records written.")
    bytes_processed: int = Field(description="Bytes.")


class RunDetailOut(Told):
    """A run with everything known of it."""

    run: RunOut = Field(description="The run.")
    attempts: list[RunOut] = Field(description="Its other ended attempts, oldest first.")
    journal: list[JournalOut] = Field(description="What happened to it.")
    progress: ProgressOut | None = Field(description="While it runs.")


class SubmitIn(Asked):
    """A run to create."""

    pipeline_template: str = Field(description="A registered pipeline.", examples=["cost_billing"])
    processor: str | None = Field(
        default=None, description="Which processor, when the pipeline has several."
    )
    partition: str | None = Field(default=None, description="The slice of data.")
    parameters: JsonObject | None = Field(default=None, description="What it is given.")
    execution_priority: int = Field(default=5, description="1 to 10, 10 first.")
    scheduled_time: str | None = Field(default=None, description="Not before; ISO 8601.")
    ordering_key: str | None = Field(default=None, description="One after another.")
    correlation_id: str | None = Field(default=None, description="What it belongs to.")


class RunRef(Told):
    """A run that was created."""

    run_id: str = Field(description="Its id.")


class CancelIn(Asked):
    """Why it is cancelled."""

    reason: str = Field(default="", description="Why.", max_length=500)


class CancelOut(Told):
    """What a cancel did."""

    run_id: str = Field(description="Which run.")
    outcome: Literal["cancelled", "asked"] = Field(
        description="Cancelled at once, or its holder was asked to stop."
    )


class Done(Told):
    """It was done."""

    status: Literal["done"] = Field(description="Always `done`.")
