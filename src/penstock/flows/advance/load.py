"""Load the snapshots of locked flows: phases, completions, overrides and breakers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from penstock.db.store import Tx
from penstock.entities.store import reported_of
from penstock.flows.advance.snapshot import FlowSnapshot, Wakeup
from penstock.flows.gates.breaker import Breaker
from penstock.flows.gates.store.gates import breakers_of, probe_release_many
from penstock.flows.gates.store.overrides import overrides_of
from penstock.flows.items.store.expansions import expansions_fold_later
from penstock.flows.rows import CompletionRow, Locked, PhaseRow
from penstock.flows.store.completions import completions_later
from penstock.flows.store.flows import phases_later
from penstock.flows.store.plans import planned

_Known: TypeAlias = tuple[dict[int, list[PhaseRow]], dict[int, list[CompletionRow]]]
"""Phases and completions by flow."""


def snapshot_of(tx: Tx, locked: Locked, wakeup: Wakeup | None = None) -> FlowSnapshot:
    """Load the snapshot of one flow."""
    read = query_state(tx, [locked.flow.flow_id])
    return snapshots_of(tx, [locked], {locked.flow.flow_id: wakeup or Wakeup()}, read())[0]


def drop_stale_evidence(tx: Tx, wakeups: Mapping[int, Wakeup]) -> None:
    """Drop evidence whose probe lease is no longer current."""
    held = {
        gate_id: evidence.token
        for wakeup in wakeups.values()
        for gate_id, evidence in wakeup.evidence.items()
    }
    if held:
        current = probe_release_many(tx, sorted(held.items()))
        for wakeup in wakeups.values():
            wakeup.evidence = {g: e for g, e in wakeup.evidence.items() if g in current}


def query_state(tx: Tx, ids: Sequence[int]) -> Callable[[], _Known]:
    """Send the queries for the phases and completions of flows."""
    phases, seen = phases_later(tx, ids), completions_later(tx, ids)
    return lambda: (phases(), seen())


def snapshots_of(
    tx: Tx, locked: Sequence[Locked], wakeups: Mapping[int, Wakeup], known: _Known
) -> list[FlowSnapshot]:
    """Return the snapshots of locked flows, in the order of the locks."""
    now = max(one.now for one in locked)
    rows, seen = known
    approved = [one.flow.flow_id for one in locked if one.has_overrides]
    overrides = overrides_of(tx, approved) if approved else {}
    with_breakers = [one.flow.flow_id for one in locked if one.has_breakers]
    breakers = breakers_of(tx, with_breakers) if with_breakers else {}
    shared: dict[tuple[int, int, str], dict[str, Breaker]] = {}
    for one in locked:
        own = {p: b for (flow, p), b in breakers.items() if flow == one.flow.flow_id}
        shared.setdefault(one.flow.breaker_key, {}).update(own)
    plans = {
        one.flow.flow_id: planned(tx, one.flow.pipeline_key, one.flow.digest, one.flow.mode)
        for one in locked
    }
    fanning_out = [flow_id for flow_id, plan in plans.items() if plan.fan_outs]
    expansions = expansions_fold_later(tx, fanning_out)() if fanning_out else {}
    return [
        FlowSnapshot(
            flow=one.flow,
            planned=plans[one.flow.flow_id],
            now=now,
            rows={(row.phase, row.processor): row for row in rows[one.flow.flow_id]},
            completions=seen[one.flow.flow_id],
            overrides=overrides.get(one.flow.flow_id, ()),
            breakers=shared[one.flow.breaker_key],
            waits_for_flow=one.waits_for_flow,
            expansions={
                (row.phase, row.processor): row for row in expansions.get(one.flow.flow_id, ())
            },
        )
        for one in locked
        if rows[one.flow.flow_id] and one.flow.flow_id in wakeups
    ]


def load_reported(tx: Tx, snapshots: Sequence[FlowSnapshot]) -> None:
    """Load the changed entities of completions, for the messages about them."""
    keys = [
        seen.reported_by
        for snapshot in snapshots
        for seen in snapshot.completions
        if seen.entities is not None
    ]
    if keys:
        reported = reported_of(tx, keys)
        for snapshot in snapshots:
            snapshot.reported = reported
