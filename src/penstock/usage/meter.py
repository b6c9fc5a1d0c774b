"""The usage meter: sums of ended runs, profiles of processors, and hard stops of budgets.

Any number of processes may run it: one at a time makes a pass, and each transaction stores its
position together with the sums, so that no run is counted twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.core.clock import HOUR, SECOND
from penstock.db.store import Transactions
from penstock.flows.ladder.store import pass_take
from penstock.usage.store import budgets_enforce, usage_fold, usage_prune

PASS_EVERY: Final = 15 * SECOND
SLICES_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterCounts:
    """Counts of one pass: slices of time folded, budgets that stopped or resumed runs."""

    slices: int = 0
    stopped: int = 0
    resumed: int = 0


class UsageMeter:
    """Service that records usage and enforces budgets."""

    name = "usage-meter"

    def __init__(self, store: Transactions) -> None:
        self._store = store

    def run_once(self) -> MeterCounts:
        """Make a pass, if it is due."""
        if not self._store.write(lambda tx: pass_take(tx, "usage_pass_at", PASS_EVERY)):
            return MeterCounts()
        slices = 0
        while slices < SLICES_MAX:
            slices += 1
            if not self._store.write(usage_fold):
                break
        stopped, resumed = self._store.write(budgets_enforce)
        if self._store.write(lambda tx: pass_take(tx, "usage_pruned_at", HOUR)):
            self._store.write(usage_prune)
        return MeterCounts(slices=slices, stopped=stopped, resumed=resumed)
