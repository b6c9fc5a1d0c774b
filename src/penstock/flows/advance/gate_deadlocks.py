"""Gate deadlocks: gates of one flow that wait for each other's tables would wait forever.

Checked before a gate decides, in memory over its `FlowSnapshot`. The tables that other gates wait
for are the absent ones of their last probe; a table produced outside the waiting gates may still
arrive. Processors also wait for the phases before theirs, so two branches can wait for each other.
Tables that no processor of the flow declares to produce never cause a deadlock.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from penstock.flows.advance.snapshot import FlowSnapshot
from penstock.flows.cascade import GateRequest
from penstock.flows.gates.evidence import Assessment
from penstock.flows.gates.gate_score import is_critical_absent
from penstock.flows.gates.override import covering_overrides
from penstock.flows.phases import WAITS_FOR_GATE, PhaseState
from penstock.flows.rows import PhaseRow
from penstock.pipelines.cycles import cycle_of
from penstock.pipelines.dependency import DependencyKind
from penstock.pipelines.plan import PhasePlan


def gate_deadlock(
    snapshot: FlowSnapshot, ask: GateRequest, found: Sequence[Assessment]
) -> tuple[str, ...]:
    """Return the processors in a deadlock that includes this gate, or an empty tuple."""
    absent = {
        a.table
        for a in found
        if is_critical_absent(a)
        and a.rows == 0
        and not covering_overrides(a, snapshot.overrides, snapshot.now)
    }
    products = snapshot.planned.products
    if not any(absent & tables for tables in products.values()):
        return ()
    waits: dict[str, set[str]] = {}
    makers: dict[str, set[str]] = {node: set(tables) for node, tables in products.items()}
    for phase in snapshot.planned.plan.phases:
        for name in phase.expected:
            row = _gate(snapshot, phase, name)
            if row.started_at is not None or PhaseState(row.state) not in WAITS_FOR_GATE:
                continue
            node = f"{phase.name}/{name}"
            is_asked = ask.phase == phase.name and ask.processor in (None, name)
            tables = absent if is_asked else _absent(snapshot, row)
            waits[node] = {*tables, *_order_dependencies(snapshot, phase, node, makers)}
    for name in snapshot.planned.plan.phase(ask.phase).expected:
        if ask.processor in (None, name):
            cycle = cycle_of(f"{ask.phase}/{name}", waits, makers)
            if cycle:
                return cycle
    return ()


def _gate(snapshot: FlowSnapshot, phase: PhasePlan, processor: str) -> PhaseRow:
    return snapshot.row(phase.name, processor if phase.terms.on == "each" else "")


def _absent(snapshot: FlowSnapshot, row: PhaseRow) -> set[str]:
    """Return the critical same-day tables that had no rows in the gate's last probe."""
    seen: Mapping[str, list[object]] = {} if row.evidence is None else json.loads(row.evidence)
    needs = [need.dependency for need in snapshot.planned.needs(row.phase, row.processor)]
    return {
        need.table
        for need in needs
        if need.kind is DependencyKind.SAME_DAY
        and need.critical
        and seen.get(need.key, [None])[0] == 0
    }


def _order_dependencies(
    snapshot: FlowSnapshot, phase: PhasePlan, node: str, makers: dict[str, set[str]]
) -> Collection[str]:
    """Return what a processor waits for because of the phase order, as pseudo-tables.

    These are all processors of a phase that must be complete, or any one of them if the phase
    starts without stragglers or one report is enough.
    """
    found: set[str] = set()
    for name in phase.after:
        before = snapshot.planned.plan.phase(name)
        some = phase.terms.on == "each" or before.terms.stragglers_us is not None
        for processor in before.expected:
            pseudo_table = f"some of {name} for {node}" if some else f"end of {name}/{processor}"
            makers.setdefault(f"{name}/{processor}", set()).add(pseudo_table)
            found.add(pseudo_table)
    return found
