"""The sweeper: repairs state that crashes left behind, through the ordinary code paths.

It handles expired sessions and leases; lapsed claims (back to the queue, dead the fifth time);
running runs without a live holder (STALE_EXECUTION, retried); runs that exceeded their time limit;
runs that were not started in time (EXPIRED); missed unblocks and pauses. Every repair is
compare-and-set on the token that was read, so any number of sweepers may run at the same time and
nothing is repaired twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import (
    alert_open,
    alert_resolve_healthy,
    alert_resolve_quiet,
)
from penstock.audit.telemetry import Events, Swept
from penstock.core.clock import HOUR, SECOND
from penstock.core.errors import StoreBusy, StoreUnavailable
from penstock.core.ids import encode
from penstock.db.isolation import IsolatedBatches
from penstock.db.store import Transactions, Tx
from penstock.limits.store.grant import limit_grant
from penstock.limits.store.limits import NO_REQUESTS, limit_lapsed, limit_trim
from penstock.runs import attempt_result
from penstock.runs.rows import HeldRun, RunEnd
from penstock.runs.states import MAX_LAPSES, RunState
from penstock.runs.store.admission import blocked_keys, pauses_apply
from penstock.runs.store.end_events import emit_ends_after_commit
from penstock.runs.store.expiry import RULE, run_expire_many, run_expired
from penstock.runs.store.finish import run_end_many, run_lapse_many
from penstock.runs.store.leases import (
    lease_expire,
    lease_release_many,
    run_orphans,
    run_overdue,
    run_unleased,
    session_expire,
)
from penstock.runs.store.runs import run_unblock

BATCH = 500
OVERDUE_GRACE_US = 15 * SECOND
RETURN_GRACE_US = 15 * SECOND
"""Grace period after a database outage, in which sessions and leases are not expired: their holders
could not renew them and will do so with their next heartbeat.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepCounts:
    """Counts of one sweep."""

    sessions: int = 0
    lapsed: int = 0
    stale: int = 0
    timed_out: int = 0
    expired: int = 0
    unblocked: int = 0
    repaused: int = 0

    @property
    def total(self) -> int:
        """Number of repairs of all kinds."""
        return (
            self.sessions + self.lapsed + self.stale + self.timed_out + self.expired
            + self.unblocked + self.repaused
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
        self._rescues = IsolatedBatches(store, BATCH, _stuck)
        self._overdue = IsolatedBatches(store, BATCH, _stuck)
        self._expired = IsolatedBatches(store, BATCH, _stuck)
        self._was_away = False
        self._expires_from = 0

    def run_once(self) -> SweepCounts:
        """Make one bounded pass over everything that may have lapsed."""
        try:
            return self._sweep()
        except (StoreUnavailable, StoreBusy):
            self._was_away = True
            raise

    def _expire(self) -> int:
        """Expire sessions and leases, unless their holders need time to renew them."""
        if self._was_away or self._expires_from:
            now = self._store.read(lambda tx: tx.now())
            if self._was_away:
                self._expires_from, self._was_away = now + RETURN_GRACE_US, False
            if now < self._expires_from:
                return 0
            self._expires_from = 0
        sessions = len(self._store.write(session_expire))
        self._store.write(lease_expire)
        return sessions

    def _sweep(self) -> SweepCounts:
        sessions = self._expire()
        lapsed = stale = timed_out = 0
        while True:
            rows = self._rescues.rows
            counts = self._rescues.write(self._rescue)
            if counts is not None:
                lapsed, stale = lapsed + counts[0], stale + counts[1]
                if sum(counts) < rows:
                    break
        while True:
            rows = self._overdue.rows
            count = self._overdue.write(self._time_out)
            if count is not None:
                timed_out += count
                if count < rows:
                    break
        expired = 0
        while True:
            rows = self._expired.rows
            count = self._expired.write(self._end_expired)
            if count is not None:
                expired += count
                if count < rows:
                    break
        sweep = SweepCounts(
            sessions=sessions,
            lapsed=lapsed,
            stale=stale,
            timed_out=timed_out,
            expired=expired,
            unblocked=self._store.write(self._unblock),
            repaused=self._store.write(pauses_apply),
        )
        self._limits()
        self._store.write(alert_resolve_healthy)
        for rule in ("common_cause", RULE):
            self._store.write(lambda tx, rule=rule: alert_resolve_quiet(tx, rule, HOUR))  # type: ignore[misc]
        if sweep.total:
            self._store.wake(["admit", "flows"])
            if self._events.wants(Swept):
                event = Swept(sessions, lapsed, stale, timed_out, sweep.unblocked, expired)
                self._events.emit(event)
        return sweep

    def _rescue(self, tx: Tx) -> tuple[int, int]:
        """Release claims whose holder is gone; end running runs, which are retried."""
        rows, aside = self._rescues.rows, self._rescues.aside(tx)
        most = rows + len(aside)
        held = run_orphans(tx, most)
        held += run_unleased(tx, most - len(held)) if len(held) < most else []
        held = [run for run in held if run.run_id not in aside][:rows]
        self._rescues.trying(run.run_id for run in held)
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
        return len(lapsed), self._end(tx, ends, held)

    def _time_out(self, tx: Tx) -> int:
        rows, aside = self._overdue.rows, self._overdue.aside(tx)
        found = run_overdue(tx, rows + len(aside), OVERDUE_GRACE_US)
        overdue = [run for run in found if run.run_id not in aside][:rows]
        self._overdue.trying(run.run_id for run in overdue)
        ends = [
            attempt_result.timed_out(run, jitter=self._jitter(), actor="sweeper")
            if run.cancel_requested_at is None
            else attempt_result.cancelled(run, actor="sweeper", why="cancelled, over its time")
            for run in overdue
        ]
        return self._end(tx, ends, overdue)

    def _end(self, tx: Tx, ends: list[RunEnd], held: Iterable[HeldRun]) -> int:
        finished = run_end_many(tx, ends)
        runs = {run.run_id: run for run in held}
        emit_ends_after_commit(tx, ends, finished, runs)
        return len(finished)

    def _end_expired(self, tx: Tx) -> int:
        rows, aside = self._expired.rows, self._expired.aside(tx)
        found = [run_id for run_id in run_expired(tx, rows + len(aside)) if run_id not in aside]
        self._expired.trying(found[:rows])
        return run_expire_many(tx, found[:rows])

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


def _stuck(tx: Tx, run_id: int, error: Exception) -> None:
    """Open an alert about a run that cannot be ended; the sweeper tries again later."""
    alert_open(
        tx,
        NewAlert(
            rule="run_stuck",
            dedupe_key=f"run_stuck:{run_id}",
            severity="HIGH",
            subject_kind="run",
            subject=run_id,
            message=f"Run {encode('run', run_id)} lost its worker and cannot be ended: "
            f"{type(error).__name__}: {error}"[:1_000],
        ),
    )
