"""Misfires: which slots of a due config start, and which are written down as missed.

``plan`` is asked once for every config (better: once per distinct cadence and slot) that is due.
Each slot in [slot, next_slot) is either the one that starts or in the missed range, exactly once.
It is pure and bounded: a year of missed minutes costs under a millisecond. The scheduler calls it
and writes all of its answer in one transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.core.clock import DAY, MINUTE, Micros
from penstock.schedules.cadence import (
    COUNT_CAP,
    Cadence,
    CatchUp,
    count_between,
    latest_until,
    next_after,
)

GRACE_DEFAULT: Final = MINUTE
WINDOW_DEFAULT: Final = DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPlan:
    """What to do about a due config.

    The missed range [missed_from, missed_to] holds missed_count slots of the cadence and precedes
    run_slot; the count stops at ``COUNT_CAP``. next_slot may be due already (catch-up of all).
    """

    run_slot: Micros | None
    next_slot: Micros
    missed_from: Micros | None = None
    missed_to: Micros | None = None
    missed_count: int = 0


def plan(
    cadence: Cadence,
    slot: Micros,
    now: Micros,
    catch_up: CatchUp = CatchUp.ONE,
    window_us: Micros = WINDOW_DEFAULT,
    grace_us: Micros = GRACE_DEFAULT,
    *,
    anchor: Micros | None = None,
) -> SlotPlan:
    """Return what starts and what was missed, given the next_run_time ``slot`` that is due by now.

    one: the latest slot runs. all: slots older than the window are missed, then the oldest left
    runs. none: the latest slot runs if it is at most the grace behind now. A slot that is not on
    the cadence (it was edited) counts as one; intervals go on from it unless an anchor is given.
    """
    assert slot <= now, (slot, now)
    base = slot if anchor is None else anchor
    if catch_up is CatchUp.ALL:
        return _plan_all(cadence, slot, now, now - window_us, base)
    latest = latest_until(cadence, now, slot + 1, base)
    run_slot = slot if latest is None else latest
    next_slot = next_after(cadence, now, base)
    if catch_up is CatchUp.NONE and now - run_slot > grace_us:
        return _with_missed(cadence, slot, None, next_slot, base)
    return _with_missed(cadence, slot, run_slot, next_slot, base)


def _plan_all(
    cadence: Cadence, slot: Micros, now: Micros, oldest: Micros, anchor: Micros
) -> SlotPlan:
    first = slot
    if slot < oldest:
        first = next_after(cadence, max(slot, oldest - 1), anchor)
    if first > now:
        return _with_missed(cadence, slot, None, first, anchor)
    return _with_missed(cadence, slot, first, next_after(cadence, first, anchor), anchor)


def _with_missed(
    cadence: Cadence, slot: Micros, run_slot: Micros | None, next_slot: Micros, anchor: Micros
) -> SlotPlan:
    """Return the plan whose missed range is everything from slot up to what runs or comes next."""
    end = next_slot if run_slot is None else run_slot
    if end == slot:
        return SlotPlan(run_slot=run_slot, next_slot=next_slot)
    last = latest_until(cadence, end - 1, slot + 1, anchor)
    # The first slot is counted apart, because it need not be on the cadence.
    count = 1 + count_between(cadence, slot, end - 1, COUNT_CAP - 1, anchor)
    return SlotPlan(
        run_slot=run_slot,
        next_slot=next_slot,
        missed_from=slot,
        missed_to=slot if last is None else last,
        missed_count=count,
    )
