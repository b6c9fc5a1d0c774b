"""The monitor: evaluates rules, opens one alert per cause, and resolves it when it ends.

Any number of replicas may run: one at a time makes a pass, by a compare-and-set on a counter, and
a pass that is repeated changes nothing. A pass reads in one transaction and writes in another, so
that it holds no lock while it evaluates. It waits for nothing but the store: probes of tables are
left to `detection.freshness`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.core.clock import MINUTE, SECOND
from penstock.db.store import Transactions
from penstock.detection.finding import LIVE_RULES, TREND_RULES, Finding
from penstock.detection.store import (
    FOLD_ROWS,
    executions_fold,
    findings_apply,
    ladder_alerts_close,
    live_findings,
    trend_findings,
)
from penstock.flows.ladder.store import pass_take

LIVE_EVERY: Final = 30 * SECOND
TREND_EVERY: Final = 5 * MINUTE
ACTOR: Final = "monitor"
FOLDS_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCounts:
    """Counts of one step: findings, alerts opened and resolved."""

    findings: int = 0
    opened: int = 0
    resolved: int = 0


class Monitor:
    """Service that detects late, stuck, missing and at-risk work."""

    name = "monitor"

    def __init__(self, store: Transactions) -> None:
        self._store = store

    def run_once(self) -> PassCounts:
        """Make the passes that are due."""
        total = PassCounts()
        if self._store.write(lambda tx: pass_take(tx, "monitor_at", LIVE_EVERY)):
            total = self._apply(total, self._store.read(live_findings), LIVE_RULES)
            self._store.write(lambda tx: ladder_alerts_close(tx, ACTOR))
        if self._store.write(lambda tx: pass_take(tx, "monitor_trends_at", TREND_EVERY)):
            self._fold()
            total = self._apply(total, self._store.read(trend_findings), TREND_RULES)
        return total

    def _apply(
        self, total: PassCounts, found: Sequence[Finding], rules: Sequence[str]
    ) -> PassCounts:
        opened, resolved = self._store.write(lambda tx: findings_apply(tx, found, rules, ACTOR))
        return PassCounts(
            findings=total.findings + len(found),
            opened=total.opened + opened,
            resolved=total.resolved + resolved,
        )

    def _fold(self) -> None:
        for _ in range(FOLDS_MAX):
            if self._store.write(executions_fold) < FOLD_ROWS:
                break
