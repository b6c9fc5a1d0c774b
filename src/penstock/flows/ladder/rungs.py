"""Rules for the fallbacks of the cascade: fallback times, and what self-heal evaluates again. Pure.

The cascade starts a phase when the phases before it have ended. If it does not, the fallback starts
the phase at a declared time of day, self-heal evaluates phases and gates that are overdue, or a
person triggers it. Each evaluates the same gates and respects the same breakers.
"""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import Final

from penstock.core.clock import MINUTE, Micros, from_datetime, to_datetime
from penstock.core.utc_offsets import zone_info
from penstock.flows.advance.snapshot import FlowSnapshot
from penstock.flows.cascade import gates_to_evaluate, phase_end_state, straggler_deadline
from penstock.flows.phases import PhaseState
from penstock.pipelines.plan import PhasePlan

HEAL_EVERY: Final = 15 * MINUTE
"""Interval between passes of self-heal, and between attempts of a fallback that did not start."""
OVERDUE: Final = 5 * MINUTE
"""Delay after which a planned evaluation counts as lost."""
BY_HAND_SOURCES: Final = frozenset({"manual", "backfill", "replay"})
"""Trigger sources of flows without fallback times, because a person opened them."""


def next_time_of_day(minute: int, now: Micros, timezone: str) -> Micros:
    """Return the next time after `now` at which it is this minute of the day in a time zone."""
    zone = zone_info(timezone)
    date = to_datetime(now).astimezone(zone).date()
    at = time(minute // 60, minute % 60)
    while (found := from_datetime(datetime.combine(date, at, zone))) <= now:
        date += timedelta(days=1)
    return found


def gates_to_heal(snapshot: FlowSnapshot) -> set[int]:
    """Return the gates of a flow that self-heal evaluates again, by id.

    These are phases that could have ended, and gates that could have been evaluated, for longer
    than the mode allows. A gate that waits, or that its breaker blocks, is skipped while its next
    evaluation is planned.
    """
    if not snapshot.flow.is_open or snapshot.waits_for_flow is not None:
        return set()
    known, plan, now = snapshot.all_progress(), snapshot.planned.plan, snapshot.now
    latest = now - snapshot.planned.mode.heals_after_us
    found: set[int] = set()
    for phase in plan.phases:
        row = snapshot.row(phase.name)
        if row.state != PhaseState.IN_PROGRESS:
            continue
        if phase_end_state(phase, known[phase.name], now) is None:
            continue
        if _settled_at(snapshot, phase) <= latest:
            found.add(row.gate_id)
    for ask in gates_to_evaluate(plan, known, now):
        row = snapshot.row(ask.phase, ask.processor or "")
        before = [_settled_at(snapshot, plan.phase(name)) for name in plan.phase(ask.phase).after]
        ready_at = max([row.since_at, *before])
        is_planned = row.probe_at is not None and row.probe_at > now - OVERDUE
        if ready_at <= latest and not is_planned:
            found.add(row.gate_id)
    return found


def _settled_at(snapshot: FlowSnapshot, phase: PhasePlan) -> Micros:
    """Return when a phase ended or, if it could have, when its last event was."""
    row = snapshot.row(phase.name)
    if row.ended_at is not None:
        return row.ended_at
    deadline = straggler_deadline(phase, snapshot.progress(phase.name))
    moments = [seen.at for seen in snapshot.completions_of([phase.name])]
    moments += [deadline] if deadline is not None and deadline <= snapshot.now else []
    return max(moments, default=row.since_at)
