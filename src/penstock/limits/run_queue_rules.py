"""The queues of limits: which waiting runs are admitted, and which queue the others wait in.

A run that needs several limits takes all of them or none. The rules:

- A run waits in one queue at a time: that of a limit without enough free capacity for it. So it
  never blocks runs that could be admitted, and it holds nothing while it waits.
- A queue is served in order (level, fair rank, age). The first run that does not fit stops the
  queue, so that light runs cannot overtake a heavy one forever. A run whose weight exceeds the
  whole effective capacity is admitted once nothing else is held.
- A run at the head of its queue that fits there but not in another limit moves to the queue of
  that limit.
- A run that needs several limits and has waited for ESCALATE_AFTER is escalated: it moves to the
  front of all its queues, and capacity that becomes free is reserved for it. Escalated runs are
  served by age, so the oldest gets everything it needs once the current holders end. This rules out
  starvation and deadlock.

Pure: the store calls `decide_admission` while it holds the locks of all limits involved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.core.clock import MINUTE, SECOND, Micros

ESCALATED: Final = 11
"""Level of an escalated run, which no other run overtakes; priorities use levels up to 10."""
ESCALATE_AFTER: Final = 10 * MINUTE
"""Waiting time after which a run that needs several limits is escalated."""
UNCLAIMED_AFTER: Final = MINUTE
"""How long a READY run that no worker claims keeps its limits while other runs wait for them."""


class WaitingRun(NamedTuple):
    """A run that waits for limits: its level and its needs, as (limit, weight) pairs."""

    run_id: int
    level: int
    needs: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class FreeCapacity:
    """Remaining capacity of one limit.

    free: slots left, None if the capacity is unlimited. held: slots in use. tokens: tokens left,
    None if the limit has no rate.
    """

    free: int | None
    held: int = 0
    tokens: float | None = None
    rate: float | None = None
    burst: float = 1.0

    def is_short_of(self, weight: int) -> bool:
        """Return whether an additional `weight` does not fit now."""
        if self.free is not None and weight > self.free:
            is_alone = self.held == 0 and self.free > 0
            if not is_alone:
                return True
        return self.tokens is not None and self.tokens < min(weight, self.burst)

    def take(self, weight: int) -> None:
        """Subtract `weight`, either granted to a run or reserved for an escalated one."""
        self.held += weight
        if self.free is not None:
            self.free -= weight
        if self.tokens is not None:
            self.tokens -= min(weight, self.burst)

    def wait_us(self, weight: int) -> Micros | None:
        """Return the time until there are tokens for `weight`; None if the capacity is exhausted or
        the limit has no rate.

        Only meaningful before anything else is taken from the limit.
        """
        if self.tokens is None or not self.rate:
            return None
        if self.free is not None and self.free <= 0:
            return None
        short = min(weight, self.burst) - self.tokens
        return max(0, math.ceil(short / self.rate * SECOND))


@dataclass(slots=True)
class AdmissionDecision:
    """Decisions for the waiting runs that were considered."""

    admitted: list[WaitingRun] = field(default_factory=list)
    moved: list[tuple[int, int, int]] = field(default_factory=list)
    """(run, limit whose queue it leaves, limit without free capacity whose queue it joins)."""
    escalated: list[WaitingRun] = field(default_factory=list)
    """Escalated runs that cannot be admitted yet; free capacity is reserved for them."""
    next_tokens_in_us: Micros | None = None
    """Time until enough tokens have accrued for one of the runs; None if none waits for tokens."""


def decide_admission(
    capacities: dict[int, FreeCapacity], queues: Mapping[int, Sequence[WaitingRun]]
) -> AdmissionDecision:
    """Decide on the runs at the heads of the queues, each queue given in its order.

    `capacities` is updated to what remains afterwards. A run that needs another limit is skipped;
    the transaction that locks that limit decides on it.
    """
    judged = AdmissionDecision()
    seen: set[int] = set()
    escalated = sorted({w for queue in queues.values() for w in queue if w.level >= ESCALATED})
    for waiting in escalated:
        seen.add(waiting.run_id)
        if _is_known(waiting, capacities):
            if _lacking(waiting, capacities) is None:
                judged.admitted.append(waiting)
            else:
                judged.escalated.append(waiting)
                _note_wait(judged, waiting.needs, capacities)
            for limit, weight in waiting.needs:
                capacities[limit].take(weight)
    for limit, queue in sorted(queues.items()):
        for waiting in queue:
            if waiting.run_id in seen or not _is_known(waiting, capacities):
                continue
            if capacities[limit].is_short_of(dict(waiting.needs)[limit]):
                _note_wait(judged, [(limit, dict(waiting.needs)[limit])], capacities)
                break
            seen.add(waiting.run_id)
            lacking = _lacking(waiting, capacities)
            if lacking is not None:
                judged.moved.append((waiting.run_id, limit, lacking))
                _note_wait(judged, waiting.needs, capacities)
                continue
            judged.admitted.append(waiting)
            for other, weight in waiting.needs:
                capacities[other].take(weight)
    return judged


def _is_known(waiting: WaitingRun, capacities: Mapping[int, FreeCapacity]) -> bool:
    return all(limit in capacities for limit, _ in waiting.needs)


def _lacking(waiting: WaitingRun, capacities: Mapping[int, FreeCapacity]) -> int | None:
    return next(
        (limit for limit, weight in waiting.needs if capacities[limit].is_short_of(weight)), None
    )


def _note_wait(
    judged: AdmissionDecision,
    needs: Iterable[tuple[int, int]],
    capacities: Mapping[int, FreeCapacity],
) -> None:
    waits = [
        capacities[limit].wait_us(weight)
        for limit, weight in needs
        if capacities[limit].is_short_of(weight)
    ]
    for wait in waits:
        if wait is not None and (
            judged.next_tokens_in_us is None or wait < judged.next_tokens_in_us
        ):
            judged.next_tokens_in_us = wait
