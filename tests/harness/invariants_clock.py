"""Invariants of schedules, checked at every commit: each occurrence exactly once, never early.

Occurrences are recomputed here one by one with `next_after`; the product's planner counts and skips
instead, so that the two can disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from penstock.schedules.cadence import Cadence, next_after
from penstock.schedules.misfire import GRACE_DEFAULT
from penstock.testing.simulate.snapshots import (
    ConfigSnapshot,
    FlowStateRow,
    LedgerRow,
    LiveRunRow,
    ScheduleRow,
    Snapshot,
)
from penstock.testing.simulate.violation import Violation
from tests.harness.invariants import Commit

SLOTS_MAX = 20_000


class ScheduleChecks:
    """Remembers which occurrences started, over a whole history."""

    def __init__(self, cadences: Mapping[int, Cadence], late_us: int, gap_us: int) -> None:
        """`cadences` may grow; `late_us` and `gap_us` are the schedulers' catch-up options."""
        self._cadences = cadences
        self._late_us = late_us
        self._gap_us = gap_us
        self._started: set[tuple[int, int, int]] = set()
        self.late_starts: list[int] = []

    def check(self, c: Commit) -> None:
        """Check I19, I20, I22 and I27 for one commit."""
        new = [c.after.runs[entry.run_id] for entry in c.created]
        fired = [run for run in new if run.trigger_source == "scheduler"]
        if c.committer.kind != "scheduler":
            for run in fired:
                _check_queued_start(c, run)
            fired = []
        for run in fired:
            self._check_start(c, run)
        slots = {(run.config_id or 0, run.slot) for run in fired}
        if c.committer.kind == "scheduler":
            opened = [f for number, f in c.after.flows.items() if number not in c.before.flows]
            slots |= {(flow.config_id, flow.slot) for flow in opened}
            for flow in opened:
                _check_queue(c, flow)
        self._check_moves(c, slots)

    def finish(self) -> None:
        """I27: late starts are never closer together than the catch-up rate allows."""
        times = sorted(self.late_starts)
        for earlier, later in pairwise(times):
            if later - earlier < self._gap_us:
                raise Violation("I27", f"late starts {later - earlier} us apart at {later}")

    def _check_start(self, c: Commit, run: LiveRunRow) -> None:
        assert run.config_id is not None
        key = (run.config_id, run.slot, run.processor)
        if key in self._started:
            raise Violation("I19", f"occurrence started twice: {run}")
        self._started.add(key)
        if run.created_at < run.slot or run.scheduled_time < run.slot:
            raise Violation("I19", f"started early: {run}")
        if run.created_at - run.slot > self._late_us:
            if run.scheduled_time < c.now:
                raise Violation("I27", f"a late run was not spread: {run}")
            self.late_starts.append(run.scheduled_time)
        config = c.before.configs[run.config_id]
        if _is_paused(c, config):
            raise Violation("I20", f"started although paused: {run}")
        live = [old for old in c.before.runs.values() if old.config_id == run.config_id]
        if config.overlap == "skip" and config.catch_up != "all" and live:
            raise Violation("I22", f"{run} overlaps {live[0]}")
        if config.overlap == "queue" and config.catch_up != "all":
            waiting = [old for old in live if old.admission == 3]
            if waiting:
                raise Violation("I22", f"{run} queued behind {waiting[0]}")

    def _check_moves(self, c: Commit, started: set[tuple[int, int]]) -> None:
        runs: dict[int, set[int]] = {}
        for config_id, slot in started:
            runs.setdefault(config_id, set()).add(slot)
        ledger: dict[int, list[LedgerRow]] = {}
        for row in c.ledger:
            ledger.setdefault(row.config_id, []).append(row)
        for config_id, new in c.after.schedules.items():
            old = c.before.schedules.get(config_id)
            if new.next_run_time <= new.evaluated_to:
                raise Violation("I20", f"the next occurrence is evaluated already: {new}")
            if old is None or new == old:
                continue
            if new.evaluated_to < old.evaluated_to:
                raise Violation("I20", f"evaluated_to decreased: {old} -> {new}")
            self._check_move(c, old, new, runs.pop(config_id, set()), ledger.pop(config_id, []))
        for config_id, old in c.before.schedules.items():
            if config_id not in c.after.schedules:
                self._check_removed(c, old, ledger.pop(config_id, []))
        left = [*runs, *ledger]
        if left:
            raise Violation("I20", f"occurrences recorded without advancing: configs {left}")

    def _check_move(
        self, c: Commit, old: ScheduleRow, new: ScheduleRow, runs: set[int], ledger: list[LedgerRow]
    ) -> None:
        """Check that every passed occurrence is a run or in the ledger, exactly once."""
        if c.committer.kind != "scheduler" and new.cadence != old.cadence:
            end = new.evaluated_to + 1  # a changed cadence: due occurrences are evaluated here
        else:
            end = new.next_run_time
        slots = self._slots(old, end)
        missed = [row for row in ledger if row.outcome == "skipped_missed"]
        single = [row for row in ledger if row.outcome != "skipped_missed"]
        for slot in slots:
            found = [f"run {slot}"] if slot in runs else []
            found += [row.outcome for row in single if row.first_at == slot == row.last_at]
            found += [row.outcome for row in missed if row.first_at <= slot <= row.last_at]
            if len(found) != 1:
                raise Violation("I20", f"config {old.config_id}: {slot} is {found or 'lost'}")
        counted = len(runs) + sum(row.occurrences for row in ledger)
        if counted != len(slots):
            raise Violation("I20", f"config {old.config_id}: {counted} of {len(slots)} recorded")
        if c.committer.kind == "scheduler":
            self._check_policy(c, slots, runs, single)

    def _check_removed(self, c: Commit, old: ScheduleRow, ledger: list[LedgerRow]) -> None:
        """Check that a removed config's due occurrences are in the ledger, and no others."""
        slots = self._slots(old, c.now + 1)
        ranges = [(row.first_at, row.last_at, row.occurrences, row.outcome) for row in ledger]
        wanted = [(slots[0], slots[-1], len(slots), "skipped_missed")] if slots else []
        if ranges != wanted:
            raise Violation("I20", f"config {old.config_id} was removed: {ranges}, not {wanted}")

    def _check_policy(
        self, c: Commit, slots: list[int], runs: set[int], single: list[LedgerRow]
    ) -> None:
        """Check that the tried occurrence follows catch_up, and its start the pauses."""
        tried = sorted(runs | {row.first_at for row in single})
        if len(tried) > 1:
            raise Violation("I27", f"several occurrences at once: {tried}")
        for row in single:
            if (row.outcome == "paused") != _is_paused(c, c.before.configs[row.config_id]):
                raise Violation("I20", f"wrong reason: {row}")
        if not tried and c.now - slots[-1] <= GRACE_DEFAULT:
            raise Violation("I20", f"nothing was tried although {slots[-1]} is fresh")

    def _slots(self, old: ScheduleRow, end: int) -> list[int]:
        """Return the occurrences in [old.next_run_time, end), one by one."""
        cadence, anchor = self._cadences[old.cadence], old.next_run_time
        slots: list[int] = []
        slot = old.next_run_time
        while slot < end:
            slots.append(slot)
            slot = next_after(cadence, slot, anchor)
            assert len(slots) < SLOTS_MAX, f"too many occurrences: {old}"
        return slots


def _check_queued_start(c: Commit, run: LiveRunRow) -> None:
    """I22: only a queued flow starts after its scheduled time, once all before it have ended."""
    flow = c.before.flows.get(run.flow_id or 0)
    if flow is None or not flow.is_ordered:
        raise Violation("I19", f"{c.committer.name} started an occurrence: {run}")
    if ahead := _open(c.after, flow):
        raise Violation("I22", f"{run} began before {ahead[0]} ended")


def _check_queue(c: Commit, flow: FlowStateRow) -> None:
    """I22: one flow of a queue waits, unless catching up all; it has no runs in the meantime."""
    config = c.before.configs[flow.config_id]
    ahead = _open(c.after, flow)
    if flow.is_ordered and ahead:
        began = [run for run in c.after.runs.values() if run.flow_id == flow.flow_id]
        if began:
            raise Violation("I22", f"{began[0]} began before {ahead[0]} ended")
    if config.overlap == "queue" and config.catch_up != "all":
        waiting = [f for f in ahead if f.is_ordered and _open(c.after, f)]
        if waiting:
            raise Violation("I22", f"{flow} is queued behind {waiting[0]}, which waits itself")


def _open(after: Snapshot, flow: FlowStateRow) -> list[FlowStateRow]:
    """Return the older open flows of its config."""
    return [
        f
        for f in after.flows.values()
        if f.config_id == flow.config_id and f.flow_id < flow.flow_id and f.ended_at is None
    ]


def _is_paused(c: Commit, config: ConfigSnapshot) -> bool:
    covers = {
        ("all", 0),
        ("customer", config.customer),
        ("pipeline", config.pipeline),
        ("config", config.config_id),
    }
    return bool(covers & c.before.pauses)
