"""Request and response bodies of limits."""

from __future__ import annotations

from pydantic import Field

from penstock.server.models import RequestModel, ResponseModel, Time
from penstock.server.openapi import texts


class LimitOut(ResponseModel):
    """A limit with its current use."""

    name: str = Field(
        description="Unique name of the limit.", examples=["bq:nba_raw.br_rosters_current"]
    )
    capacity: int | None = Field(
        description="Total weight that may be held at once; null for no bound."
    )
    effective_capacity: int | None = Field(
        description="Weight that may be held at present, after learning; null for no bound."
    )
    learned_capacity: float | None = Field(
        description="Capacity learned from quota errors; null if nothing was learned."
    )
    adaptive: bool = Field(description=texts.LIMIT_ADAPTIVE)
    floor: int = Field(description=texts.LIMIT_FLOOR)
    rate: float | None = Field(description=texts.LIMIT_RATE)
    burst: int | None = Field(description=texts.LIMIT_BURST)
    lease_seconds: float = Field(description="Seconds that a slot is held without renewal.")
    grace_seconds: float = Field(description="Seconds that an expired slot still counts as held.")
    queue_max: int | None = Field(description=texts.LIMIT_QUEUE_MAX)
    held: int = Field(description="Total weight that is held now.")
    holders: int = Field(description="Number of slots that are held now.")
    waiting: int = Field(description="Number of callers waiting for a slot.")
    waiting_runs: int = Field(description="Number of queued runs that wait for the limit.")
    quota_errors: int = Field(description="Number of quota errors reported so far.")
    last_quota_error_at: Time | None = Field(
        description="Time of the last quota error; null if there was none."
    )
    updated_at: Time = Field(description=texts.UPDATED_AT)
    updated_by: str = Field(description="Name of the key or user that changed it last.")


class LeaseOut(ResponseModel):
    """A slot that is held."""

    lease_id: str = Field(description=texts.LEASE_ID)
    holder: str = Field(description=texts.LEASE_HOLDER)
    run_id: str | None = Field(description=texts.LEASE_RUN)
    weight: int = Field(description=texts.LEASE_WEIGHT)
    fencing_token: int = Field(
        description="Token that increases with every slot; sinks refuse writes with an older one."
    )
    asked_at: Time = Field(description=texts.ASKED_AT)
    since: Time = Field(description="Time at which the slot was granted.")
    until: Time | None = Field(
        description="Time at which the slot expires; null if it is held until its run ends."
    )


class LimitWaiterOut(ResponseModel):
    """A caller waiting for a slot."""

    place: int = Field(description="Position in the queue, counted from 1.")
    holder: str = Field(description=texts.LEASE_HOLDER)
    run_id: str | None = Field(description=texts.LEASE_RUN)
    weight: int = Field(description=texts.LEASE_WEIGHT)
    asked_at: Time = Field(description=texts.ASKED_AT)


class LimitHistoryOut(ResponseModel):
    """A finished wait or hold."""

    holder: str = Field(description=texts.LEASE_HOLDER)
    run_id: str | None = Field(description=texts.LEASE_RUN)
    weight: int = Field(description=texts.LEASE_WEIGHT)
    outcome: str = Field(
        description="released, expired, forced, timeout, abandoned, refused or quota."
    )
    asked_at: Time | None = Field(description=texts.ASKED_AT)
    since: Time | None = Field(
        description="Time at which the slot was granted; null if it never was."
    )
    at: Time = Field(description="Time at which the wait or hold ended.")


class WaitTimesOut(ResponseModel):
    """Waiting times of the most recent holders."""

    measured: int = Field(description="Number of waits that the figures are based on.")
    p50_seconds: float = Field(description="Median waiting time in seconds.")
    p95_seconds: float = Field(description="95th percentile of the waiting time in seconds.")
    p99_seconds: float = Field(description="99th percentile of the waiting time in seconds.")
    contention: float = Field(description="Share of requests, from 0 to 1, that had to wait.")


class LimitDetailOut(ResponseModel):
    """A limit with its holders, queue and history."""

    limit: LimitOut = Field(description="Settings and current use of the limit.")
    waits: WaitTimesOut = Field(description="Waiting times over the last 100 waits and holds.")
    holders: list[LeaseOut] = Field(description="Slots that are held, oldest first; at most 200.")
    queue: list[LimitWaiterOut] = Field(description="Waiting callers in order; at most 200.")
    history: list[LimitHistoryOut] = Field(description="The last 100 waits and holds.")


class LimitIn(RequestModel):
    """Settings of a limit; omitted settings keep their values."""

    name: str = Field(
        description="Unique name of the limit; it is created if it does not exist.", max_length=200
    )
    capacity: int | None = Field(
        default=None, description="Total weight that may be held at once; 10 for a new limit.", ge=0
    )
    adaptive: bool | None = Field(default=None, description=texts.LIMIT_ADAPTIVE)
    floor: int | None = Field(default=None, description=texts.LIMIT_FLOOR, ge=1)
    rate: float | None = Field(default=None, description=texts.LIMIT_RATE, gt=0)
    burst: int | None = Field(default=None, description=texts.LIMIT_BURST, ge=1)
    lease: str | None = Field(
        default=None,
        description="Time that a slot is held without renewal, as a duration such as `10m`.",
        max_length=32,
    )
    grace: str | None = Field(
        default=None,
        description="Time that an expired slot still counts as held, as a duration such as `30s`.",
        max_length=32,
    )
    queue_max: int | None = Field(
        default=None,
        description=texts.LIMIT_QUEUE_MAX,
        ge=0,
    )


class LimitReleaseIn(RequestModel):
    """A slot to take away from its holder."""

    lease_id: str = Field(description=texts.LEASE_ID, max_length=64)
    reason: str = Field(description=texts.REASON, min_length=1, max_length=255)
