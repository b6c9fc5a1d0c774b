"""Service that folds rows of the logs into the counters of analytics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.analytics.store import SOURCES, counters_prune, fold
from penstock.core.clock import HOUR, Micros
from penstock.db.store import Transactions, Tx

STEPS_MAX: Final = 50
"""Maximum number of steps per log in one pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldCounts:
    """Counts of one pass."""

    rows: int = 0
    removed: int = 0
    is_current: bool = True
    """Whether everything that is old enough is folded."""


class Aggregator:
    """Service that counts ended runs, dependency checks, phases and flows.

    Each step is one transaction that locks the horizon of its log, so any number of replicas may
    run; of two concurrent ones, the second finds the horizon moved.
    """

    name = "aggregator"

    def __init__(self, store: Transactions) -> None:
        self._store = store
        self._windows: dict[str, Micros] = dict.fromkeys(SOURCES, HOUR)

    def run_once(self) -> FoldCounts:
        """Fold the rows that are old enough, and delete old counters."""
        rows, is_current = 0, True
        for source in SOURCES:
            for _ in range(STEPS_MAX):

                def step(tx: Tx, source: str = source) -> tuple[int, Micros, bool]:
                    return fold(tx, source, self._windows[source])

                count, self._windows[source], done = self._store.write(step)
                rows += count
                if done:
                    break
            else:
                is_current = False
        removed = self._store.write(counters_prune)
        return FoldCounts(rows=rows, removed=removed, is_current=is_current)
