"""Misfires: which occurrence of a due config starts, and which are recorded as missed.

The scheduler calls ``plan_misfires`` for every due config (once per distinct cadence and scheduled
time) and writes the whole result in one transaction. Each occurrence in [slot, next_slot) is either
the one that starts or in the missed range, exactly once. ``plan_misfires`` is pure and its cost is
bounded: a year of missed minutes takes under a millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.core.clock import DAY, MINUTE, Micros
from penstock.schedules.cadence import (
    COUNT_CAP,
    Cadence,
    CatchUp,
    count_occurrences,
    latest_at_or_before,
    next_after,
)

GRACE_DEFAULT: Final = MINUTE
WINDOW_DEFAULT: Final = DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class MisfirePlan:
    """Decision for a due config.

    run_slot: scheduled time of the occurrence that starts, None if none does. The missed range
    [missed_from, missed_to] contains missed_count occurrences, counted up to ``COUNT_CAP``, and
    precedes run_slot. next_slot may already be due (catch-up of all).
    """

    run_at: Micros | None
    next_at: Micros
    missed_from: Micros | None = None
    missed_to: Micros | None = None
    missed_count: int = 0


def plan_misfires(
    cadence: Cadence,
    slot: Micros,
    now: Micros,
    catch_up: CatchUp = CatchUp.ONE,
    window_us: Micros = WINDOW_DEFAULT,
    grace_us: Micros = GRACE_DEFAULT,
    *,
    anchor: Micros | None = None,
) -> MisfirePlan:
    """Return what starts and what was missed, given the config's due next_run_time ``slot``.

    catch_up ONE runs the latest occurrence. ALL records occurrences older than the window as missed
    and runs the oldest one left. NONE runs the latest occurrence if it is at most the grace period
    late. A ``slot`` that is not on the cadence (it was edited) counts as an occurrence; intervals
    continue from it unless an anchor is given.
    """
    assert slot <= now, (slot, now)
    base = slot if anchor is None else anchor
    if catch_up is CatchUp.ALL:
        return _plan_all(cadence, slot, now, now - window_us, base)
    latest = latest_at_or_before(cadence, now, slot + 1, base)
    run_slot = slot if latest is None else latest
    next_slot = next_after(cadence, now, base)
    if catch_up is CatchUp.NONE and now - run_slot > grace_us:
        return _with_missed(cadence, slot, None, next_slot, base)
    return _with_missed(cadence, slot, run_slot, next_slot, base)


def _plan_all(
    cadence: Cadence, slot: Micros, now: Micros, oldest: Micros, anchor: Micros
) -> MisfirePlan:
    first = slot
    if slot < oldest:
        first = next_after(cadence, max(slot, oldest - 1), anchor)
    if first > now:
        return _with_missed(cadence, slot, None, first, anchor)
    return _with_missed(cadence, slot, first, next_after(cadence, first, anchor), anchor)


def _with_missed(
    cadence: Cadence, slot: Micros, run_slot: Micros | None, next_slot: Micros, anchor: Micros
) -> MisfirePlan:
    """Return the plan whose missed range extends from slot to the occurrence that runs or is next.

    Neither of those two is part of the range.
    """
    end = next_slot if run_slot is None else run_slot
    if end == slot:
        return MisfirePlan(run_at=run_slot, next_at=next_slot)
    last = latest_at_or_before(cadence, end - 1, slot + 1, anchor)
    # The first occurrence is counted separately because it need not be on the cadence.
    count = 1 + count_occurrences(cadence, slot, end - 1, COUNT_CAP - 1, anchor)
    return MisfirePlan(
        run_at=run_slot,
        next_at=next_slot,
        missed_from=slot,
        missed_to=slot if last is None else last,
        missed_count=count,
    )
