"""Records of limits: the limit with its use, its holders, its queue and its history."""

from __future__ import annotations

from typing import Annotated

from penstock.core.naming import LIMIT_NAME_MAX
from penstock.core.records.record import Meta, Record, Seconds, Time, field

__all__ = [
    "CapacityChange",
    "Limit",
    "LimitDetail",
    "LimitHistory",
    "LimitLease",
    "LimitName",
    "LimitWaiter",
    "WaitTimes",
]

LimitName = Annotated[
    str, Meta(description="Unique name of the limit.", examples=["bq:t"], max_length=LIMIT_NAME_MAX)
]


class Limit(Record):
    """A limit with its current use."""

    name: LimitName
    """Unique name of the limit."""
    capacity: int | None
    """Total weight that may be held at once; null for no bound."""
    effective_capacity: int | None
    """Weight that may currently be held, with the learned capacity applied; null for no bound."""
    learned_capacity: float | None
    """Capacity learned from quota errors; null if nothing was learned."""
    is_adaptive: bool = field(name="adaptive")
    """Whether quota errors lower the capacity temporarily."""
    floor: int
    """Lowest capacity that quota errors may reduce it to."""
    rate: float | None
    """Tokens added per second; null for no rate limit."""
    burst: int | None
    """Maximum number of accumulated tokens; one second's worth when null."""
    lease: Seconds = field(name="lease_seconds")
    """Seconds after which a slot expires if it is not renewed."""
    grace: Seconds = field(name="grace_seconds")
    """Seconds that an expired slot still counts as held."""
    queue_max: int | None
    """Maximum number of waiting callers; further ones are rejected. Null for no maximum."""
    held: int
    """Total weight that is held now."""
    holders: int
    """Number of slots that are held now."""
    waiting: int
    """Number of callers waiting for a slot."""
    waiting_runs: int
    """Number of queued runs that wait for the limit."""
    quota_errors: int
    """Number of quota errors reported so far."""
    last_quota_error_at: Time | None
    """Time of the last quota error; null if there was none."""
    updated_at: Time
    """Time of the last change."""
    updated_by: str
    """Name of the key or user that changed it last."""
    used_last_minute: int | None = None
    """Approximate number of tokens granted in the last 60 seconds; null without a rate."""


class LimitLease(Record):
    """A slot that is held."""

    lease_id: str
    """Id of the lease (`lease_…`)."""
    holder: str
    """Name of the process or run that holds the slot."""
    run_id: str | None
    """Run that the slot was requested for; null outside of a run."""
    weight: int
    """Weight of the slot, counted against the capacity."""
    fencing_token: int
    """Fencing token, which increases with every grant; sinks reject writes with an older one."""
    asked_at: Time
    """Time at which the slot was requested."""
    since: Time
    """Time at which the slot was granted."""
    until: Time | None
    """Time at which the slot expires; null if it is held until its run ends."""
    renewed_at: Time | None = None
    """Time of the last renewal, or of the grant if there was none; null if it never expires."""


class LimitWaiter(Record):
    """A caller waiting for a slot."""

    position: int = field(name="place")
    """Position in the queue, counted from 1."""
    holder: str
    """Name of the process or run that requests the slot."""
    run_id: str | None
    """Run that the slot was requested for; null outside of a run."""
    weight: int
    """Weight of the slot, counted against the capacity."""
    asked_at: Time
    """Time at which the slot was requested."""
    likely_at: Time | None = field(name="turn_at", default=None)
    """Estimated time at which it gets its slot, from recent holds; null if unknown."""


class CapacityChange(Record):
    """A change of a limit's effective capacity."""

    at: Time
    """Time of the change."""
    capacity: int | None
    """Weight that could be held from then on; null for no bound."""
    before: int | None
    """Weight that could be held until then; null for no bound."""
    cause: Annotated[str, Meta(examples=["quota"])]
    """Cause: `set` by a person, lowered by a `quota` error, or raised by `success`."""


class LimitHistory(Record):
    """A finished wait or hold."""

    holder: str
    """Name of the process or run that held or requested the slot."""
    run_id: str | None
    """Run that the slot was requested for; null outside of a run."""
    weight: int
    """Weight of the slot, counted against the capacity."""
    outcome: str
    """How it ended: released, expired, forced, timeout, abandoned, refused or quota."""
    asked_at: Time | None
    """Time at which the slot was requested."""
    since: Time | None
    """Time at which the slot was granted; null if it never was."""
    at: Time
    """Time at which the wait or hold ended."""


class WaitTimes(Record):
    """Waiting times of the most recent holders."""

    measured: int
    """Number of waits that the figures are based on."""
    p50: Seconds = field(name="p50_seconds")
    """Median waiting time in seconds."""
    p95: Seconds = field(name="p95_seconds")
    """95th percentile of the waiting time in seconds."""
    p99: Seconds = field(name="p99_seconds")
    """99th percentile of the waiting time in seconds."""
    contention: float
    """Share of requests, from 0 to 1, that had to wait."""


class LimitDetail(Record):
    """A limit with its holders, queue and history."""

    limit: Limit
    """Settings and current use of the limit."""
    waits: WaitTimes
    """Waiting times over the last 100 waits and holds."""
    holders: list[LimitLease]
    """Slots that are held, oldest first; at most 200."""
    queue: list[LimitWaiter]
    """Waiting callers in order; at most 200."""
    history: list[LimitHistory]
    """The last 100 waits and holds."""
    capacity_series: list[CapacityChange] = field(default_factory=list)
    """The last 100 changes of the effective capacity, oldest first."""
