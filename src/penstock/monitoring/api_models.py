"""What people look at: overview, metrics, alerts, processes, pipelines, pauses, keys."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from penstock.server.models import Asked, JsonObject, Time, Told


class TriggerIn(Asked):
    """Tick now."""

    batch_size: int = Field(default=1000, description="Configs per batch.", ge=1, le=100_000)
    max_processing_time_seconds: float = Field(
        default=600, description="The time budget.", gt=0, le=3600
    )


class TriggerOut(Told):
    """What the tick did."""

    status: Literal["completed", "out_of_time"] = Field(
        description="Whether everything due was started."
    )
    total_configs_processed: int = Field(description="Configs that were due.")
    total_runs_created: int = Field(description="Runs that were created.")
    processing_time_seconds: float = Field(description="How long it took.")


class OverviewOut(Told):
    """What is going on, and what ended since midnight UTC."""

    as_of: Time = Field(description="When this was read, by the store's clock.")
    next_slot_at: Time | None = Field(
        description="The earliest slot that has not started; null for a key of one customer."
    )
    pending_runs: int = Field(description="Waiting, for whatever reason.")
    ready_runs: int = Field(description="Waiting for a worker.")
    later_runs: int = Field(description="Due in the future.")
    paused_runs: int = Field(description="Under a pause.")
    blocked_runs: int = Field(description="Behind an ordering key or a limit.")
    claimed_runs: int = Field(description="Held, not started.")
    running_runs: int = Field(description="Being executed.")
    oldest_ready_at: Time | None = Field(description="Since when the oldest one waits.")
    completed_today: int = Field(description="Ended well.")
    failed_today: int = Field(description="Failed or timed out.")
    cancelled_today: int = Field(description="Cancelled.")
    sla_breaches_today: int = Field(description="Started too late.")
    average_execution_duration_seconds: float | None = Field(
        description="Of those that ended well."
    )


class ProviderOut(Told):
    """A customer's ended runs with one provider."""

    provider: str = Field(description="Which provider.")
    total_runs: int = Field(description="Ended runs.")
    successful_runs: int = Field(description="Ended well.")
    failed_runs: int = Field(description="Failed or timed out.")
    average_duration_seconds: float | None = Field(description="Of those that ended well.")
    sla_compliance_percentage: float | None = Field(description="Started in time.")


class MetricsOut(Told):
    """A customer's ended runs over a window."""

    customer_id: str = Field(description="Whose.")
    start_date: Time = Field(description="From.")
    end_date: Time = Field(description="Until.")
    total_runs: int = Field(description="Ended runs.")
    successful_runs: int = Field(description="Ended well.")
    failed_runs: int = Field(description="Failed or timed out.")
    average_duration_seconds: float | None = Field(description="Of those that ended well.")
    sla_compliance_percentage: float | None = Field(description="Started in time.")
    by_provider: list[ProviderOut] = Field(description="The same by provider.")


class AlertOut(Told):
    """An alert."""

    alert_id: str = Field(description="Its id.")
    rule: str = Field(description="Which rule.")
    severity: str = Field(description="INFO, MEDIUM, HIGH or CRITICAL.")
    customer_id: str | None = Field(description="Whose, if it is somebody's.")
    subject_kind: str = Field(description="What it is about.")
    subject: str = Field(description="Which one.")
    message: str = Field(description="In a sentence.")
    detail: Any = Field(description="More.")
    state: str = Field(description="open, acknowledged or resolved.")
    times: int = Field(description="How often it happened.")
    opened_at: Time = Field(description="Since when.")
    last_at: Time = Field(description="When it happened last.")
    closed_at: Time | None = Field(description="When it was closed.")
    closed_by: str | None = Field(description="Who closed it.")


class SessionOut(Told):
    """A live process."""

    session_id: str = Field(description="Its id.")
    kind: str = Field(description="What it does.")
    name: str = Field(description="How it calls itself.")
    host: str = Field(description="Where it runs.")
    pid: int = Field(description="Its process id.")
    pool: str | None = Field(description="The pool it serves.")
    slots: int = Field(description="Runs it executes at once.")
    held: int = Field(description="Runs it holds.")
    is_draining: bool = Field(description="Whether it is stopping.")
    started_at: Time = Field(description="Since when.")
    last_beat_at: Time = Field(description="When it was last heard of.")
    lease_until: Time = Field(description="When it counts as gone.")


class ProcessorOut(Told):
    """A processor of a pipeline."""

    phase: str = Field(description="Its phase.")
    processor: str = Field(description="Its name.")
    pool: str = Field(description="Its pool of workers.")
    is_entry: bool = Field(description="Whether a new flow starts with it.")
    max_execution_duration_minutes: float = Field(description="Longer runs time out.")


class PipelineOut(Told):
    """A registered pipeline."""

    pipeline_template: str = Field(description="Its name.")
    definition: JsonObject = Field(description="What was declared.")
    processors: list[ProcessorOut] = Field(description="Its processors.")


class PauseIn(Asked):
    """What to pause or resume."""

    scope: Literal["all", "customer", "pipeline", "config"] = Field(description="How much.")
    subject: str | None = Field(
        default=None, description="Which customer, pipeline or config; nothing for all."
    )
    reason: str = Field(default="", description="Why.", max_length=500)


class PauseOut(Told):
    """A pause in force."""

    scope: str = Field(description="How much.")
    subject: str | None = Field(description="Which one.")
    paused_at: Time = Field(description="Since when.")
    paused_by: str = Field(description="Who paused it.")
    reason: str = Field(description="Why.")


class Changed(Told):
    """Whether anything had to be done."""

    changed: bool = Field(description="False when it was so before.")


class KeyIn(Asked):
    """A new API key."""

    name: str = Field(description="What it is for.", examples=["nightly-worker"])
    role: Literal["admin", "operator", "worker", "viewer"] = Field(description="What it may do.")
    customer_id: str | None = Field(default=None, description="Bound to this customer.")
    expires: str | None = Field(default=None, description="A duration such as 90d.")
    rate: float | None = Field(default=None, description="Requests per second.", gt=0, le=100_000)


class RotateIn(Asked):
    """How long the old secret still works."""

    overlap: str = Field(default="24h", description="A duration such as 24h; 0s for none.")


class RevokeIn(Asked):
    """Why a key is ended."""

    reason: str = Field(default="", description="Why; written down.", max_length=500)


class KeyOut(Told):
    """An API key, without its secret."""

    key_id: str = Field(description="Its id.")
    name: str = Field(description="What it is for.")
    role: str = Field(description="What it may do.")
    customer_id: str | None = Field(description="Bound to this customer.")
    state: str = Field(description="active, rotating, expired or revoked.")
    rate: float | None = Field(description="Requests per second.")
    created_at: Time = Field(description="When it was made.")
    created_by: str = Field(description="Who made it.")
    expires_at: Time | None = Field(description="When it ends.")
    rotating_until: Time | None = Field(description="Until when its old secret holds as well.")
    revoked_at: Time | None = Field(description="When it was revoked.")
    revoked_by: str | None = Field(description="Who revoked it.")
    last_used_at: Time | None = Field(description="When it was last used, to a minute.")


class KeyMade(Told):
    """An API key with its secret, shown this once."""

    key: str | None = Field(
        description="The key. It cannot be shown again, not even to a repeated request."
    )
    info: KeyOut = Field(description="What is known of it.")
