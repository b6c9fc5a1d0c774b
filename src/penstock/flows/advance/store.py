"""Advancing flows: the only code path that starts or ends phases.

`advance` locks the flows first, in id order, then reads. So two concurrent last completions cannot
miss each other, and a duplicate finds the existing trigger. Gates that need probes are leased to
the caller, which probes outside any transaction and returns with evidence and token. Without a
holder, the gates are marked as due for another process. The scheduler, the client and the
orchestrator call `advance`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.audit.store.telemetry import emit_after_commit
from penstock.audit.telemetry import Event, GateDecided, log_event
from penstock.core.clock import MINUTE
from penstock.core.naming import ProcessorKey
from penstock.db.store import Tx
from penstock.entities.store import inputs_open
from penstock.flows.advance.change_set import CachedObservations, ChangeSet, Start, run_rows
from penstock.flows.advance.decide import evaluate_flow
from penstock.flows.advance.inputs import input_requests
from penstock.flows.advance.load import (
    drop_stale_evidence,
    load_reported,
    query_state,
    snapshots_of,
)
from penstock.flows.advance.snapshot import FlowSnapshot, ProbeOrder, Wakeup
from penstock.flows.advance.write import write
from penstock.flows.gates.store.gates import (
    breaker_lock_many,
    probe_lease_many,
)
from penstock.flows.items.item_list import InvalidItems
from penstock.flows.items.item_runs import item_runs
from penstock.flows.items.sources import items_of_result, upstream_completion
from penstock.flows.items.store.expansions import (
    NewExpansion,
    expansion_cancel,
    expansion_insert_many,
    item_sources,
)
from penstock.flows.items.store.outcomes import expansion_settled
from penstock.flows.plan import FanOut
from penstock.flows.rows import BACKFILL, CompletionRow
from penstock.flows.store.completions import completion_event_put_many
from penstock.flows.store.create import flow_rerun
from penstock.flows.store.flows import (
    config_defaults,
    flow_lock_later,
)
from penstock.flows.store.logs import topics_later
from penstock.flows.store.parameters import flow_parameters
from penstock.flows.store.plans import processors_later
from penstock.pipelines.declare.each import EachKind
from penstock.runs.rows import CompletionEvent, NewRun
from penstock.runs.store.finish import run_cancel_flow
from penstock.runs.store.runs import run_insert_many

log = logging.getLogger(__name__)

PROBE_LEASE_US: Final = 2 * MINUTE
"""Lease duration of a probe; longer than any probe may take, so that a slow warehouse is not probed
twice.
"""
_SLACK_US: Final = 10_000
FLOWS: Final = "flows"
"""Channel that wakes the orchestrator."""


@dataclass(slots=True, kw_only=True)
class AdvanceResult:
    """The result of `advance`; the caller must run `probes`."""

    flows: int = 0
    decisions: int = 0
    triggers: int = 0
    runs: int = 0
    ended: int = 0
    reruns: int = 0
    stopped: int = 0
    run_ids: list[int] = field(default_factory=list)
    pools: set[str] = field(default_factory=set)
    probes: list[ProbeOrder] = field(default_factory=list)
    locked: set[int] = field(default_factory=set)
    """The flows that were evaluated."""
    ended_backfills: list[int] = field(default_factory=list)
    """Flows of backfills that ended: the next partitions can start."""
    leaves_work: bool = False
    """Whether the orchestrator has more work that is due immediately."""


def advance(
    tx: Tx,
    wakeups: Mapping[int, Wakeup],
    *,
    actor: str,
    holder: str | None = None,
    known: CachedObservations | None = None,
    skips_locked: bool = False,
) -> AdvanceResult:
    """Evaluate flows and write the result; `holder` leases the probes that are needed.

    known: returns cached observations of a gate, which make a probe unnecessary. skips_locked:
    leave out flows that another transaction holds (see `flow_lock_later`); the caller then starts
    the next partitions of backfills, or wakes the backfiller.
    """
    # One round trip: each statement still runs, and takes its snapshot, after the previous one.
    lock = flow_lock_later(tx, wakeups, skips_locked=skips_locked)
    read = query_state(tx, wakeups)
    topics = topics_later(tx, wakeups)
    locked = lock()
    if not locked:
        return AdvanceResult()
    drop_stale_evidence(tx, wakeups)
    with_breakers = [one.flow.flow_id for one in locked if one.has_breakers]
    if with_breakers:
        breaker_lock_many(tx, with_breakers)
    snapshots = snapshots_of(tx, locked, wakeups, read(locked))
    changes = ChangeSet(actor, known, topics())
    if changes.topics:
        load_reported(tx, snapshots)
    for snapshot in snapshots:
        evaluate_flow(snapshot, wakeups[snapshot.flow.flow_id], changes)
    probes = _lease(tx, changes, holder)
    find = processors_later(tx, [start.snapshot.flow for start in changes.starts])
    starts = write(tx, changes, snapshots)
    if changes.logs:
        tx.after_commit(lambda: _log(changes.logs))
    if changes.events:
        emit_after_commit(tx, GateDecided, lambda: changes.events)
    processors = find()
    run_ids = _run(tx, starts, processors, actor)
    stopped = sum(_stop(tx, flow_id, actor) for flow_id in changes.overdue)
    reruns = sum(flow_rerun(tx, late, actor) for late in changes.late)
    ended_backfills = _ended_backfills(snapshots)
    if ended_backfills and not skips_locked:
        tx.wake([BACKFILL])
    return AdvanceResult(
        flows=len(snapshots),
        decisions=len(changes.decisions),
        triggers=len(starts),
        runs=len(run_ids),
        ended=changes.ended,
        reruns=reruns,
        stopped=stopped,
        run_ids=run_ids,
        pools={processors[key][1] for start in starts for key in start.processor_keys},
        probes=probes,
        locked={one.flow.flow_id for one in locked},
        ended_backfills=ended_backfills,
        leaves_work=bool(
            (changes.wanted and holder is None)
            or any(changes.ended_configs)
            or changes.closed
            or reruns
            or any(start.snapshot.planned.fan_outs for start in starts)
        ),
    )


def follow(tx: Tx, events: Sequence[CompletionEvent], actor: str) -> AdvanceResult:
    """Evaluate the flows of completions that are not locked; store the events of the others.

    For the transaction that ends runs; the orchestrator would do the same a moment later. Flow
    events remain for flows that another transaction holds, that failed, or that need more locks
    than their own row. Call it last, because it locks flows while earlier locks are still held. The
    caller wakes the pools of the new runs.
    """
    failed = {event.flow_id for event in events if event.is_failure}
    wakeups: dict[int, Wakeup] = {}
    for event in events:
        if event.flow_id not in failed:
            wakeup = wakeups.setdefault(event.flow_id, Wakeup())
            wakeup.phases.add(event.phase)
            wakeup.reported.add((event.phase, event.processor))
    done = AdvanceResult()
    if wakeups:
        done = advance(tx, wakeups, actor=actor, skips_locked=True)
    rest = [event for event in events if event.flow_id not in done.locked]
    completion_event_put_many(tx, rest)
    if rest or done.leaves_work:
        tx.wake([FLOWS])
    return done


def _ended_backfills(snapshots: Sequence[FlowSnapshot]) -> list[int]:
    """Return the flows of backfills that have ended."""
    flows = [one.flow for one in snapshots]
    return [one.flow_id for one in flows if one.trigger_source == BACKFILL and not one.is_open]


def _log(lines: Sequence[tuple[str, str, Event | None]]) -> None:
    """Log decisions about data once they are committed."""
    for level, text, event in lines:
        log_event(log, logging.getLevelNamesMapping()[level], text, event)


def _lease(tx: Tx, changes: ChangeSet, holder: str | None) -> list[ProbeOrder]:
    """Lease the probes that are needed; one leased elsewhere is repeated after it ends."""
    wanted = changes.wanted
    if not wanted:
        return []
    if holder is None:
        for want in wanted:
            want.snapshot.put(want.ask.phase, want.ask.processor or "", probe_at=want.snapshot.now)
        return []
    tokens = probe_lease_many(tx, [want.gate_id for want in wanted], holder, PROBE_LEASE_US)
    orders = []
    leased = [want.snapshot for want in wanted if want.gate_id in tokens]
    parameters = flow_parameters(tx, [(one.flow, one.planned) for one in leased])
    for want in wanted:
        snapshot, phase, processor = want.snapshot, want.ask.phase, want.ask.processor or ""
        token = tokens.get(want.gate_id)
        if token is None:
            # The running probe may miss the change that triggered this evaluation: probe again
            # right after it.
            snapshot.put(phase, processor, probe_again=True, probe_at=snapshot.now + PROBE_LEASE_US)
            continue
        again = snapshot.now + PROBE_LEASE_US + _SLACK_US
        snapshot.put(phase, processor, probe_at=again, probe_again=False)
        orders.append(
            ProbeOrder(
                gate_id=want.gate_id,
                token=token,
                flow=snapshot.flow,
                planned=snapshot.planned,
                phase=phase,
                processor=processor,
                since=want.since,
                parameters=parameters[snapshot.flow.flow_id],
                is_output=want.is_output,
            )
        )
    return orders


def _stop(tx: Tx, flow_id: int, actor: str) -> int:
    """Cancel pending runs of a flow that failed at its deadline, and ask running ones to stop."""
    expansion_cancel(tx, [flow_id])
    return run_cancel_flow(tx, flow_id, actor, "the flow failed at its deadline")


def _run(
    tx: Tx,
    starts: Sequence[Start],
    processors: Mapping[tuple[int, str, str], tuple[int, str]],
    actor: str,
) -> list[int]:
    """Create the runs of new triggers; all of them, or the transaction fails."""
    if not starts:
        return []
    flows = [start.snapshot.flow for start in starts]
    configs = sorted({flow.config_id for flow in flows if flow.config_id})
    found = config_defaults(tx, configs) if configs else {}
    limits = {config_id: (c.max_execution_us, c.sla_us) for config_id, c in found.items()}
    rows = run_rows(starts, processors, limits)
    rows += _item_rows(tx, starts, processors, limits, actor)
    inputs_open(tx, input_requests(starts, processors))
    ids = run_insert_many(tx, rows, actor) if rows else []
    assert len(ids) == len(rows), f"{len(rows)} runs were triggered, {len(ids)} created"
    return ids


def _item_rows(
    tx: Tx,
    starts: Sequence[Start],
    processors: Mapping[tuple[int, str, str], tuple[int, str]],
    limits: Mapping[int, tuple[int, int]],
    actor: str,
) -> list[NewRun]:
    """Record the expansions of new triggers. Return the runs of their first items."""
    fanning = [
        (start, name, fan_out)
        for start in starts
        for name in start.names
        if (fan_out := start.snapshot.planned.fan_outs.get((start.phase, name))) is not None
    ]
    if not fanning:
        return []
    listed = [_listed_by(start, fan_out) for start, _, fan_out in fanning]
    runs = [seen for seen in listed if seen is not None and seen.run_id is not None]
    results: dict[int, str | None] = {}
    if runs:
        times = [seen.at for seen in runs]
        ids = [seen.run_id for seen in runs if seen.run_id is not None]
        results = item_sources(tx, ids, min(times), max(times))
    expansions = []
    for (start, name, fan_out), seen in zip(fanning, listed, strict=True):
        flow = start.snapshot.flow
        number, _ = processors[flow.pipeline_key, start.phase, name]
        new = NewExpansion(
            flow.flow_id, ProcessorKey(number), flow.customer_key, start.phase, name,
            start.source, start.is_entry,
        )  # fmt: skip
        if fan_out.each.kind is EachKind.UPSTREAM:
            stored = None if seen is None or seen.run_id is None else results.get(seen.run_id)
            try:
                new = new._replace(items=items_of_result(fan_out, seen, stored))
            except InvalidItems as error:
                new = new._replace(error=str(error))
        expansions.append(new)
    flows = {start.snapshot.flow.flow_id: start.snapshot.flow for start, _, _ in fanning}
    made: list[NewRun] = []
    for new, items in expansion_insert_many(tx, expansions):
        flow = flows[new.flow_id]
        expansion_settled(
            tx, flow, (new.phase, new.processor), items=new.items, error=new.error, actor=actor
        )
        most, _ = limits.get(flow.config_id, (None, None))
        made += item_runs(
            flow, new.processor_key, items, new.source, max_execution_us=most,
            is_entry=new.is_entry,
        )  # fmt: skip
    return made


def _listed_by(start: Start, fan_out: FanOut) -> CompletionRow | None:
    """Return the completion whose result lists the items of a start."""
    if fan_out.each.kind is not EachKind.UPSTREAM:
        return None
    snapshot, plan = start.snapshot, start.snapshot.planned.plan
    earlier = [p.name for p in plan.phases if start.phase in plan.downstream(p.name)]
    return upstream_completion(fan_out, snapshot.completions, earlier)
