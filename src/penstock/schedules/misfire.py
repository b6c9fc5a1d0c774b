"""Misfires: the occurrence of a due config that starts, and those recorded as missed.

The scheduler calls ``plan_misfires`` for every due config (once per distinct cadence and scheduled
time) and writes the whole result in one transaction. Each occurrence from the
due one up to the next one is either the one that starts or in the missed range, exactly once.
``plan_misfires`` is pure and its cost is bounded: a year of missed minutes takes under a
millisecond.
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

    run_at: scheduled time of the occurrence that starts, None if none does. The missed range
    [missed_from, missed_to] contains missed_count occurrences, counted up to ``COUNT_CAP``, and
    precedes run_at. next_at may already be due (catch-up of all).
    """

    run_at: Micros | None
    next_at: Micros
    missed_from: Micros | None = None
    missed_to: Micros | None = None
    missed_count: int = 0


def plan_misfires(
    cadence: Cadence,
    due_at: Micros,
    now: Micros,
    catch_up: CatchUp = CatchUp.ONE,
    window_us: Micros = WINDOW_DEFAULT,
    grace_us: Micros = GRACE_DEFAULT,
    *,
    anchor: Micros | None = None,
) -> MisfirePlan:
    """Return the occurrences that start and those missed; ``due_at`` is the due next_run_time.

    catch_up ONE runs the latest occurrence. ALL records occurrences older than the window as missed
    and runs the oldest one left. NONE runs the latest occurrence if it is at most the grace period
    late. A ``due_at`` that is not on the cadence (it was edited) counts as an occurrence; intervals
    continue from it unless an anchor is given.
    """
    assert due_at <= now, (due_at, now)
    base = due_at if anchor is None else anchor
    if catch_up is CatchUp.ALL:
        return _plan_all(cadence, due_at, now, now - window_us, base)
    latest = latest_at_or_before(cadence, now, due_at + 1, base)
    run_at = due_at if latest is None else latest
    next_at = next_after(cadence, now, base)
    if catch_up is CatchUp.NONE and now - run_at > grace_us:
        return _with_missed(cadence, due_at, None, next_at, base)
    return _with_missed(cadence, due_at, run_at, next_at, base)


def _plan_all(
    cadence: Cadence, due_at: Micros, now: Micros, oldest: Micros, anchor: Micros
) -> MisfirePlan:
    first = due_at
    if due_at < oldest:
        first = next_after(cadence, max(due_at, oldest - 1), anchor)
    if first > now:
        return _with_missed(cadence, due_at, None, first, anchor)
    return _with_missed(cadence, due_at, first, next_after(cadence, first, anchor), anchor)


def _with_missed(
    cadence: Cadence, due_at: Micros, run_at: Micros | None, next_at: Micros, anchor: Micros
) -> MisfirePlan:
    """Return the plan whose missed range extends from due_at to the run or the next occurrence.

    Neither of those two occurrences is part of the range.
    """
    end = next_at if run_at is None else run_at
    if end == due_at:
        return MisfirePlan(run_at=run_at, next_at=next_at)
    last = latest_at_or_before(cadence, end - 1, due_at + 1, anchor)
    # The first occurrence is counted separately because it need not be on the cadence.
    count = 1 + count_occurrences(cadence, due_at, end - 1, COUNT_CAP - 1, anchor)
    return MisfirePlan(
        run_at=run_at,
        next_at=next_at,
        missed_from=due_at,
        missed_to=due_at if last is None else last,
        missed_count=count,
    )
