"""The scheduler: turns due configs into runs, once per occurrence, in any number of replicas.

One tick takes locked batches until nothing is due or its time budget is spent. Each distinct
(cadence, scheduled time, policy) is planned once per batch, not once per config. Late occurrences
share one global start rate, so that the end of a day of downtime does not overload the workers.
Configs that cannot be planned are postponed with an alert, so that they do not delay others.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from penstock.access.store.registry import processor_list
from penstock.audit.rows import NewAlert
from penstock.audit.store.alerts import alert_open, alert_resolve
from penstock.audit.telemetry import Events, Ticked
from penstock.core.clock import MINUTE, SECOND, Clock, SystemClock
from penstock.core.ids import encode
from penstock.core.naming import runs_channel
from penstock.db.isolation import IsolatedBatches
from penstock.db.store import Transactions, Tx
from penstock.schedules.cadence import Cadence, CatchUp, next_after
from penstock.schedules.hooks import open_flows
from penstock.schedules.misfire import MisfirePlan, plan_misfires
from penstock.schedules.rows import DueGroup, DueOccurrence, StartPace, TickCounts
from penstock.schedules.store.schedule import (
    cadence_list,
    catch_up_reserve,
    catch_up_return,
    entry_count,
    schedule_next_at,
    schedule_start_many,
    schedule_take_due,
)

BUSY_US = 50_000
"""Delay before retrying due configs that another scheduler holds."""

POSTPONE_US = 10 * MINUTE
"""How long configs are postponed if their cadence cannot be planned."""

ALERT_CONFIGS_MAX = 20
"""Maximum number of configs that an alert names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """Options of a scheduler. `late_us`: occurrences later than this share the catch-up rate."""

    batch: int = 5_000
    budget_seconds: float = 600.0
    grace_us: int = MINUTE
    late_us: int = MINUTE
    catch_up_rate: float = 500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TickResult:
    """Counts of one tick, and when the next occurrence is due."""

    due: int = 0
    runs: int = 0
    overlapped: int = 0
    paused: int = 0
    missed: int = 0
    next_at: int | None = None
    now: int = 0


class Scheduler:
    """Service that turns due configs into runs."""

    name = "scheduler"

    def __init__(
        self,
        store: Transactions,
        options: SchedulerOptions | None = None,
        *,
        events: Events | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Schedule the configs in `store`; `clock` only measures the time budget."""
        self._store = store
        self._options = options or SchedulerOptions()
        self._events = events or Events()
        self._clock = clock or SystemClock()
        self._cadences: dict[int, Cadence] = {}
        self._batches = IsolatedBatches(store, self._options.batch, self._postpone_alone)

    def run_once(self) -> TickResult:
        """Start every due occurrence, in batches, within the time budget."""
        deadline = self._clock.monotonic() + self._options.budget_seconds
        total = [0, 0, 0, 0, 0]
        next_at, now = self._store.read(schedule_next_at)
        while next_at is not None and next_at <= now:
            step = self._batches.write(lambda tx: (self._batch(tx),))
            if step is None:  # a config cannot be started: the next batch is smaller, or without it
                next_at, now = self._store.read(schedule_next_at)
                continue
            (counts,) = step
            if counts is None:
                # Other schedulers hold the due configs: they finish them, or their crash releases
                # them.
                next_at = now + BUSY_US
                break
            for index, value in enumerate(
                (counts.due, counts.runs, counts.overlapped, counts.paused, counts.missed)
            ):
                total[index] += value
            if self._clock.monotonic() >= deadline:
                break
            next_at, now = self._store.read(schedule_next_at)
        if total[0] and self._events.wants(Ticked):
            self._events.emit(Ticked(*total))
        if total[1]:
            self._store.wake(self._pool_channels())
        due, runs, overlapped, paused, missed = total
        return TickResult(
            due=due,
            runs=runs,
            overlapped=overlapped,
            paused=paused,
            missed=missed,
            next_at=next_at,
            now=now,
        )

    def _batch(self, tx: Tx) -> TickCounts | None:
        """Process one locked batch: plan each group, reserve the rate for late ones, start."""
        groups = schedule_take_due(tx, self._batches.rows)
        if not groups:
            return None
        self._batches.trying(config for group in groups for config in group.config_ids)
        self._learn(tx, groups)
        plans = [(group, self._plan_or_postpone(tx, group)) for group in groups]
        marked = [(group, plan, self._is_late(group, plan)) for group, plan in plans]
        gap_us = math.ceil(SECOND / self._options.catch_up_rate)
        late = [i for group, _, is_late in marked if is_late for i in group.config_ids]
        reserved = entry_count(tx, late) if late else 0
        cursor = catch_up_reserve(tx, reserved * gap_us) if late else None
        counts = schedule_start_many(tx, marked, cursor=cursor, gap_us=gap_us)
        if counts.flows is not None:
            counts = self._open_flows(tx, counts, StartPace(cursor, gap_us, reserved))
        if counts.given < reserved:
            # Paused and overlapping occurrences start nothing: later ones must not wait for them.
            catch_up_return(tx, (reserved - counts.given) * gap_us)
        assert counts.due == counts.advanced, f"taken {counts.due}, advanced {counts.advanced}"
        return counts

    def _open_flows(self, tx: Tx, counts: TickCounts, pace: StartPace) -> TickCounts:
        """Open and start the flows of occurrences whose pipelines have phases.

        Late ones use the end of the reserved start times, after single runs.
        """
        occurrences = [
            DueOccurrence(c, at, bool(late)) for c, at, late in json.loads(counts.flows or "[]")
        ]
        late = [due.config_id for due in occurrences if due.is_late]
        needed = entry_count(tx, late) if late else 0
        reserved = pace.taken
        opened = open_flows(tx, occurrences, pace._replace(taken=reserved - needed))
        tx.after_commit(lambda: self._store.wake(["flows"]))
        given = reserved - (needed - opened.used) if late else counts.given
        return counts._replace(runs=counts.runs + opened.runs, given=given)

    def _plan_or_postpone(self, tx: Tx, group: DueGroup) -> MisfirePlan:
        """Plan a group; one that cannot be planned, for any reason, is postponed with an alert."""
        cadence = self._cadences.get(group.cadence, Cadence())
        was_postponed = _was_postponed(group, cadence)
        try:
            plan = self._plan(group, cadence, was_postponed)
        except Exception as error:
            tx.after_commit(lambda: self._forget(group.cadence))
            alert_open(tx, _alert(group, cadence, error))
            return _postpone(group, was_postponed)
        if was_postponed:
            alert_resolve(tx, _alert_key(group), self.name)
        return plan

    def _plan(self, group: DueGroup, cadence: Cadence, was_postponed: bool) -> MisfirePlan:
        due_at = group.occurrence_time
        if was_postponed:
            due_at = next_after(cadence, due_at - POSTPONE_US)
            if due_at > group.now:
                return MisfirePlan(run_at=None, next_at=due_at, missed_to=group.now)
        return plan_misfires(
            cadence,
            due_at,
            group.now,
            CatchUp(group.catch_up),
            window_us=group.window_us,
            grace_us=self._options.grace_us,
        )

    def _postpone_alone(self, tx: Tx, config_id: int, error: Exception) -> None:
        """Postpone a config that cannot be started and open an alert; the others continue."""
        groups = schedule_take_due(tx, 1)
        if not any(config_id in group.config_ids for group in groups):
            return  # it is no longer due, or another scheduler has it
        (group,) = groups
        self._learn(tx, groups)
        cadence = self._cadences.get(group.cadence, Cadence())
        plan = _postpone(group, _was_postponed(group, cadence))
        schedule_start_many(tx, [(group, plan, False)], cursor=None, gap_us=SECOND)
        alert_open(tx, _unstartable(config_id, error))

    def _is_late(self, group: DueGroup, plan: MisfirePlan) -> bool:
        return plan.run_at is not None and group.now - plan.run_at > self._options.late_us

    def _learn(self, tx: Tx, groups: list[DueGroup]) -> None:
        unknown = {group.cadence for group in groups} - self._cadences.keys()
        if unknown:
            self._cadences.update(cadence_list(tx, unknown))

    def _forget(self, cadence: int) -> None:
        """Drop a cached cadence, so that it is read again when next due: it may be repaired by
        then.
        """
        self._cadences.pop(cadence, None)

    def _pool_channels(self) -> list[str]:
        pools = {row.pool for row in self._store.read(processor_list) if row.is_entry}
        return [*sorted({runs_channel(pool) for pool in pools}), "admit"]


def _postpone(group: DueGroup, was_postponed: bool) -> MisfirePlan:
    """Postpone a group; its occurrences up to now are missed and counted as one.

    The exact count is unknown, because the cadence cannot be planned. The next time is an odd
    number of microseconds, unlike any cron time: this marks a postponed group, whose occurrences
    are searched from the time it was postponed.
    """
    return MisfirePlan(
        run_at=None,
        next_at=(group.now + POSTPONE_US) | 1,
        missed_from=group.occurrence_time - POSTPONE_US + 1
        if was_postponed
        else group.occurrence_time,
        missed_to=group.now,
        missed_count=1,
    )


def _was_postponed(group: DueGroup, cadence: Cadence) -> bool:
    return group.occurrence_time % 2 == 1 and cadence.interval_us is None


def _unstartable(config_id: int, error: Exception) -> NewAlert:
    name = encode("cfg", config_id)
    return NewAlert(
        rule="config_unstartable",
        dedupe_key=f"config_unstartable:{config_id}",
        severity="HIGH",
        subject_kind="config",
        subject=config_id,
        message=f"Config {name} cannot be started and is postponed: {type(error).__name__}: "
        f"{error}. Correct the config or register its pipeline again."[:1_000],
    )


def _alert_key(group: DueGroup) -> str:
    return f"cadence_unplannable:{group.cadence}"


def _alert(group: DueGroup, cadence: Cadence, error: Exception) -> NewAlert:
    text = f"{cadence.cron!r} in {cadence.timezone}"
    fix = (
        "Install this time zone (package tzdata) on every scheduler's host and restart it, or give "
        "the configs another schedule_cron or timezone."
    )
    return NewAlert(
        rule="cadence_unplannable",
        dedupe_key=_alert_key(group),
        severity="HIGH",
        subject_kind="cadence",
        subject=group.cadence,
        message=f"Cadence {group.cadence} ({text}) cannot be planned: {error} {fix}",
        detail={
            "error": repr(error),
            "configs": [encode("cfg", i) for i in sorted(group.config_ids)[:ALERT_CONFIGS_MAX]],
            "configs_total": len(group.config_ids),
            "fix": f"penstock configs show {encode('cfg', min(group.config_ids))}",
        },
    )
