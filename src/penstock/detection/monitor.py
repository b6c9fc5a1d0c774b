"""The monitor: evaluates every rule, opens one alert per cause, and resolves it when it ends.

Any number of replicas may run: one at a time makes a pass, by a compare-and-set on a counter, and
a pass that is repeated changes nothing. A pass reads in one transaction and writes in another, so
that it holds no lock while it evaluates.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.access.store.registry import pipeline_list
from penstock.core.clock import DAY, MINUTE, SECOND
from penstock.core.stored_json import from_json
from penstock.db.store import Transactions, Tx
from penstock.detection.finding import LIVE_RULES, TREND_RULES
from penstock.detection.store import (
    FOLD_ROWS,
    executions_fold,
    findings_apply,
    freshness_put_many,
    ladder_alerts_close,
    live_findings,
    trend_findings,
)
from penstock.detection.trend_rules import freshness_status
from penstock.flows.gates.probe_request import Prober, ProbeRequest, no_probes
from penstock.flows.ladder.store import pass_take
from penstock.pipelines.declare.terms import PipelineSettings
from penstock.pipelines.dependency import Dependency, DependencyKind

log = logging.getLogger(__name__)

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

    def __init__(self, store: Transactions, probe: Prober = no_probes) -> None:
        """Probe the tables of freshness policies through `probe`."""
        self._store = store
        self._probe = probe

    def run_once(self) -> PassCounts:
        """Make the passes that are due."""
        total = PassCounts()
        if self._store.write(lambda tx: pass_take(tx, "monitor_at", LIVE_EVERY)):
            total = self._apply(total, self._store.read(live_findings), LIVE_RULES)
            self._store.write(lambda tx: ladder_alerts_close(tx, ACTOR))
        if self._store.write(lambda tx: pass_take(tx, "monitor_trends_at", TREND_EVERY)):
            self._fold()
            self._probe_tables()
            total = self._apply(total, self._store.read(trend_findings), TREND_RULES)
        return total

    def _apply(self, total: PassCounts, found: Sequence[Any], rules: Sequence[str]) -> PassCounts:
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

    def _probe_tables(self) -> None:
        """Probe the tables that have a freshness policy, outside any transaction."""
        policies = self._store.read(_policies)
        if not policies:
            return
        now = self._store.read(lambda tx: tx.now())
        rows: list[tuple[int, str, int, int | None, str, str | None]] = []
        for pipeline_key, dependency in policies:
            request = ProbeRequest(dependencies=[dependency], partition="", since=now)
            (seen,) = self._probe(request)
            max_age = dependency.max_age_us or 0
            error = None if seen.error is None else str(seen.error)[:500]
            status = freshness_status(seen.newest_us, error, max_age, now)
            rows.append((pipeline_key, dependency.table, max_age, seen.newest_us, status, error))
        self._store.write(lambda tx: freshness_put_many(tx, rows, now - DAY))


def _policies(tx: Tx) -> list[tuple[int, Dependency]]:
    """Return the freshness policies that registered pipelines declare."""
    found: list[tuple[int, Dependency]] = []
    for pipeline_key, name, _, text, *_ in pipeline_list(tx):
        try:
            settings = from_json(PipelineSettings, json.loads(text))
        except Exception:
            log.exception("the declaration of %s cannot be read", name)
            continue
        for table, (max_age_us, column) in (settings.freshness or {}).items():
            dependency = Dependency(
                table=table,
                kind=DependencyKind.SAME_DAY,
                max_age_us=max_age_us,
                age_column=column,
                warehouse=settings.warehouse,
                shared=True,
            )
            found.append((pipeline_key, dependency))
    return found
