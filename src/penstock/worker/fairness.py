"""The fair clock as a worker moves it: after what it claimed, and not in the way of those runs.

The clock is what newcomers count their turns from (see `store.runs`). It may lag a little, so some
ten times a second are enough; a worker calls `raise_once` when a claim's runs are under way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.core.clock import Clock
from penstock.db.store import Single, Store
from penstock.runs.rows import HeldRun
from penstock.runs.store.runs import fair_clock_raise

GAP_SECONDS: Final = 0.1


class FairClock:
    """Collects turns that were claimed. One thread at a time."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._claimed: list[HeldRun] = []
        self._raised = float("-inf")

    def claimed(self, runs: Iterable[HeldRun]) -> None:
        """Runs were claimed."""
        self._claimed += runs

    def raise_once(self) -> None:
        """Let the clock follow, unless it did so a moment ago."""
        now = self._clock.monotonic()
        if self._claimed and now - self._raised >= GAP_SECONDS:
            self._store.write(Single(lambda tx: fair_clock_raise(tx, self._claimed)))
            self._claimed, self._raised = [], now
