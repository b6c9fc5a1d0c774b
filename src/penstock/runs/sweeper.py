"""The sweeper: finds what crashes left behind and repairs it through the ordinary code paths.

It handles expired sessions and leases; lapsed claims (back to the queue, dead the fifth time);
running runs without a live holder (STALE_EXECUTION, retried); runs over their time; missed unblocks
and pauses. Every repair is compare-and-set on the token that was read, so any number of sweepers
may run at the same time and nothing is repaired twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.audit.store.alerts import alert_resolve_healthy
from penstock.audit.telemetry import Events, Swept
from penstock.core.clock import SECOND
from penstock.db.store import Transactions, Tx
from penstock.limits.store.grant import limit_grant
from penstock.limits.store.limits import NO_REQUESTS, limit_lapsed, limit_trim
from penstock.runs import attempt_result
from penstock.runs.rows import HeldRun, RunEnd
from penstock.runs.states import MAX_LAPSES, RunState
from penstock.runs.store.admission import blocked_keys, pauses_apply
from penstock.runs.store.finish import run_end_many
from penstock.runs.store.leases import (
    lease_expire,
    lease_release_many,
    run_orphans,
    run_overdue,
    run_unleased,
    session_expire,
)
from penstock.runs.store.runs import run_lapse_many, run_unblock

BATCH = 500
OVERDUE_GRACE_US = 15 * SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCounts:
    """Counts of one sweep."""

    sessions: int = 0
    lapsed: int = 0
    stale: int = 0
    timed_out: int = 0
    unblocked: int = 0
    repaused: int = 0

    @property
    def total(self) -> int:
        """Number of repairs of all kinds."""
        return (
            self.sessions + self.lapsed + self.stale + self.timed_out + self.unblocked
            + self.repaused
        )  # fmt: skip


class Sweeper:
    """Service that finds and repairs lapsed work."""

    name = "sweeper"

    def __init__(
        self, store: Transactions, *, jitter: Callable[[], float], events: Events | None = None
    ) -> None:
        self._store = store
        self._jitter = jitter
        self._events = events or Events()

    def run_once(self) -> SweepCounts:
        """Make one bounded pass over everything that may have lapsed."""
        sessions = len(self._store.write(session_expire))
        self._store.write(lease_expire)
        lapsed = stale = timed_out = 0
        while True:
            counts = self._store.write(self._rescue)
            lapsed, stale = lapsed + counts[0], stale + counts[1]
            if sum(counts) < BATCH:
                break
        while True:
            count = self._store.write(self._time_out)
            timed_out += count
            if count < BATCH:
                break
        sweep = SweepCounts(
            sessions=sessions,
            lapsed=lapsed,
            stale=stale,
            timed_out=timed_out,
            unblocked=self._store.write(self._unblock),
            repaused=self._store.write(pauses_apply),
        )
        self._limits()
        self._store.write(alert_resolve_healthy)
        if sweep.total:
            self._store.wake(["admit", "flows"])
            if self._events.has_subscribers:
                event = Swept(sessions, lapsed, stale, timed_out, sweep.unblocked)
                self._events.emit(event)
        return sweep

    def _rescue(self, tx: Tx) -> tuple[int, int]:
        """Release claims whose holder is gone; end running runs, which are retried."""
        held = run_orphans(tx, BATCH)
        held += run_unleased(tx, BATCH - len(held)) if len(held) < BATCH else []
        back: list[HeldRun] = []
        ends: list[RunEnd] = []
        for run in held:
            if run.cancel_requested_at is not None:
                ends.append(
                    attempt_result.cancelled(run, actor="sweeper", why="cancelled, holder gone")
                )
            elif run.state == RunState.RUNNING:
                ends.append(attempt_result.stale(run, jitter=self._jitter()))
            elif run.lapses + 1 >= MAX_LAPSES:
                ends.append(attempt_result.claims_exhausted(run))
            else:
                back.append(run)
        lapsed = run_lapse_many(tx, [(run.run_id, run.token) for run in back])
        lease_release_many(tx, [("run", run.run_id, run.token) for run in back])
        return len(lapsed), len(run_end_many(tx, ends))

    def _time_out(self, tx: Tx) -> int:
        ends = [
            attempt_result.timed_out(run, jitter=self._jitter(), actor="sweeper")
            if run.cancel_requested_at is None
            else attempt_result.cancelled(run, actor="sweeper", why="cancelled, over its time")
            for run in run_overdue(tx, BATCH, OVERDUE_GRACE_US)
        ]
        return len(run_end_many(tx, ends))

    def _limits(self) -> None:
        """Free expired slots and tickets: run a grant for each limit that has any."""
        for limit_id in self._store.read(lambda tx: limit_lapsed(tx, BATCH)):
            served = self._store.write(lambda tx, n=limit_id: limit_grant(tx, n, NO_REQUESTS))  # type: ignore[misc]
            if served.channels:
                self._store.wake(served.channels)
        self._store.write(lambda tx: limit_trim(tx, BATCH))

    def _unblock(self, tx: Tx) -> int:
        keys = blocked_keys(tx, BATCH)
        return run_unblock(tx, keys) if keys else 0
