"""Limits in requests and answers."""

from __future__ import annotations

from pydantic import Field

from penstock.server.models import Asked, Time, Told


class LimitOut(Told):
    """A limit."""

    name: str = Field(description="Its name.", examples=["bq:nba_raw.br_rosters_current"])
    capacity: int | None = Field(description="How much may be held; null: any amount.")
    effective_capacity: int | None = Field(description="How much may be held now.")
    learned_capacity: float | None = Field(description="What quota errors taught, if anything.")
    adaptive: bool = Field(description="Whether quota errors lower it for a while.")
    floor: int = Field(description="The least they may lower it to.")
    rate: float | None = Field(description="Tokens a second.")
    burst: int | None = Field(description="How many may be saved up.")
    lease_seconds: float = Field(description="How long a slot is held without renewal.")
    grace_seconds: float = Field(description="How long one that ran out still counts.")
    queue_max: int | None = Field(description="Most who may wait; null: any number.")
    held: int = Field(description="Weight that is held now.")
    holders: int = Field(description="How many hold it.")
    waiting: int = Field(description="How many wait in line.")
    waiting_runs: int = Field(description="How many runs wait for it in the queue.")
    quota_errors: int = Field(description="Reported so far.")
    last_quota_error_at: Time | None = Field(description="When the last one was reported.")
    updated_at: Time = Field(description="When it was last changed.")
    updated_by: str = Field(description="By whom.")


class LeaseOut(Told):
    """Who holds a slot."""

    lease_id: str = Field(description="Its id.")
    holder: str = Field(description="Who.")
    run_id: str | None = Field(description="The run it belongs to.")
    weight: int = Field(description="How much of the limit.")
    fencing_token: int = Field(description="Rises with every slot; sinks refuse older ones.")
    asked_at: Time = Field(description="When it was asked for.")
    since: Time = Field(description="Since when it is held.")
    until: Time | None = Field(description="Until when, unless renewed; null: as its run.")


class TicketOut(Told):
    """Who waits."""

    place: int = Field(description="In line, from 1.")
    holder: str = Field(description="Who.")
    run_id: str | None = Field(description="The run it belongs to.")
    weight: int = Field(description="How much is wanted.")
    asked_at: Time = Field(description="Since when.")


class LimitNoteOut(Told):
    """One of the last waits and holds."""

    holder: str = Field(description="Who.")
    run_id: str | None = Field(description="The run it belonged to.")
    weight: int = Field(description="How much of the limit.")
    outcome: str = Field(
        description="released, expired, forced, timeout, abandoned, refused or quota."
    )
    asked_at: Time | None = Field(description="When it was asked for.")
    since: Time | None = Field(description="Since when it was held.")
    at: Time = Field(description="When it ended.")


class WaitsOut(Told):
    """How long the last holders waited."""

    measured: int = Field(description="Of how many.")
    p50_seconds: float = Field(description="Half of them at most so long.")
    p95_seconds: float = Field(description="95 % at most so long.")
    p99_seconds: float = Field(description="99 % at most so long.")
    contention: float = Field(description="The share that had to wait at all.")


class LimitDetailOut(Told):
    """A limit in full."""

    limit: LimitOut = Field(description="The limit.")
    waits: WaitsOut = Field(description="Of the last hundred.")
    holders: list[LeaseOut] = Field(description="Who holds it, the longest first; at most 200.")
    queue: list[TicketOut] = Field(description="Who waits, in order; at most 200.")
    history: list[LimitNoteOut] = Field(description="The last 100 waits and holds.")


class LimitIn(Asked):
    """How a limit is configured; what is left out stays as it is."""

    name: str = Field(description="Its name.", max_length=200)
    capacity: int | None = Field(default=None, description="How much may be held.", ge=0)
    adaptive: bool | None = Field(default=None, description="Whether quota errors lower it.")
    floor: int | None = Field(default=None, description="The least they may lower it to.", ge=1)
    rate: float | None = Field(default=None, description="Tokens a second.", gt=0)
    burst: int | None = Field(default=None, description="How many may be saved up.", ge=1)
    lease: str | None = Field(default=None, description="A duration such as 10m.", max_length=32)
    grace: str | None = Field(default=None, description="A duration such as 30s.", max_length=32)
    queue_max: int | None = Field(default=None, description="Most who may wait.", ge=0)


class ReleaseIn(Asked):
    """Which slot is taken away, and why."""

    lease_id: str = Field(description="The slot.", max_length=64)
    reason: str = Field(description="Why; written down.", min_length=1, max_length=255)
