"""The fair clock, which a worker advances after a claim without delaying the claimed runs.

Newly arriving customers start their fair rank at this clock (see `store.runs`). It may lag a
little, so ten updates a second are enough; a worker calls `raise_once` after it has dispatched the
runs of a claim.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.core.clock import Clock
from penstock.db.store import Single, Transactions
from penstock.runs.claim_start import ClaimStart
from penstock.runs.rows import HeldRun
from penstock.runs.store.runs import fair_clock_raise

GAP_SECONDS: Final = 0.1


class FairClock:
    """Buffer of claimed runs whose fair ranks raise the clock. Use from one thread at a time."""

    def __init__(self, store: Transactions, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._claimed: list[HeldRun] = []
        self._raised = float("-inf")
        self.claim_start = ClaimStart()

    def claimed(self, runs: Iterable[HeldRun]) -> None:
        """Record claimed runs."""
        self._claimed += runs

    def raise_once(self) -> None:
        """Raise the stored clock, at most once per GAP_SECONDS."""
        now = self._clock.monotonic()
        if self._claimed and now - self._raised >= GAP_SECONDS:
            self._store.write(Single(lambda tx: fair_clock_raise(tx, self._claimed)))
            self.claim_start.clock_raised(self._claimed, self._clock.monotonic())
            self._claimed, self._raised = [], now
