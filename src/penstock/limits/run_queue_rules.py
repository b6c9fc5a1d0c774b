"""The lines before limits: which waiting runs go now, and where those stand that cannot.

A run that needs several limits takes all of them or none. The rules, in words:

- It stands in one line at a time: that of a limit that has no room for it. So it is never in front
  of runs that could go, and it holds nothing while it waits.
- In a line goes who stands first (level, turn, age); the first who does not fit ends it, so that a
  heavy run is not overtaken by light ones for ever. A weight above all there is goes alone.
- At the head of its line, with room there but none elsewhere, a run moves to the line elsewhere.
- A run that stood in line for long is `urgent`: it stands at the front of all its lines, and what
  it needs is kept for it as it comes free. Urgent runs go by age, so the oldest always gets all it
  waits for once its holders end: nobody starves and nobody waits in a ring.

Pure: the store calls `judge` under the locks of every limit it names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.core.clock import MINUTE, SECOND, Micros

URGENT: Final = 11
"""The level of a run that nobody passes any more; the levels of priorities end at 10."""
URGENT_AFTER: Final = 10 * MINUTE
UNCLAIMED_AFTER: Final = MINUTE
"""So long a ready run may keep what it holds while others wait for it."""


class Waiting(NamedTuple):
    """A run in line: what it needs, as (limit, weight), and where it stands now."""

    run_id: int
    level: int
    needs: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Room:
    """What is left of one limit. free: None for no bound; tokens: None for no rate."""

    free: int | None
    held: int = 0
    tokens: float | None = None
    rate: float | None = None
    burst: float = 1.0

    def lacks(self, weight: int) -> bool:
        """Tell whether `weight` more does not fit now."""
        if self.free is not None and weight > self.free:
            is_alone = self.held == 0 and self.free > 0
            if not is_alone:
                return True
        return self.tokens is not None and self.tokens < min(weight, self.burst)

    def take(self, weight: int) -> None:
        """Let somebody have `weight`, or keep it for somebody."""
        self.held += weight
        if self.free is not None:
            self.free -= weight
        if self.tokens is not None:
            self.tokens -= min(weight, self.burst)

    def wait_us(self, weight: int) -> Micros | None:
        """Return how long until tokens for `weight` have come, None when they are not what lacks.

        Only meaningful before anything else of the limit is taken.
        """
        if self.tokens is None or not self.rate:
            return None
        if self.free is not None and self.free <= 0:
            return None
        short = min(weight, self.burst) - self.tokens
        return max(0, math.ceil(short / self.rate * SECOND))


@dataclass(slots=True)
class Judged:
    """What follows for the runs that were looked at."""

    admitted: list[Waiting] = field(default_factory=list)
    moved: list[tuple[int, int, int]] = field(default_factory=list)
    """(run, from the line of this limit, to that of the limit that lacks room)."""
    urgent: list[Waiting] = field(default_factory=list)
    """Those for whom what they need is kept as it comes free."""
    next_us: Micros | None = None
    """After this time tokens may have come for somebody."""


def judge(rooms: dict[int, Room], lines: Mapping[int, Sequence[Waiting]]) -> Judged:
    """Decide on the heads of the lines, each given in its order; `rooms` is what remains then.

    A run whose needs are not all in `rooms` is passed over: somebody else judges it.
    """
    judged = Judged()
    seen: set[int] = set()
    urgent = sorted({w for line in lines.values() for w in line if w.level >= URGENT})
    for waiting in urgent:
        seen.add(waiting.run_id)
        if _is_known(waiting, rooms):
            if _lacking(waiting, rooms) is None:
                judged.admitted.append(waiting)
            else:
                judged.urgent.append(waiting)
                _note_wait(judged, waiting.needs, rooms)
            for limit, weight in waiting.needs:
                rooms[limit].take(weight)
    for limit, line in sorted(lines.items()):
        for waiting in line:
            if waiting.run_id in seen or not _is_known(waiting, rooms):
                continue
            if rooms[limit].lacks(dict(waiting.needs)[limit]):
                _note_wait(judged, [(limit, dict(waiting.needs)[limit])], rooms)
                break
            seen.add(waiting.run_id)
            lacking = _lacking(waiting, rooms)
            if lacking is not None:
                judged.moved.append((waiting.run_id, limit, lacking))
                _note_wait(judged, waiting.needs, rooms)
                continue
            judged.admitted.append(waiting)
            for other, weight in waiting.needs:
                rooms[other].take(weight)
    return judged


def _is_known(waiting: Waiting, rooms: Mapping[int, Room]) -> bool:
    return all(limit in rooms for limit, _ in waiting.needs)


def _lacking(waiting: Waiting, rooms: Mapping[int, Room]) -> int | None:
    return next((limit for limit, weight in waiting.needs if rooms[limit].lacks(weight)), None)


def _note_wait(judged: Judged, needs: Iterable[tuple[int, int]], rooms: Mapping[int, Room]) -> None:
    waits = [rooms[limit].wait_us(weight) for limit, weight in needs if rooms[limit].lacks(weight)]
    for wait in waits:
        if wait is not None and (judged.next_us is None or wait < judged.next_us):
            judged.next_us = wait
