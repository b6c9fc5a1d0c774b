"""Request and response bodies of the overview, metrics, alerts, pipelines, pauses and keys."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from penstock.server.models import JsonObject, RequestModel, ResponseModel, Time
from penstock.server.openapi import texts


class SchedulerTickIn(RequestModel):
    """Options of a scheduler tick."""

    batch_size: int = Field(
        default=1000, description="Maximum number of configs per transaction.", ge=1, le=100_000
    )
    max_processing_time_seconds: float = Field(
        default=600, description="Time budget of the tick in seconds.", gt=0, le=3600
    )


class SchedulerTickOut(ResponseModel):
    """The result of a scheduler tick."""

    status: Literal["completed", "out_of_time"] = Field(
        description="`completed` if everything due was started, otherwise `out_of_time`."
    )
    total_configs_processed: int = Field(description="Number of configs that were due.")
    total_runs_created: int = Field(description="Number of runs that were created.")
    processing_time_seconds: float = Field(description="Duration of the tick in seconds.")


class OverviewOut(ResponseModel):
    """Counts of active runs, and of runs that ended since midnight UTC."""

    as_of: Time = Field(description=texts.AS_OF)
    next_slot_at: Time | None = Field(
        description="Scheduled time of the next occurrence; null for a key restricted to a "
        "customer."
    )
    pending_runs: int = Field(description="Number of runs that have not been claimed.")
    ready_runs: int = Field(description="Number of pending runs that wait for a worker.")
    later_runs: int = Field(description="Number of pending runs that are not due yet.")
    paused_runs: int = Field(description="Number of pending runs that a pause holds back.")
    blocked_runs: int = Field(
        description="Number of pending runs that wait behind an ordering key or a limit."
    )
    claimed_runs: int = Field(description="Number of claimed runs that have not started.")
    running_runs: int = Field(description="Number of runs that are executing.")
    oldest_ready_at: Time | None = Field(
        description="Time since which the oldest ready run waits; null if none does."
    )
    completed_today: int = Field(description="Number of runs completed since midnight UTC.")
    failed_today: int = Field(
        description="Number of runs that failed or timed out since midnight UTC."
    )
    cancelled_today: int = Field(description="Number of runs cancelled since midnight UTC.")
    sla_breaches_today: int = Field(
        description="Number of runs that ended since midnight UTC and had started after their SLA."
    )
    average_execution_duration_seconds: float | None = Field(description=texts.AVERAGE_SECONDS)


class ProviderOut(ResponseModel):
    """Ended runs of a customer with one provider."""

    provider: str = Field(description="Name of the provider, such as GCP; may be empty.")
    total_runs: int = Field(description=texts.ENDED_RUNS)
    successful_runs: int = Field(description=texts.SUCCESSFUL_RUNS)
    failed_runs: int = Field(description=texts.FAILED_RUNS)
    average_duration_seconds: float | None = Field(description=texts.AVERAGE_SECONDS)
    sla_compliance_percentage: float | None = Field(description=texts.SLA_SHARE)


class MetricsOut(ResponseModel):
    """Ended runs of a customer in a period."""

    customer_id: str = Field(description=texts.CUSTOMER)
    start_date: Time = Field(description="Start of the period, inclusive.")
    end_date: Time = Field(description="End of the period, exclusive.")
    total_runs: int = Field(description=texts.ENDED_RUNS)
    successful_runs: int = Field(description=texts.SUCCESSFUL_RUNS)
    failed_runs: int = Field(description=texts.FAILED_RUNS)
    average_duration_seconds: float | None = Field(description=texts.AVERAGE_SECONDS)
    sla_compliance_percentage: float | None = Field(description=texts.SLA_SHARE)
    by_provider: list[ProviderOut] = Field(description="The same figures for each provider.")


class AlertOut(ResponseModel):
    """A condition that needs attention."""

    alert_id: str = Field(description="Id of the alert (`alert_…`).")
    rule: str = Field(description="Name of the rule that raised it.")
    severity: str = Field(description="INFO, MEDIUM, HIGH or CRITICAL.")
    customer_id: str | None = Field(
        description="Customer concerned; null if it concerns the system."
    )
    subject_kind: str = Field(
        description="Kind of resource it is about, such as `config` or `flow`."
    )
    subject: str = Field(description="Id of the resource it is about.")
    message: str = Field(description="Description of the condition in one sentence.")
    detail: Any = Field(description="Further facts as a JSON object; may be empty.")
    state: str = Field(description="open, acknowledged or resolved.")
    times: int = Field(description="Number of times the condition occurred while it was open.")
    opened_at: Time = Field(description="Time of the first occurrence.")
    last_at: Time = Field(description="Time of the most recent occurrence.")
    closed_at: Time | None = Field(
        description="Time at which it was closed; null while it is open."
    )
    closed_by: str | None = Field(
        description="Name of the key or user that closed it; null while it is open."
    )


class SessionOut(ResponseModel):
    """A live process of the system."""

    session_id: str = Field(description="Id of the process's session.")
    kind: str = Field(description="Role of the process, such as `worker`.")
    name: str = Field(description="Name under which the process is registered.")
    host: str = Field(description="Host name of its machine.")
    pid: int = Field(description="Operating system's process id.")
    pool: str | None = Field(description="Worker pool that it serves; null if it is not a worker.")
    slots: int = Field(description="Number of runs that it executes concurrently.")
    held: int = Field(description="Number of runs that it holds.")
    is_draining: bool = Field(description="Whether it is shutting down and claims no more runs.")
    started_at: Time = Field(description="Time at which the process started.")
    last_beat_at: Time = Field(description="Time of its last heartbeat.")
    lease_until: Time = Field(
        description="Time at which it counts as lost unless it sends a heartbeat."
    )


class ProcessorOut(ResponseModel):
    """A processor of a pipeline."""

    phase: str = Field(description=texts.PHASE)
    processor: str = Field(description=texts.PROCESSOR)
    pool: str = Field(description="Pool of the workers that execute it.")
    is_entry: bool = Field(description="Whether new flows start with it.")
    max_execution_duration_minutes: float = Field(description=texts.MAX_DURATION)


class PipelineOut(ResponseModel):
    """A registered pipeline."""

    pipeline_template: str = Field(description=texts.PIPELINE)
    definition: JsonObject = Field(description="Declaration of the pipeline as JSON.")
    processors: list[ProcessorOut] = Field(description="Processors of all its phases.")


class ChangedOut(ResponseModel):
    """Whether the request changed anything."""

    changed: bool = Field(description="False if the requested state was already in place.")


class KeyIn(RequestModel):
    """An API key to create."""

    name: str = Field(description=texts.KEY_NAME, examples=["nightly-worker"])
    role: Literal["admin", "operator", "worker", "viewer"] = Field(description=texts.KEY_ROLE)
    customer_id: str | None = Field(default=None, description=texts.KEY_CUSTOMER)
    expires: str | None = Field(
        default=None, description="Lifetime as a duration such as `90d`; unlimited when omitted."
    )
    rate: float | None = Field(default=None, description=texts.KEY_RATE, gt=0, le=100_000)


class RotateIn(RequestModel):
    """Options of a key rotation."""

    overlap: str = Field(
        default="24h",
        description="Time that the old secret stays valid, as a duration; `0s` for none.",
    )


class RevokeIn(RequestModel):
    """The reason for revoking a key."""

    reason: str = Field(default="", description=texts.REASON, max_length=500)


class KeyOut(ResponseModel):
    """An API key without its secret."""

    key_id: str = Field(description="Id of the key (`key_…`).")
    name: str = Field(description=texts.KEY_NAME)
    role: str = Field(description=texts.KEY_ROLE)
    customer_id: str | None = Field(description=texts.KEY_CUSTOMER)
    state: str = Field(description="active, rotating, expired or revoked.")
    rate: float | None = Field(description=texts.KEY_RATE)
    created_at: Time = Field(description=texts.CREATED_AT)
    created_by: str = Field(description=texts.CREATED_BY)
    expires_at: Time | None = Field(description="Time at which it expires; null if it does not.")
    rotating_until: Time | None = Field(
        description="Time until which the old secret is valid too; null unless rotating."
    )
    revoked_at: Time | None = Field(description="Time at which it was revoked; null if it was not.")
    revoked_by: str | None = Field(
        description="Name of the key or user that revoked it; null if it was not."
    )
    last_used_at: Time | None = Field(
        description="Time of its last use, to the minute; null if it was never used."
    )


class KeyCreatedOut(ResponseModel):
    """An API key with its secret, which is returned only once."""

    key: str | None = Field(
        description="The key with its secret; null in the response to a repeated request."
    )
    info: KeyOut = Field(description="Properties of the key.")
