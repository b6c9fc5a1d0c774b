"""Records of limits from the rows of the store."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.clock import Micros
from penstock.core.formatting import id_or_none
from penstock.core.ids import encode
from penstock.core.records.record import seconds, time, time_or_none
from penstock.limits.estimates import taken_last_minute
from penstock.limits.records import (
    CapacityChange,
    Limit,
    LimitHistory,
    LimitLease,
    LimitWaiter,
    WaitTimes,
)
from penstock.limits.store.reads import CapacityRow, LimitEvent, LimitView
from penstock.limits.store.rows import LeaseRow, TicketRow


def limit_record(view: LimitView, now: Micros) -> Limit:
    """Convert a limit row to its public record."""
    row = view.limit
    used = taken_last_minute(now, minute=row.minute, taken=row.taken, before=row.taken_before)
    return Limit(
        name=row.name,
        capacity=row.capacity,
        effective_capacity=row.effective,
        learned_capacity=row.learned,
        is_adaptive=bool(row.is_adaptive),
        floor=row.floor,
        rate=row.rate,
        burst=row.burst,
        lease=seconds(row.lease_us),
        grace=seconds(row.grace_us),
        queue_max=row.queue_max,
        held=view.held,
        holders=view.holders,
        waiting=view.waiting,
        waiting_runs=view.waiting_runs,
        quota_errors=row.quota_errors,
        last_quota_error_at=time_or_none(row.last_quota_at),
        updated_at=time(row.updated_at),
        updated_by=row.updated_by,
        used_last_minute=None if row.rate is None else used,
    )


def lease_record(row: LeaseRow) -> LimitLease:
    """Return the record of a slot that is held."""
    return LimitLease(
        lease_id=encode("lease", row.lease_id),
        holder=row.holder,
        run_id=id_or_none("run", row.run_id),
        weight=row.weight,
        fencing_token=row.token,
        asked_at=time(row.requested_at),
        since=time(row.since_at),
        until=time_or_none(row.until_at),
        renewed_at=time_or_none(_renewed_at(row)),
    )


def _renewed_at(row: LeaseRow) -> Micros | None:
    """Return when a lease was last renewed: its expiry less its duration."""
    if row.until_at is None or row.lease_us is None:
        return None
    return max(row.since_at, row.until_at - row.lease_us)


def waiter_record(position: int, row: TicketRow, likely_at: Micros | None) -> LimitWaiter:
    """Return the record of a waiting caller."""
    return LimitWaiter(
        position=position,
        holder=row.holder,
        run_id=id_or_none("run", row.run_id),
        weight=row.weight,
        asked_at=time(row.asked_at),
        likely_at=time_or_none(likely_at),
    )


def capacity_record(row: CapacityRow) -> CapacityChange:
    """Return the record of a change of a limit's capacity."""
    return CapacityChange(
        at=time(row.at), capacity=row.capacity, before=row.before, cause=row.cause
    )


def history_record(event: LimitEvent) -> LimitHistory:
    """Return the record of a finished wait or hold."""
    return LimitHistory(
        holder=event.holder,
        run_id=id_or_none("run", event.run_id),
        weight=event.weight,
        outcome=event.outcome,
        asked_at=time_or_none(event.asked_at),
        since=time_or_none(event.since_at),
        at=time(event.at),
    )


def wait_times(history: Sequence[LimitEvent]) -> WaitTimes:
    """Compute waiting times from a limit's recent history, including waits that timed out."""
    return waits_of(
        [
            (event.at if event.since_at is None else event.since_at) - event.asked_at
            for event in history
            if event.asked_at is not None and event.outcome != "quota"
        ]
    )


def waits_of(measured: Sequence[int]) -> WaitTimes:
    """Compute percentiles of waits, and the share of requests that had to wait."""
    waits = sorted(max(0, wait) for wait in measured) or [0]

    def at(share: float) -> int:
        return waits[min(len(waits) - 1, int(share * len(waits)))]

    return WaitTimes(
        measured=len(measured),
        p50=seconds(at(0.5)),
        p95=seconds(at(0.95)),
        p99=seconds(at(0.99)),
        contention=sum(1 for wait in waits if wait > 0) / len(waits),
    )
