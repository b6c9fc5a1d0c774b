"""Checks of the installation over what it reports: workers, schedulers, pools, backlogs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from penstock.core.clock import MINUTE, Micros, from_datetime, iso
from penstock.core.naming import is_http_pool
from penstock.flows.explain.times import format_span
from penstock.monitoring.records import Overview, Session
from penstock.monitoring.stalls import (
    WITHOUT_SCHEDULER,
    describe_incapable,
    describe_live,
    describe_missed_heartbeats,
    is_scheduler_missing,
    late_by,
    live_workers,
    overdue,
    silent_workers,
    unclaimed,
)
from penstock.monitoring.system.records import ServiceTick, SystemCheck, Verdict
from penstock.schedules.liveness import NO_SCHEDULER, START, is_scheduler_alive
from penstock.usage.records import PoolLoad

OVERDUE: Final = timedelta(minutes=2)
OLD_READY: Final = timedelta(minutes=10)
MANY_READY: Final = 500
COUNTED_MAX: Final = 1_000
"""Number up to which alerts and dead letters are counted."""
LATE_US: Final = MINUTE
"""How long after its interval a service counts as late."""
NAMED: Final = 5
"""Number of workers without heartbeats that are named."""
UP: Final = "penstock up --pipelines my_pipelines.py"
WORKER: Final = "penstock worker --pipelines my_pipelines.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What the checks are about."""

    overview: Overview
    sessions: Sequence[Session]
    pools: Sequence[PoolLoad]
    services: Sequence[ServiceTick]
    dead_letters: int
    alerts: int
    severe_alerts: int
    """Number of open alerts that are HIGH or worse."""
    pauses: Sequence[str]
    """Scopes of the pauses."""
    next_delayed_at: datetime | None = None
    """When the first of the delayed runs is due."""
    unclaimed_pipelines: Sequence[str] = ()
    """Pipelines of the oldest ready runs, if a worker with capacity does not claim them."""


def is_late(now: Micros, ticked_at: Micros, interval_us: int) -> bool:
    """Whether a service that ticks in an interval has missed its next tick."""
    return now - ticked_at > interval_us + LATE_US


def system_checks(seen: Observed) -> list[SystemCheck]:
    """Return the outcome of each check, in the order in which work passes through the parts."""
    return [
        _workers(seen),
        *_silent(seen),
        _scheduler(seen),
        *_services(seen),
        *_pools(seen),
        _backlog(seen),
        _flows(seen.overview),
        _dead_letters(seen.dead_letters),
        _alerts(seen),
        *_pauses(seen.pauses),
    ]


def _check(check: str, verdict: Verdict, says: str, fix: str | None = None) -> SystemCheck:
    return SystemCheck(check=check, verdict=verdict, says=says, fix=fix)


def _workers(seen: Observed) -> SystemCheck:
    overview, live = seen.overview, _live(seen)
    waits = unclaimed(overview, seen.sessions)
    if waits:
        says = (
            f"{_plural(overview.ready_runs, 'run')} ready for up to {_span(waits)}, workers idle: "
            f"{describe_incapable(seen.unclaimed_pipelines)}"
        )
        return _check("workers", "WARN", says, WORKER)
    if live:
        concurrency = sum(one.concurrency for one in live)
        late = describe_live(live, overview.as_of)
        says = f"{_plural(len(live), 'worker')} alive{late}, total concurrency {concurrency:,}"
        return _check("workers", "OK", says)
    if overview.ready_runs:
        says = f"none alive, {_plural(overview.ready_runs, 'run')} ready"
        return _check("workers", "FAIL", says, UP)
    return _check("workers", "WARN", "none alive; no run is ready now", UP)


def _live(seen: Observed) -> list[Session]:
    return live_workers(seen.sessions, seen.overview.as_of)


def _silent(seen: Observed) -> Iterator[SystemCheck]:
    """Name the workers that miss heartbeats, until their runs are taken over."""
    as_of = seen.overview.as_of
    silent = silent_workers(seen.sessions, as_of)
    for one in silent[:NAMED]:
        fix = f"Check process {one.pid} on {one.host}, and start it again if it has ended."
        yield _check("heartbeats", "WARN", describe_missed_heartbeats(one, as_of), fix)
    if len(silent) > NAMED:
        says = f"{_plural(len(silent) - NAMED, 'more worker')} without heartbeats"
        yield _check("heartbeats", "WARN", says, "penstock status")


def _scheduler(seen: Observed) -> SystemCheck:
    """Check that a scheduler is alive if anything needs one, and that occurrences start on time."""
    overview = seen.overview
    late, next_at = overdue(overview), overview.next_occurrence_at
    if is_scheduler_missing(overview, _ticked(seen)):
        due = f"an occurrence has been due for {_span(late)}" if late else ""
        if delayed := late_by(seen.next_delayed_at, overview.as_of):
            due = due or f"a delayed run has been due for {_span(delayed)}"
        if due:
            # Before the first process was ever started nothing is in operation that could fail.
            is_used = bool(seen.services or _live(seen))
            verdict: Verdict = "FAIL" if is_used else "WARN"
            return _check("scheduler", verdict, f"{NO_SCHEDULER}, and {due}", START)
        return _check("scheduler", "WARN", WITHOUT_SCHEDULER, START)
    if next_at is None:
        return _check("scheduler", "OK", "no config is scheduled")
    if not late:
        return _check("scheduler", "OK", f"next occurrence {iso(from_datetime(next_at))}")
    says = f"next occurrence overdue by {_span(late)} although a scheduler is running"
    verdict = "FAIL" if late > OVERDUE else "WARN"
    return _check("scheduler", verdict, says, "Read the log of the scheduler process.")


def _ticked(seen: Observed) -> list[datetime]:
    return [one.ticked_at for one in seen.services]


def _services(seen: Observed) -> Iterator[SystemCheck]:
    """Check that each service ticks; without any tick no scheduler was ever started."""
    if not seen.services:
        return
    now = from_datetime(seen.overview.as_of)
    ticked = [from_datetime(at) for at in _ticked(seen)]
    late = [one.service for one in seen.services if one.is_late]
    if not is_scheduler_alive(ticked, now):
        says = f"{NO_SCHEDULER}: the last service ticked {format_span(now - max(ticked))} ago"
        yield _check("services", "WARN", says, START)
    elif late:
        says = f"{', '.join(late)}: overdue; the log of the scheduler process says why"
        yield _check("services", "WARN", says, "Read the log, then restart that process.")
    else:
        yield _check("services", "OK", f"{_plural(len(seen.services), 'service')} tick")


def _pools(seen: Observed) -> Iterator[SystemCheck]:
    unserved = [
        one
        for one in seen.pools
        if one.ready_runs and not one.workers and not is_http_pool(one.pool)
    ]
    is_served = bool(_live(seen))
    for one in unserved:
        says = f"pool {one.pool}: {_plural(one.ready_runs, 'run')} ready, no worker serves it"
        fix = f"penstock worker --pool {one.pool} --pipelines my_pipelines.py"
        yield _check("pools", "FAIL" if is_served else "WARN", says, fix)
    if not unserved:
        says = "every pool with ready runs has a worker"
        if unclaimed(seen.overview, seen.sessions):
            says += ", but none claims them: see workers"
        yield _check("pools", "OK", says)


def _backlog(seen: Observed) -> SystemCheck:
    overview = seen.overview
    oldest, ready = overview.oldest_ready_at, overview.ready_runs
    waits = timedelta(0) if oldest is None or not ready else overview.as_of - oldest
    if waits > OLD_READY:
        says = f"{_plural(ready, 'run')} ready, the oldest for {_span(waits)}"
        is_idle = unclaimed(overview, seen.sessions)
        more = "Add workers or raise their concurrency: penstock worker --slots 20"
        fix = WORKER if is_idle else more
        return _check("backlog", "WARN", says, fix)
    if ready >= MANY_READY:
        says = f"{_plural(ready, 'run')} ready, more than the workers can keep up with"
        return _check("backlog", "WARN", says, "penstock status, penstock worker --slots 20")
    return _check("backlog", "OK", f"{_plural(ready, 'run')} ready")


def _flows(overview: Overview) -> SystemCheck:
    blocked, waiting = overview.blocked_flows, overview.waiting_flows
    if blocked:
        says = f"{_plural(blocked, 'flow')} blocked by a gate, {waiting:,} waiting for data"
        return _check("flows", "WARN", says, "penstock flows list --state BLOCKED")
    return _check("flows", "OK", f"none blocked, {waiting:,} waiting for data")


def _dead_letters(count: int) -> SystemCheck:
    if not count:
        return _check("dead letters", "OK", "none open")
    many = f"{COUNTED_MAX}+" if count >= COUNTED_MAX else str(count)
    says = f"{many} open: runs and messages that are no longer retried"
    return _check("dead letters", "WARN", says, "penstock dlq groups")


def _alerts(seen: Observed) -> SystemCheck:
    if not seen.alerts:
        return _check("alerts", "OK", "none open")
    says = f"{seen.alerts} open, {seen.severe_alerts} of them HIGH or worse"
    return _check("alerts", "WARN", says, "penstock alerts list")


def _pauses(scopes: Sequence[str]) -> Iterator[SystemCheck]:
    if "all" in scopes:
        yield _check("pauses", "WARN", "everything is paused", "penstock resume all")
    elif scopes:
        yield _check("pauses", "OK", f"{_plural(len(scopes), 'pause')} in force")


def _span(span: timedelta) -> str:
    return format_span(span // timedelta(microseconds=1))


def _plural(n: int, word: str) -> str:
    return f"{n:,} {word if n == 1 else word + 's'}"
