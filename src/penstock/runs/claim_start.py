"""Start position of a claim in the ready index: its head, or above the ranks claimed before.

A claimed run leaves a dead entry at the head of the index. Usually these are removed immediately,
but while another session holds a snapshot, PostgreSQL keeps them, and every claim from the head
reads all of them. A claimer therefore remembers, per level, the fair ranks that it has claimed and
that the fair clock has reached: later runs get higher ranks, so its next claim starts there. Ranks
count only after `SETTLE_SECONDS`, because a run that is being inserted may have read an older
clock.

A run can still be below that start: its insertion took longer, or another claim that held it was
rolled back. Claims from the head find those. They take at most 1/`HEAD_SHARE` of the time, so they
are frequent while they are cheap and rare while they read many dead entries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.runs.rows import HeldRun

SETTLE_SECONDS: Final = 2.0
HEAD_SECONDS: Final = 0.25
HEAD_SHARE: Final = 25
LEVELS: Final = range(10, 0, -1)


class ClaimStart:
    """Start positions of one claimer; its pool and processors never change. Not thread-safe."""

    def __init__(self) -> None:
        self._raised: deque[tuple[float, dict[int, int]]] = deque()
        self._starts: dict[int, int] = {}
        self._next_head = float("-inf")

    def clock_raised(self, runs: Iterable[HeldRun], now: float) -> None:
        """Record claimed runs whose ranks the stored fair clock has reached."""
        ranks: dict[int, int] = {}
        for run in runs:
            ranks[run.level] = max(ranks.get(run.level, 0), run.fair_rank)
        self._raised.append((now + SETTLE_SECONDS, ranks))

    def next_claim(self, now: float) -> Mapping[int, int] | None:
        """Return the lowest fair rank to read per level, or None to claim from the head."""
        while self._raised and self._raised[0][0] <= now:
            for level, rank in self._raised.popleft()[1].items():
                self._starts[level] = max(rank, self._starts.get(level, 0))
        if not self._starts or now >= self._next_head:
            return None
        return {level: self._starts.get(level, 0) for level in LEVELS}

    def head_claimed(self, began: float, now: float) -> None:
        """Record the duration of a claim from the head."""
        self._next_head = now + max(HEAD_SECONDS, HEAD_SHARE * (now - began))
