"""The recorder: results of flows and phases, breaches, counts of runs, and the targets in force.

Any number of processes may run it: one at a time makes a pass, and each result is a separate row
that is counted when it is inserted, so a repeated pass changes nothing. A flow or phase that is
still open at its target time is recorded once at that time; its end is added later.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.access.store.registry import pipeline_list
from penstock.core.clock import DAY, MINUTE, SECOND, Micros
from penstock.core.errors import StoreError
from penstock.core.naming import PipelineKey
from penstock.db.store import Transactions, Tx
from penstock.flows.ladder.store import pass_take
from penstock.flows.plan import FlowPlan, planned_of
from penstock.flows.store.plans import planned
from penstock.pipelines.plan import modes_of
from penstock.slos.declared import SloSettings, customers_named, override_of
from penstock.slos.objectives import LATENCY, MEASURES, targets_of_mode
from penstock.slos.results import Seen, earliest_late, result_of
from penstock.slos.rows import EndedRow, TargetRow
from penstock.slos.store import (
    customer_keys,
    ended_flows,
    ended_phases,
    open_rows,
    position_set,
    position_take,
    results_add,
    runs_fold,
    slos_prune,
    stale_tables_announce,
    targets_put,
)

log = logging.getLogger(__name__)

PASS_EVERY: Final = 20 * SECOND
DECLARE_EVERY: Final = MINUTE
LAG_US: Final = 30 * SECOND
"""Delay after which ended runs are counted; longer while an older transaction is open."""
OVERLAP_US: Final = 10 * MINUTE
"""Period for which ends are read again; existing results are not counted again."""
BATCH: Final = 1_000
BATCHES_MAX: Final = 20
SLICES_MAX: Final = 200
"""Maximum number of slices of ended runs in one pass."""
KEPT_US: Final = 90 * DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderCounts:
    """Counts of one pass: results of flows and phases, and how many were late."""

    results: int = 0
    late: int = 0


class _Targets(NamedTuple):
    """Targets in force, and the latencies among them by pipeline, mode, phase and customer."""

    rows: list[TargetRow]
    latency: dict[tuple[int, str, str, int], float]


class SloRecorder:
    """Service that records results against targets."""

    name = "slo-recorder"

    def __init__(self, store: Transactions, settings: SloSettings | None = None) -> None:
        self._store = store
        self._settings = settings or SloSettings()
        self._targets: _Targets | None = None

    def run_once(self) -> RecorderCounts:
        """Make a pass, if it is due."""
        if not self._store.write(lambda tx: pass_take(tx, "slo_pass_at", PASS_EVERY)):
            return RecorderCounts()
        self._declare()
        results = sum(self._drain(step) for step in (self._flows, self._phases))
        late = self._store.write(self._late)
        for _ in range(SLICES_MAX):
            if not self._store.write(self._runs):
                break
        self._store.write(stale_tables_announce)
        return RecorderCounts(results=results + late, late=late)

    def _declare(self) -> None:
        """Store the targets in force, every minute and in a new process."""
        is_due = self._store.write(lambda tx: pass_take(tx, "slo_declared_at", DECLARE_EVERY))
        if self._targets is None or is_due:
            made = self._targets = self._store.read(self._read_targets)
            self._store.write(lambda tx: targets_put(tx, made.rows))
            self._store.write(lambda tx: slos_prune(tx, tx.now() - KEPT_US))

    def _read_targets(self, tx: Tx) -> _Targets:
        rows: list[TargetRow] = []
        keys = customer_keys(tx, [s.customer for s in self._settings.targets if s.customer])
        for pipeline_key, name, _, text, has_flow, _ in pipeline_list(tx):
            customers = [(None, 0)] + [
                (customer, keys[customer])
                for customer in customers_named(self._settings.targets, name)
                if customer in keys
            ]
            try:
                declared = _declared(json.loads(text), has_flow=has_flow)
            except Exception:
                log.exception("the declaration of %s cannot be read", name)
                continue
            for mode, phase, measure, target in declared:
                for customer, customer_key in customers:
                    found = override_of(
                        self._settings.targets, measure=measure, pipeline=name, mode=mode,
                        phase=phase, customer=customer,
                    )  # fmt: skip
                    objective = found.objective
                    rows.append(
                        TargetRow(
                            pipeline_key, mode, phase, measure, customer_key,
                            target if found.target is None else found.target,
                            MEASURES[measure].objective if objective is None else objective,
                        )
                    )  # fmt: skip
        latency = {
            (row.pipeline_key, row.mode, row.phase, row.customer_key): row.target
            for row in rows
            if row.measure == LATENCY and row.target is not None
        }
        return _Targets(rows, latency)

    def _drain(self, step: Callable[[Tx], tuple[int, int]]) -> int:
        """Repeat a step until its batch is not full."""
        total = 0
        for _ in range(BATCHES_MAX):
            read, added = self._store.write(step)
            total += added
            if read < BATCH:
                break
        return total

    def _flows(self, tx: Tx) -> tuple[int, int]:
        now = tx.now()
        after = position_take(tx, "slo_flows_to", now - self._settings.window_us)
        rows = ended_flows(tx, after, BATCH)
        added = results_add(tx, self._seen(tx, rows))
        last = rows[-1].ended_at if len(rows) == BATCH else None
        position_set(tx, "slo_flows_to", max(after, now - OVERLAP_US) if last is None else last - 1)
        return len(rows), added

    def _phases(self, tx: Tx) -> tuple[int, int]:
        now = tx.now()
        after = position_take(tx, "slo_phases_to", now - self._settings.window_us)
        rows = ended_phases(tx, after, BATCH)
        added = results_add(tx, self._seen(tx, [row for row, _ in rows]))
        position = max(after, now - OVERLAP_US) if len(rows) < BATCH else rows[-1][1] - 1
        position_set(tx, "slo_phases_to", position)
        return len(rows), added

    def _late(self, tx: Tx) -> int:
        """Record open flows and phases whose target time has passed."""
        assert self._targets is not None
        latency = self._targets.latency
        now, late = tx.now(), []
        for statement, is_phase in (("slo_open_flows", False), ("slo_open_phases", True)):
            age_us = earliest_late([t for key, t in latency.items() if bool(key[2]) == is_phase])
            if age_us is not None:
                seen = self._seen(tx, open_rows(tx, statement, age_us, 20 * BATCH))
                late += [one for one in seen if one.result.outcome == "missed"]
        return results_add(tx, late) if late and now else 0

    def _runs(self, tx: Tx) -> bool:
        return runs_fold(tx, "slo_runs_to", lag_us=LAG_US, window_us=self._settings.window_us)

    def _seen(self, tx: Tx, rows: Sequence[EndedRow]) -> list[Seen]:
        now, found = tx.now(), []
        for row in rows:
            try:
                of_flow = planned(tx, PipelineKey(row.pipeline_key), row.digest, row.mode)
            except StoreError:
                raise
            except Exception:
                log.exception("the declaration of flow %s cannot be read", row.flow_id)
                continue
            target = self._latency(row, of_flow)
            found.append(Seen(row, of_flow, result_of(row, target, now)))
        return found

    def _latency(self, row: EndedRow, of_flow: FlowPlan) -> float | None:
        """Return the latency target of a row: of its customer, of all, or as it was declared."""
        assert self._targets is not None
        latency = self._targets.latency
        for customer in (row.customer_key, 0):
            target = latency.get((row.pipeline_key, row.mode, row.phase, customer))
            if target is not None:
                return target
        return _declared_latency(of_flow, row.phase)


def _declared_latency(of_flow: FlowPlan, phase: str) -> Micros | None:
    if not phase:
        return of_flow.mode.slo_us
    return of_flow.plan.phase(phase).terms.slo_us if of_flow.plan.has_phase(phase) else None


def _declared(
    definition: dict[str, object], *, has_flow: bool
) -> list[tuple[str, str, str, float | None]]:
    """Return mode, phase, measure and target of all service levels of a pipeline."""
    found: list[tuple[str, str, str, float | None]] = [
        ("", "", measure, None) for measure, terms in MEASURES.items() if not terms.has_mode
    ]
    if not has_flow:
        return found
    for name in modes_of(definition):
        of_flow = planned_of(definition, name)
        found.append((name, "", LATENCY, of_flow.mode.slo_us))
        found += [(name, "", m, target) for m, target in targets_of_mode(of_flow.mode).items()]
        found += [(name, phase.name, LATENCY, phase.terms.slo_us) for phase in of_flow.plan.phases]
    return found
