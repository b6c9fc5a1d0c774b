"""Detect stalls: no scheduler, overdue occurrences, unclaimed ready runs, missed heartbeats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from penstock.core.clock import from_datetime
from penstock.flows.explain.facts import CLAIM_GRACE_US, HeartbeatFact
from penstock.flows.explain.times import LocalClock
from penstock.monitoring.records import Overview, Session
from penstock.schedules.liveness import NO_SCHEDULER, is_scheduler_alive

GRACE = timedelta(microseconds=CLAIM_GRACE_US)
OLDEST_READ = 20
"""Number of the oldest ready runs whose pipelines are named."""
PIPELINES_NAMED = 3
WITHOUT_SCHEDULER = f"{NO_SCHEDULER}: nothing starts on schedule and delayed runs wait"


def is_silent(session: Session, as_of: datetime) -> bool:
    """Return whether a process misses heartbeats, by the rule that explanations use."""
    at, until_at = from_datetime(session.heartbeat_at), from_datetime(session.lease_until)
    return HeartbeatFact(at=at, until_at=until_at).is_overdue(from_datetime(as_of))


def live_workers(sessions: Iterable[Session], as_of: datetime) -> list[Session]:
    """Return the workers whose lease has not ended, those that miss heartbeats included."""
    return [s for s in sessions if s.kind == "worker" and s.lease_until >= as_of]


def describe_live(live: Sequence[Session], as_of: datetime) -> str:
    """Say how many of the live workers miss heartbeats; empty if none does."""
    silent = sum(1 for one in live if is_silent(one, as_of))
    return f", {silent:,} of them silent" if silent else ""


def silent_workers(sessions: Iterable[Session], as_of: datetime) -> list[Session]:
    """Return the workers that miss heartbeats and have not been replaced yet, the first one first.

    One that is not replaced after its lease has no sweeper: no scheduler process runs.
    """
    found = [s for s in sessions if s.kind == "worker" and is_silent(s, as_of)]
    return sorted(found, key=lambda one: one.heartbeat_at)


def describe_missed_heartbeats(worker: Session, as_of: datetime) -> str:
    """Say since when a worker has sent no heartbeat, and when another takes its runs over."""
    local = LocalClock(from_datetime(as_of))
    until = from_datetime(worker.lease_until)
    when = f"after {local.exact(until)} UTC" if until > local.now else "any moment"
    runs = f"its {worker.held:,} run{'' if worker.held == 1 else 's'} will be taken over"
    return (
        f"worker {worker.name} has sent no heartbeat for "
        f"{local.ago(from_datetime(worker.heartbeat_at))}; "
        f"{runs if worker.held else 'it holds no runs and will be removed'} {when} "
        "unless it reports"
    )


def describe_incapable(pipelines: Iterable[str]) -> str:
    """Say why ready runs are not claimed although a worker has capacity.

    pipelines: those of the oldest ready runs.
    """
    names = list(dict.fromkeys(pipelines))
    more = ", …" if len(names) > PIPELINES_NAMED else ""
    what = "pipeline" if len(names) == 1 else "pipelines"
    named = f" ({what} {', '.join(names[:PIPELINES_NAMED])}{more})" if names else ""
    return f"no live worker seems to have their processors{named}: start one with --pipelines"


def is_scheduler_missing(
    overview: Overview, ticked: Iterable[datetime], now: datetime | None = None
) -> bool:
    """Return whether schedules or delayed runs need a scheduler and none is alive.

    ticked: the last tick of each service. now: when they were read, if later than the overview.
    """
    is_needed = overview.next_occurrence_at is not None or overview.later_runs > 0
    at = from_datetime(overview.as_of if now is None else now)
    return is_needed and not is_scheduler_alive(map(from_datetime, ticked), at)


def overdue(overview: Overview) -> timedelta:
    """Return how long the next occurrence is overdue; 0 up to `GRACE`."""
    return late_by(overview.next_occurrence_at, overview.as_of)


def late_by(due_at: datetime | None, as_of: datetime) -> timedelta:
    """Return how long something has been due; 0 if it is not, and up to `GRACE`."""
    late = timedelta(0) if due_at is None else as_of - due_at
    return late if late > GRACE else timedelta(0)


def unclaimed(overview: Overview, sessions: Iterable[Session]) -> timedelta:
    """Return how long ready runs have waited while a worker has capacity.

    0 if no run is ready, no worker has capacity, or the wait is up to `GRACE`. One that misses
    heartbeats may have ended: its capacity does not count.
    """
    is_free = any(
        not one.is_draining and one.held < one.concurrency and not is_silent(one, overview.as_of)
        for one in live_workers(sessions, overview.as_of)
    )
    if not overview.ready_runs or overview.oldest_ready_at is None or not is_free:
        return timedelta(0)
    waited = overview.as_of - overview.oldest_ready_at
    return waited if waited > GRACE else timedelta(0)
