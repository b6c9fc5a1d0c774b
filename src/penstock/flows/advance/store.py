"""Advancing flows: the only code path that starts or ends phases.

`advance` locks the flows first, in id order, then reads. So two concurrent last completions cannot
miss each other, and a duplicate finds the existing trigger. Gates that need probes are leased to
the caller, which probes outside any transaction and returns with evidence and token. Without a
holder, the gates are marked as due for another process. The scheduler, the client and the
orchestrator call `advance`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from penstock.core.clock import MINUTE
from penstock.db.store import Tx
from penstock.flows.advance.change_set import CachedObservations, Changes, Start, run_rows
from penstock.flows.advance.decide import evaluate_flow
from penstock.flows.advance.snapshot import FlowSnapshot, ProbeOrder, Wakeup
from penstock.flows.gates.breaker import Breaker
from penstock.flows.gates.store.gates import (
    breaker_lock_many,
    breakers_of,
    probe_lease_many,
    probe_release_many,
)
from penstock.flows.gates.store.people import overrides_of
from penstock.flows.store.completions import CompletionRow, completions_later
from penstock.flows.store.create import flow_rerun
from penstock.flows.store.flows import (
    Locked,
    PhaseRow,
    config_defaults,
    flow_lock_later,
    flow_runs_live,
    phases_later,
    processors_later,
)
from penstock.flows.store.plans import planned
from penstock.runs.store.finish import run_cancel
from penstock.runs.store.runs import run_insert_many

PROBE_LEASE_US: Final = 2 * MINUTE
"""Longer than any probe may take, so that a slow warehouse is not probed twice."""
_SLACK_US: Final = 10_000
_Known: TypeAlias = tuple[dict[int, list[PhaseRow]], dict[int, list[CompletionRow]]]
"""Phases and completions by flow."""


@dataclass(slots=True, kw_only=True)
class AdvanceResult:
    """The result of `advance`; the caller has to run `looks`."""

    flows: int = 0
    decisions: int = 0
    triggers: int = 0
    runs: int = 0
    ended: int = 0
    reruns: int = 0
    stopped: int = 0
    run_ids: list[int] = field(default_factory=list)
    pools: set[str] = field(default_factory=set)
    looks: list[ProbeOrder] = field(default_factory=list)


def advance(
    tx: Tx,
    wakeups: Mapping[int, Wakeup],
    *,
    actor: str,
    holder: str | None = None,
    known: CachedObservations | None = None,
) -> AdvanceResult:
    """Evaluate flows and write the result; `holder` leases the probes that are needed.

    known: returns cached observations of a gate, which make a probe unnecessary.
    """
    # One round trip: each statement still runs, and takes its snapshot, after the previous one.
    lock, read = flow_lock_later(tx, wakeups), _query_state(tx, sorted(wakeups))
    locked = lock()
    if not locked:
        return AdvanceResult()
    _drop_stale(tx, wakeups)
    with_breakers = [one.flow.flow_id for one in locked if one.has_breakers]
    if with_breakers:
        breaker_lock_many(tx, with_breakers)
    snapshots = _snapshots(tx, locked, wakeups, read())
    changes = Changes(actor, known)
    for snapshot in snapshots:
        evaluate_flow(snapshot, wakeups[snapshot.flow.flow_id], changes)
    probes = _lease(tx, changes, holder)
    pipelines = {start.book.flow.pipeline_no for start in changes.starts}
    find = processors_later(tx, pipelines) if pipelines else dict
    starts = changes.write(tx, snapshots)
    processors = find()
    run_ids = _run(tx, starts, processors, actor)
    stopped = sum(_stop(tx, flow_id, actor) for flow_id in changes.overdue)
    reruns = sum(flow_rerun(tx, late, actor) for late in changes.late)
    return AdvanceResult(
        flows=len(snapshots),
        decisions=len(changes.decisions),
        triggers=len(starts),
        runs=len(run_ids),
        ended=changes.ended,
        reruns=reruns,
        stopped=stopped,
        run_ids=run_ids,
        pools={processors[key][1] for start in starts for key in start.places},
        looks=probes,
    )


def snapshot_of(tx: Tx, locked: Locked, wakeup: Wakeup | None = None) -> FlowSnapshot:
    """Load the snapshot of one flow."""
    read = _query_state(tx, [locked.flow.flow_id])
    return _snapshots(tx, [locked], {locked.flow.flow_id: wakeup or Wakeup()}, read())[0]


def _drop_stale(tx: Tx, wakeups: Mapping[int, Wakeup]) -> None:
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


def _query_state(tx: Tx, ids: Sequence[int]) -> Callable[[], _Known]:
    """Send the queries for the phases and completions of flows."""
    phases, seen = phases_later(tx, ids), completions_later(tx, ids)
    return lambda: (phases(), seen())


def _snapshots(
    tx: Tx, locked: Sequence[Locked], wakeups: Mapping[int, Wakeup], known: _Known
) -> list[FlowSnapshot]:
    now = max(one.now for one in locked)
    rows, seen = known
    approved = [one.flow.flow_id for one in locked if one.has_overrides]
    overrides = overrides_of(tx, approved) if approved else {}
    with_breakers = [one.flow.flow_id for one in locked if one.has_breakers]
    breakers = breakers_of(tx, with_breakers) if with_breakers else {}
    shared: dict[tuple[int, int, str], dict[str, Breaker]] = {}
    for one in locked:
        own = {p: b for (flow, p), b in breakers.items() if flow == one.flow.flow_id}
        shared.setdefault(one.flow.place, {}).update(own)
    return [
        FlowSnapshot(
            flow=one.flow,
            planned=planned(tx, one.flow.pipeline_no, one.flow.digest, one.flow.mode),
            now=now,
            rows={(row.phase, row.processor): row for row in rows[one.flow.flow_id]},
            seen=seen[one.flow.flow_id],
            overrides=overrides.get(one.flow.flow_id, ()),
            breakers=shared[one.flow.place],
            behind=one.behind,
        )
        for one in locked
        if rows[one.flow.flow_id] and one.flow.flow_id in wakeups
    ]


def _lease(tx: Tx, changes: Changes, holder: str | None) -> list[ProbeOrder]:
    """Lease the probes that are needed; one leased elsewhere is repeated after it ends."""
    wanted = changes.wanted
    if not wanted:
        return []
    if holder is None:
        for want in wanted:
            want.book.put(want.ask.phase, want.ask.processor or "", look_at=want.book.now)
        return []
    tokens = probe_lease_many(tx, [want.gate_id for want in wanted], holder, PROBE_LEASE_US)
    orders = []
    for want in wanted:
        snapshot, phase, processor = want.book, want.ask.phase, want.ask.processor or ""
        token = tokens.get(want.gate_id)
        if token is None:
            # The running probe may miss what triggered this evaluation: probe again right after it.
            snapshot.put(phase, processor, look_again=True, look_at=snapshot.now + PROBE_LEASE_US)
            continue
        again = snapshot.now + PROBE_LEASE_US + _SLACK_US
        snapshot.put(phase, processor, look_at=again, look_again=False)
        orders.append(
            ProbeOrder(
                gate_id=want.gate_id,
                token=token,
                flow=snapshot.flow,
                planned=snapshot.planned,
                phase=phase,
                processor=processor,
                since=want.since,
            )
        )
    return orders


def _stop(tx: Tx, flow_id: int, actor: str) -> int:
    """Cancel pending runs of a flow that failed at its deadline, and ask running ones to stop."""
    live = flow_runs_live(tx, flow_id)
    for run_id, _, _ in live:
        run_cancel(tx, run_id, actor, "the flow failed at its deadline")
    return len(live)


def _run(
    tx: Tx,
    starts: Sequence[Start],
    processors: Mapping[tuple[int, str, str], tuple[int, str]],
    actor: str,
) -> list[int]:
    """Create the runs of new triggers; all of them, or the transaction fails."""
    if not starts:
        return []
    flows = [start.book.flow for start in starts]
    configs = sorted({flow.config_id for flow in flows if flow.config_id})
    found = config_defaults(tx, configs) if configs else {}
    limits = {config_id: (c.max_execution_us, c.sla_us) for config_id, c in found.items()}
    rows = run_rows(starts, processors, limits)
    ids = run_insert_many(tx, rows, actor)
    assert len(ids) == len(rows), f"{len(rows)} runs were triggered, {len(ids)} created"
    return ids
