"""Checks a simulated history: after each commit, after each fault-free step, and at the end."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.clock import SECOND
from penstock.db.sqlite.store import SqliteStore
from penstock.schedules.cadence import Cadence
from penstock.testing.clock import VirtualClock
from penstock.testing.simulate.snapshots import DirectReader, EndedRunRow, Snapshot
from penstock.testing.simulate.violation import Violation
from tests.harness.invariants import (
    CHECKS,
    COMMON_WINDOW_US,
    OVERDUE_GRACE_US,
    RETURN_GRACE_US,
    Commit,
    Committer,
)
from tests.harness.invariants_clock import ScheduleChecks
from tests.harness.invariants_end import check_end
from tests.harness.invariants_flows import FlowChecks
from tests.harness.sim_actors import CATCH_UP_RATE, LATE_US
from tests.harness.sim_limits import LimitChecks


@dataclass(slots=True)
class Mark:
    """The state before a step."""

    now: int
    lapsed: frozenset[tuple[int, int]] = frozenset()


class Observer:
    """Follows one store through one history."""

    def __init__(self, store: SqliteStore, clock: VirtualClock) -> None:
        self._store = store
        self._clock = clock
        self._peek = DirectReader(store)
        self._cadences: dict[int, Cadence] = {}
        self._clocks = ScheduleChecks(self._cadences, LATE_US, int(SECOND / CATCH_UP_RATE))
        self._flows = FlowChecks(self._peek)
        self._limits = LimitChecks(self._peek)
        self._retries = dict(self._peek.rows("SELECT processor, retry FROM processors"))
        self._changes = self._peek.changes()
        self._journal = 0
        self._ledger = 0
        self._last = self._peek.snapshot(clock.now())
        self._ready = sum(1 for run in self._last.runs.values() if run.admission == 0)
        self._created: set[int] = set(self._last.runs)
        self._deaths: list[EndedRunRow] = []
        self._away: set[str] = set()
        self._waits_until: dict[str, int] = {}
        self._returning: set[str] = set()
        self.checks = 0
        self.commits = 0
        self.live_sessions: Callable[[], set[int]] | None = None
        """Sessions of live workers, set after recovery: from then on no worker may drop a run."""
        self._learn()

    @property
    def runs(self) -> int:
        """Number of runs created."""
        return len(self._created)

    def committed(self, who: Committer, statements: Sequence[str]) -> None:
        """Check one commit."""
        self.commits += 1
        changes = self._peek.changes()
        if changes == self._changes:
            return
        self._changes = changes
        before = self._last
        after = self._peek.snapshot(self._clock.now(), before, statements)
        entries = self._peek.journal_after(self._journal)
        if entries:
            self._journal = entries[-1].seq
        ledger, self._ledger = self._peek.ledger_after(self._ledger)
        if "cadence_ensure" in statements:
            self._learn()
        ended = [entry for entry in entries if entry.action == "ended"]
        created = [entry for entry in entries if entry.action == "created"]
        again = [entry.run_id for entry in created if entry.run_id in self._created]
        if again:
            raise Violation("I1", f"ids reused: {again}")
        self._created.update(entry.run_id for entry in created)
        ends = self._peek.ended([entry.run_id for entry in ended])
        self._deaths = [d for d in self._deaths if d.finished_at >= after.now - COMMON_WINDOW_US]
        self._deaths += [end for end in ends.values() if end.is_dead and end.config_id is not None]
        commit = Commit(
            committer=who,
            before=before,
            after=after,
            created=created,
            ended=ended,
            ends=ends,
            ledger=ledger,
            retries=self._retries,
            deaths=self._deaths,
        )
        self._last = after
        for check in CHECKS:
            check(commit)
        self._clocks.check(commit)
        self._flows.check(self._clock.now())
        self._limits.check()
        if self.live_sessions is not None:
            _check_dropped(commit, self.live_sessions())
        self.checks += len(CHECKS) + 1
        for run_id, run in after.runs.items():
            old = before.runs.get(run_id)
            if run.admission == 0 and (old is None or old.admission != 0):
                self._ready += 1

    def before_step(self, who: Committer) -> Mark:
        """Record what a fault-free step of this actor must have handled when it returns."""
        now = self._clock.now()
        if who.kind != "sweeper":
            return Mark(now)
        self._returned(who)
        if who.name in self._away:
            self._away.discard(who.name)
            self._returning.add(who.name)
            return Mark(now)
        if now < self._waits_until.get(who.name, 0):
            return Mark(now)  # holders have time to renew after an outage
        state = self._last
        return Mark(now, frozenset(_lapsed(state, now)))

    def store_failed(self, who: Committer) -> None:
        """Record that the store was not available to an actor."""
        self._away.add(who.name)

    def after_step(self, who: Committer, mark: Mark) -> None:
        """Check I25 after a sweep without faults, and that a tick leaves nothing due."""
        self._returned(who)
        if who.kind == "sweeper":
            left = mark.lapsed & set(_lapsed(self._last, mark.now))
            if left:
                raise Violation("I25", f"{who.name} left {sorted(left)} with dead holders")
        if who.kind == "scheduler":
            due = [c for c in self._last.schedules.values() if c.next_run_time <= mark.now]
            if due:
                raise Violation("I20", f"{who.name} left due configs behind: {due}")
        self.checks += 1

    def _returned(self, who: Committer) -> None:
        """Record that the step after an outage is over, with or without faults.

        The sweeper read the clock during that step, in which it may have been suspended.
        """
        if who.name in self._returning:
            self._returning.discard(who.name)
            self._waits_until[who.name] = self._clock.now() + RETURN_GRACE_US

    def is_idle(self) -> bool:
        """Whether no work is left."""
        return not self.remaining_work()

    def remaining_work(self) -> list[Any]:
        """Return up to three items of remaining work."""
        left: list[Any] = list(self._last.runs.values())
        left += self._peek.rows("SELECT outbox_id FROM outbox")
        left += list(self._last.leases.items())
        left += self._limits.remaining_work()
        left += self._flows.unrest()
        left += self._peek.rows("SELECT backfill_id FROM backfills WHERE state = 'RUNNING'")
        return left[:3]

    def next_due(self) -> int | None:
        """Return when the next waiting run becomes due, if waiting is all that remains."""
        runs = self._last.runs.values()
        if any(run.admission != 1 for run in runs):
            return None
        flows = self._flows.next_due()
        due = [run.scheduled_time for run in runs] + ([] if flows is None else [flows])
        return min(due, default=None)

    def state_digest(self) -> str:
        """Return a hash over the history of ended runs."""
        rows = self._peek.rows("SELECT * FROM history ORDER BY run_id")
        return hashlib.sha256(repr(rows).encode()).hexdigest()

    def finish(self, delivered: Sequence[int], accepted: Sequence[int]) -> None:
        """Check the history as a whole."""
        lost = set(accepted) - self._created
        if lost:
            raise Violation("I2", f"accepted but lost: {sorted(lost)}")
        if len(set(delivered)) != len(delivered):
            raise Violation("I17", "a message was delivered twice")
        announced = self._peek.rows("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'")
        self._clocks.finish()
        self.checks += check_end(self._store, self._peek, announced)
        self.checks += self._flows.finish()
        self.checks += self._limits.finish()

    def _learn(self) -> None:
        for number, cron, zone, interval in self._peek.rows(
            "SELECT cadence, cron, timezone, interval_us FROM cadences"
        ):
            self._cadences[number] = Cadence(cron or None, zone, interval or None)


def _check_dropped(c: Commit, owned: set[int]) -> None:
    """I25: after recovery, no run times out while its worker is alive."""
    for run_id, end in c.ends.items():
        run = c.before.runs.get(run_id)
        if run is not None and run.session_id in owned and c.committer.kind == "sweeper":
            raise Violation("I25", f"{run} was dropped by its worker: {end}")


def _lapsed(state: Snapshot, now: int) -> list[tuple[int, int]]:
    """Return (run, token) of runs that are overdue or whose holder is dead at that time."""
    found = []
    for run in state.runs.values():
        if run.admission != 9:
            continue
        if run.session_id is not None:
            dead = state.sessions.get(run.session_id, 0) < now
        else:
            lease = state.leases.get(run.run_id)
            dead = lease is None or lease[1] < now
        overdue = (
            run.started_at is not None
            and run.started_at + run.max_execution_us + OVERDUE_GRACE_US < now
        )
        if dead or overdue:
            found.append((run.run_id, run.token))
    return found
