"""Facts about the flows that reported a change of an entity."""

from __future__ import annotations

import json
from collections.abc import Sequence

from penstock.db.store import Tx
from penstock.entities.rows import EntityChange, InputRow
from penstock.entities.store import input_rows_of_flow, watermarks_of_flow
from penstock.flows.cascade import CompletionStatus
from penstock.flows.explain.entity import EntityFlowFact, EntityPhaseFact
from penstock.flows.rows import FlowFilter, FlowRow
from penstock.flows.store.completions import completions_of
from penstock.flows.store.flows import flow_get, flow_list, generation_newest, phases_of
from penstock.flows.store.plans import planned


def entity_flow_facts(
    tx: Tx, changes: Sequence[EntityChange], kind: str, n: int
) -> list[EntityFlowFact]:
    """Return the newest flows that reported the changes, at most `n`.

    A later generation that inherited the report is listed before the flow that made it.
    """
    groups: dict[tuple[int | None, int | None], list[EntityChange]] = {}
    for one in changes:
        key = (one.flow_id, None if one.flow_id is not None else one.run_id)
        groups.setdefault(key, []).append(one)
    found: list[EntityFlowFact] = []
    seen: set[int] = set()
    for group in groups.values():
        flow_id = group[0].flow_id
        flow = None if flow_id is None else flow_get(tx, flow_id)
        for later in [] if flow is None else _later_generations(tx, flow):
            inherited = _inherited(tx, later, group) if later.flow_id not in seen else []
            seen.add(later.flow_id)
            if inherited:
                found.append(_fact(tx, later, inherited, kind))
        if flow_id not in seen:
            found.append(_fact(tx, flow, group, kind))
        if len(found) >= n:
            break
    return found[:n]


def _later_generations(tx: Tx, flow: FlowRow) -> list[FlowRow]:
    """Return the newest generation after each flow, if there is one."""
    if generation_newest(tx, flow.key) <= flow.generation:
        return []
    wanted = FlowFilter(
        customer=flow.customer_key,
        pipeline=flow.pipeline_key,
        partition=flow.partition,
        mode=flow.mode,
        limit=1,
    )
    return [one for one in flow_list(tx, wanted) if one.generation > flow.generation]


def _inherited(tx: Tx, flow: FlowRow, changes: Sequence[EntityChange]) -> list[EntityChange]:
    """Return the reports of processors whose completions a later generation has."""
    done = {(one.phase, one.processor) for one in completions_of(tx, [flow.flow_id])[flow.flow_id]}
    return [one for one in changes if (one.phase, one.processor) in done]


def _fact(
    tx: Tx, flow: FlowRow | None, changes: Sequence[EntityChange], kind: str
) -> EntityFlowFact:
    first = changes[0]
    return EntityFlowFact(
        flow_id=first.flow_id if flow is None else flow.flow_id,
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
