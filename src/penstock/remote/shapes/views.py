"""What is going on; pipelines, alerts, pauses.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class OverviewOut(TypedDict):
    """What is going on, and what ended since midnight UTC."""

    as_of: str  # When this was read, by the store's clock.
    # The earliest slot that has not started; null for a key of one customer.
    next_slot_at: str | None
    pending_runs: int  # Waiting, for whatever reason.
    ready_runs: int  # Waiting for a worker.
    later_runs: int  # Due in the future.
    paused_runs: int  # Under a pause.
    blocked_runs: int  # Behind an ordering key or a limit.
    claimed_runs: int  # Held, not started.
    running_runs: int  # Being executed.
    oldest_ready_at: str | None  # Since when the oldest one waits.
    completed_today: int  # Ended well.
    failed_today: int  # Failed or timed out.
    cancelled_today: int  # Cancelled.
    sla_breaches_today: int  # Started too late.
    average_execution_duration_seconds: float | None  # Of those that ended well.


class ProviderOut(TypedDict):
    """A customer's ended runs with one provider."""

    provider: str  # Which provider.
    total_runs: int  # Ended runs.
    successful_runs: int  # Ended well.
    failed_runs: int  # Failed or timed out.
    average_duration_seconds: float | None  # Of those that ended well.
    sla_compliance_percentage: float | None  # Started in time.


class MetricsOut(TypedDict):
    """A customer's ended runs over a window."""

    customer_id: str  # Whose.
    start_date: str  # From.
    end_date: str  # Until.
    total_runs: int  # Ended runs.
    successful_runs: int  # Ended well.
    failed_runs: int  # Failed or timed out.
    average_duration_seconds: float | None  # Of those that ended well.
    sla_compliance_percentage: float | None  # Started in time.
    by_provider: list[ProviderOut]  # The same by provider.


class AlertOut(TypedDict):
    """An alert."""

    alert_id: str  # Its id.
    rule: str  # Which rule.
    severity: str  # INFO, MEDIUM, HIGH or CRITICAL.
    customer_id: str | None  # Whose, if it is somebody's.
    subject_kind: str  # What it is about.
    subject: str  # Which one.
    message: str  # In a sentence.
    detail: Any  # More.
    state: str  # open, acknowledged or resolved.
    times: int  # How often it happened.
    opened_at: str  # Since when.
    last_at: str  # When it happened last.
    closed_at: str | None  # When it was closed.
    closed_by: str | None  # Who closed it.


class AlertPage(TypedDict):
    """A page of a list."""

    items: list[AlertOut]  # The things on this page.
    next_cursor: str | None  # Give it as `cursor` for the next page; null on the last one.


class SessionOut(TypedDict):
    """A live process."""

    session_id: str  # Its id.
    kind: str  # What it does.
    name: str  # How it calls itself.
    host: str  # Where it runs.
    pid: int  # Its process id.
    pool: str | None  # The pool it serves.
    slots: int  # Runs it executes at once.
    held: int  # Runs it holds.
    is_draining: bool  # Whether it is stopping.
    started_at: str  # Since when.
    last_beat_at: str  # When it was last heard of.
    lease_until: str  # When it counts as gone.


class ProcessorOut(TypedDict):
    """A processor of a pipeline."""

    phase: str  # Its phase.
    processor: str  # Its name.
    pool: str  # Its pool of workers.
    is_entry: bool  # Whether a new flow starts with it.
    max_execution_duration_minutes: float  # Longer runs time out.


class PipelineOut(TypedDict):
    """A registered pipeline."""

    pipeline_template: str  # Its name.
    definition: dict[str, Any]  # What was declared.
    processors: list[ProcessorOut]  # Its processors.


class PauseOut(TypedDict):
    """A pause in force."""

    scope: str  # How much.
    subject: str | None  # Which one.
    paused_at: str  # Since when.
    paused_by: str  # Who paused it.
    reason: str  # Why.


class PauseIn(TypedDict):
    """What to pause or resume."""

    scope: Literal["all", "customer", "pipeline", "config"]  # How much.
    subject: NotRequired[str | None]  # Which customer, pipeline or config; nothing for all.
    reason: NotRequired[str]  # Why.


class Changed(TypedDict):
    """Whether anything had to be done."""

    changed: bool  # False when it was so before.


class ListAlertsQuery(TypedDict, total=False):
    """Which part of the list, and how it is narrowed (list_alerts)."""

    state: Literal["open", "acknowledged", "resolved"] | None  # Only these.
    customer_id: str | None  # Only of this customer.
    limit: int | None  # Page size.
    cursor: str | None  # The `next_cursor` of the page before.
