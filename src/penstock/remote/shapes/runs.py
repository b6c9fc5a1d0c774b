"""Submit, list, cancel and retry runs.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class SubmitIn(TypedDict):
    """A run to create."""

    pipeline_template: str  # A registered pipeline.
    processor: NotRequired[str | None]  # Which processor, when the pipeline has several.
    partition: NotRequired[str | None]  # The slice of data.
    parameters: NotRequired[dict[str, Any] | None]  # What it is given.
    execution_priority: NotRequired[int]  # 1 to 10, 10 first.
    scheduled_time: NotRequired[str | None]  # Not before; ISO 8601.
    ordering_key: NotRequired[str | None]  # One after another.
    correlation_id: NotRequired[str | None]  # What it belongs to.


class RunRef(TypedDict):
    """A run that was created."""

    run_id: str  # Its id.


class RunOut(TypedDict):
    """A run, live or ended."""

    run_id: str  # Its id.
    config_id: str | None  # The config that started it.
    customer_id: str  # Whose it is.
    pipeline_template: str  # Its pipeline.
    phase: str  # Its phase.
    processor: str  # What does the work.
    flow_id: str | None  # The flow it belongs to.
    partition: str | None  # The slice of data.
    mode: str | None  # The flow's mode.
    slot: str  # The slot it was meant for; retries keep it.
    scheduled_time: str  # When this attempt is due.
    execution_priority: int  # 1 to 10, 10 first.
    state: str  # PENDING, CLAIMED, RUNNING, COMPLETED, FAILED, TIMEOUT or CANCELLED.
    state_updated_at: str  # Since when.
    waits: str | None  # Why it is pending: ready, later, paused, blocked, limited.
    execution_start_time: str | None  # When it started.
    execution_end_time: str | None  # When it ended.
    execution_duration_seconds: float | None  # How long it took.
    claimed_by: str | None  # Who holds or held it.
    claimed_at: str | None  # Since when.
    claim_expiry_time: str | None  # Until when, when held from outside.
    status: str | None  # SUCCESS, PARTIAL_SUCCESS, FAILURE or TIMEOUT.
    result_summary: Any  # What the processor reported.
    error_type: str | None  # What kind of error.
    error_details: Any  # The error.
    records_processed: int | None  # How many records.
    attempt_number: int  # Which attempt, from 1.
    max_attempts: int | None  # How many the config allows; null leaves it to the error type.
    parent_run_id: str | None  # The attempt before.
    root_run_id: str | None  # The first attempt.
    idempotency_key: str | None  # What makes a scheduled attempt unique.
    sla_met: bool | None  # Whether it started in time.
    sla_breach_minutes: float | None  # How far it was beyond.
    is_dead: bool  # Whether it is a dead letter.
    cancel_requested_at: str | None  # When somebody asked it to stop.
    correlation_id: str | None  # Ties together what one cause set off.
    ordering_key: str | None  # Runs of one key run one after another.
    trigger_source: str  # What started it.
    parameters: Any  # What it is given.
    created_at: str  # When it was created.


class RunPage(TypedDict):
    """A page of a list."""

    items: list[RunOut]  # The things on this page.
    next_cursor: str | None  # Give it as `cursor` for the next page; null on the last one.


class JournalOut(TypedDict):
    """A line of the journal."""

    at: str  # When.
    action: str  # What happened.
    actor: str  # Who did it.
    from_state: str | None  # The state before.
    to_state: str | None  # The state after.
    why: str | None  # Why.
    detail: Any  # More.


class ProgressOut(TypedDict):
    """Live progress."""

    current_state: str  # INITIALIZING, RUNNING or FINALIZING.
    current_stage: str | None  # What it is doing.
    progress_percentage: float | None  # 0 to 100.
    worker_id: str | None  # Who runs it.
    execution_pod: str | None  # Where.
    execution_region: str | None  # Where.
    last_heartbeat_at: str | None  # When it was last heard of.
    estimated_completion_time: str | None  # When it expects to be done.
    records_extracted: int  # Records read.
    records_transformed: int  # Records worked on.
    records_loaded: int  # Records written.
    bytes_processed: int  # Bytes.


class RunDetailOut(TypedDict):
    """A run with everything known of it."""

    run: RunOut  # The run.
    attempts: list[RunOut]  # Its other ended attempts, oldest first.
    journal: list[JournalOut]  # What happened to it.
    progress: ProgressOut | None  # While it runs.


class CancelIn(TypedDict):
    """Why it is cancelled."""

    reason: NotRequired[str]  # Why.


class CancelOut(TypedDict):
    """What a cancel did."""

    run_id: str  # Which run.
    outcome: Literal["cancelled", "asked"]  # Cancelled at once, or its holder was asked to stop.


class ListCustomerRunsQuery(TypedDict, total=False):
    """Which part of the list, and how it is narrowed (list_customer_runs)."""

    limit: int | None  # Page size.
    offset: int | None  # Skip as many; deep pages are for cursors.
    cursor: str | None  # The `next_cursor` of the page before.
    # Only in this state.
    state: (
        Literal["PENDING", "CLAIMED", "RUNNING", "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"]
        | None
    )
    start_date: str | None  # Slots from here: a date or an ISO 8601 time.
    end_date: str | None  # Slots before this.
    pipeline_template: str | None  # Only of this pipeline.
    before: str | None  # Go on behind this run, as a cursor does.
