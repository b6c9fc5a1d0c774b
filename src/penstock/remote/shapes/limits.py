"""Shared capacity and rates: holders, the line, learning.

Written by `python -m penstock.remote.generate docs/reference/openapi.json`; do not edit.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class LimitOut(TypedDict):
    """A limit."""

    name: str  # Its name.
    capacity: int | None  # How much may be held; null: any amount.
    effective_capacity: int | None  # How much may be held now.
    learned_capacity: float | None  # What quota errors taught, if anything.
    adaptive: bool  # Whether quota errors lower it for a while.
    floor: int  # The least they may lower it to.
    rate: float | None  # Tokens a second.
    burst: int | None  # How many may be saved up.
    lease_seconds: float  # How long a slot is held without renewal.
    grace_seconds: float  # How long one that ran out still counts.
    queue_max: int | None  # Most who may wait; null: any number.
    held: int  # Weight that is held now.
    holders: int  # How many hold it.
    waiting: int  # How many wait in line.
    waiting_runs: int  # How many runs wait for it in the queue.
    quota_errors: int  # Reported so far.
    last_quota_error_at: str | None  # When the last one was reported.
    updated_at: str  # When it was last changed.
    updated_by: str  # By whom.


class LimitPage(TypedDict):
    """A page of a list."""

    items: list[LimitOut]  # The things on this page.
    next_cursor: str | None  # Give it as `cursor` for the next page; null on the last one.


class LimitIn(TypedDict):
    """How a limit is configured; what is left out stays as it is."""

    name: str  # Its name.
    capacity: NotRequired[int | None]  # How much may be held.
    adaptive: NotRequired[bool | None]  # Whether quota errors lower it.
    floor: NotRequired[int | None]  # The least they may lower it to.
    rate: NotRequired[float | None]  # Tokens a second.
    burst: NotRequired[int | None]  # How many may be saved up.
    lease: NotRequired[str | None]  # A duration such as 10m.
    grace: NotRequired[str | None]  # A duration such as 30s.
    queue_max: NotRequired[int | None]  # Most who may wait.


class WaitsOut(TypedDict):
    """How long the last holders waited."""

    measured: int  # Of how many.
    p50_seconds: float  # Half of them at most so long.
    p95_seconds: float  # 95 % at most so long.
    p99_seconds: float  # 99 % at most so long.
    contention: float  # The share that had to wait at all.


class LeaseOut(TypedDict):
    """Who holds a slot."""

    lease_id: str  # Its id.
    holder: str  # Who.
    run_id: str | None  # The run it belongs to.
    weight: int  # How much of the limit.
    fencing_token: int  # Rises with every slot; sinks refuse older ones.
    asked_at: str  # When it was asked for.
    since: str  # Since when it is held.
    until: str | None  # Until when, unless renewed; null: as its run.


class TicketOut(TypedDict):
    """Who waits."""

    place: int  # In line, from 1.
    holder: str  # Who.
    run_id: str | None  # The run it belongs to.
    weight: int  # How much is wanted.
    asked_at: str  # Since when.


class LimitNoteOut(TypedDict):
    """One of the last waits and holds."""

    holder: str  # Who.
    run_id: str | None  # The run it belonged to.
    weight: int  # How much of the limit.
    outcome: str  # released, expired, forced, timeout, abandoned, refused or quota.
    asked_at: str | None  # When it was asked for.
    since: str | None  # Since when it was held.
    at: str  # When it ended.


class LimitDetailOut(TypedDict):
    """A limit in full."""

    limit: LimitOut  # The limit.
    waits: WaitsOut  # Of the last hundred.
    holders: list[LeaseOut]  # Who holds it, the longest first; at most 200.
    queue: list[TicketOut]  # Who waits, in order; at most 200.
    history: list[LimitNoteOut]  # The last 100 waits and holds.


class ReleaseIn(TypedDict):
    """Which slot is taken away, and why."""

    lease_id: str  # The slot.
    reason: str  # Why; written down.
