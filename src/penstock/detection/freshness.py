"""The freshness prober: probes the tables that have a freshness policy, and reports stale ones.

A warehouse that does not answer costs a whole time limit per probe. The prober therefore has its
own loop, so that it never delays the monitor, and probes few tables at a time, so that gates, which
share its threads, can probe too. Any number of replicas may run: one at a time makes a pass.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Final

from penstock.access.store.registry import pipeline_list
from penstock.core.clock import DAY, MINUTE
from penstock.core.stored_json import from_json
from penstock.db.isolation import interleaved
from penstock.db.store import Transactions, Tx
from penstock.detection.finding import FRESHNESS_RULES
from penstock.detection.store import findings_apply, freshness_findings, freshness_put_many
from penstock.detection.trend_rules import freshness_status
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.probe_request import Prober, ProbeRequest, no_probes
from penstock.flows.ladder.store import pass_take
from penstock.pipelines.declare.terms import PipelineSettings
from penstock.pipelines.dependency import Dependency, DependencyKind

log = logging.getLogger(__name__)

PROBE_EVERY: Final = 5 * MINUTE
AT_ONCE: Final = 4
"""Number of tables probed at a time: half of the threads of a process."""
ACTOR: Final = "freshness"


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshnessCounts:
    """Counts of one step: tables probed, alerts opened and resolved."""

    probed: int = 0
    opened: int = 0
    resolved: int = 0


class FreshnessProber:
    """Service that probes tables for their freshness."""

    name = "freshness"

    def __init__(self, store: Transactions, probe: Prober = no_probes) -> None:
        self._store = store
        self._probe = probe

    def run_once(self) -> FreshnessCounts:
        """Probe every table that has a policy, if a pass is due."""
        if not self._store.write(lambda tx: pass_take(tx, "freshness_at", PROBE_EVERY)):
            return FreshnessCounts()
        # A warehouse that hangs does not keep the tables of others waiting.
        policies = interleaved(self._store.read(_policies), lambda one: one[1].warehouse)
        opened = resolved = 0
        for start in range(0, max(1, len(policies)), AT_ONCE):
            counts = self._check(policies[start : start + AT_ONCE])
            opened, resolved = opened + counts[0], resolved + counts[1]
        return FreshnessCounts(probed=len(policies), opened=opened, resolved=resolved)

    def _check(self, policies: list[tuple[int, Dependency]]) -> tuple[int, int]:
        """Probe tables outside any transaction, then store the results and apply the rule."""
        seen: list[Observation] = []
        if policies:
            now = self._store.read(lambda tx: tx.now())
            dependencies = [dependency for _, dependency in policies]
            request = ProbeRequest(dependencies=dependencies, partition="", since=now)
            seen = list(self._probe(request))

        def put(tx: Tx) -> tuple[int, int]:
            now, rows = tx.now(), []
            for (pipeline_key, dependency), found in zip(policies, seen, strict=True):
                max_age = dependency.max_age_us or 0
                error = None if found.error is None else str(found.error)[:500]
                status = freshness_status(found.newest_us, error, max_age, now)
                rows.append(
                    (pipeline_key, dependency.table, max_age, found.newest_us, status, error)
                )
            freshness_put_many(tx, rows, now - DAY)
            return findings_apply(tx, freshness_findings(tx), FRESHNESS_RULES, ACTOR)

        return self._store.write(put)


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
