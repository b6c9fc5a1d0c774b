"""Facts about the flows that reported a change of an entity."""

from __future__ import annotations

import json
from collections.abc import Sequence

from penstock.db.store import Tx
from penstock.entities.rows import EntityChange, InputRow
from penstock.entities.store import input_rows_of_flow, watermarks_of_flow
from penstock.flows.cascade import CompletionStatus
from penstock.flows.explain.entity import EntityFlowFact, EntityPhaseFact
from penstock.flows.rows import FlowRow
from penstock.flows.store.completions import completions_of
from penstock.flows.store.flows import flow_get, phases_of
from penstock.flows.store.plans import planned


def entity_flow_facts(
    tx: Tx, changes: Sequence[EntityChange], kind: str, n: int
) -> list[EntityFlowFact]:
    """Return the newest flows that reported the changes, at most `n`."""
    groups: dict[tuple[int | None, int | None], list[EntityChange]] = {}
    for one in changes:
        key = (one.flow_id, None if one.flow_id is not None else one.run_id)
        groups.setdefault(key, []).append(one)
    return [_fact(tx, group, kind) for group in list(groups.values())[:n]]


def _fact(tx: Tx, changes: Sequence[EntityChange], kind: str) -> EntityFlowFact:
    first = changes[0]
    flow = None if first.flow_id is None else flow_get(tx, first.flow_id)
    return EntityFlowFact(
        flow_id=first.flow_id,
        pipeline=first.pipeline,
        partition=first.partition,
        mode=first.mode,
        generation=None if flow is None else flow.generation,
        state=None if flow is None else flow.state,
        changes=changes,
        phases=() if flow is None else _phases(tx, flow, changes, kind),
    )


def _phases(
    tx: Tx, flow: FlowRow, changes: Sequence[EntityChange], kind: str
) -> list[EntityPhaseFact]:
    plan = planned(tx, flow.pipeline_key, flow.digest, flow.mode)
    rows = {
        row.phase: row for row in phases_of(tx, [flow.flow_id])[flow.flow_id] if not row.processor
    }
    seen = completions_of(tx, [flow.flow_id])[flow.flow_id]
    inputs = input_rows_of_flow(tx, flow.flow_id) if plan.incremental else []
    series = (flow.customer_key, flow.pipeline_key, flow.config_id)
    marks = watermarks_of_flow(tx, series, flow.partition) if plan.incremental else {}
    ids = {one.change_id for one in changes}
    found = []
    for phase in plan.plan.phases:
        sources = {
            name: [c for c in changes if (c.phase, c.processor) in own.sources]
            for (where, name), own in plan.incremental.items()
            if where == phase.name and kind in own.kinds
        }
        found.append(
            EntityPhaseFact(
                name=phase.name,
                after=phase.after,
                state=rows[phase.name].state,
                is_last=phase.name in plan.plan.last,
                done=tuple(
                    s.processor
                    for s in seen
                    if s.phase == phase.name and s.status != CompletionStatus.FAILED
                ),
                received={
                    row.name: row.reason
                    for row in inputs
                    if row.phase == phase.name and _has(row, ids, kind)
                },
                incremental=frozenset(n for where, n in plan.incremental if where == phase.name),
                caught_up={
                    name: marks[phase.name, name][1]
                    for name, reports in sources.items()
                    if (phase.name, name) in marks
                    and marks[phase.name, name][1] != flow.flow_id
                    and any(
                        c.epoch is not None and 0 < c.epoch <= marks[phase.name, name][0]
                        for c in reports
                    )
                },
            )
        )
    return found


def _has(row: InputRow, changes: set[int], kind: str) -> bool:
    """Whether a processor received one of the changes, or everything."""
    if row.reason is not None:
        return True
    return kind in json.loads(row.kinds) and bool(changes & set(json.loads(row.changes)))
