"""Load the snapshots of locked flows: phases, completions, overrides and breakers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.core.naming import PipelineKey
from penstock.db.store import Tx
from penstock.entities.store import reported_of
from penstock.flows.advance.snapshot import FlowSnapshot, Wakeup
from penstock.flows.gates.breaker import Breaker
from penstock.flows.gates.store.gates import breakers_of, probe_release_many
from penstock.flows.gates.store.overrides import overrides_of
from penstock.flows.items.store.expansions import expansions_fold_later, expansions_of
from penstock.flows.rows import CompletionRow, Locked, PhaseRow
from penstock.flows.store.completions import completions_later, completions_named_later
from penstock.flows.store.flows import LongFlowRows, phases_later, phases_named_later
from penstock.flows.store.plans import long_flow_plan, long_flow_remember, planned

LONG_AT_ONCE: Final = 20
"""Maximum number of long flows that one transaction loads partially, with two queries each."""


class LoadedRows(NamedTuple):
    """Phases and completions by flow; `only` has the phases that may change in a partially loaded
    flow.
    """

    phases: dict[int, list[PhaseRow]]
    completions: dict[int, list[CompletionRow]]
    only: dict[int, frozenset[str]]


class _Part(NamedTuple):
    """Which phases of a long flow to load: those that may change, and those before them.

    The flow cannot end while its last phase is not among them and has not ended.
    """

    pipeline_key: PipelineKey
    reported: frozenset[str]
    following: frozenset[str]
    before: frozenset[str]
    last: str

    @property
    def neighbours(self) -> frozenset[str]:
        """The phases that the evaluation sees."""
        return self.reported | self.following | self.before


def snapshot_of(tx: Tx, unlocked: Locked) -> FlowSnapshot:
    """Load the snapshot of one flow, to read it; the flow need not be locked."""
    flow_id = unlocked.flow.flow_id
    read = _query_all(tx, [flow_id])
    return snapshots_of(tx, [unlocked], {flow_id: Wakeup()}, read(), is_read=True)[0]


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


def query_state(tx: Tx, wakeups: Mapping[int, Wakeup]) -> Callable[[Sequence[Locked]], LoadedRows]:
    """Send the queries for the phases and completions of flows.

    For a long flow with nothing but reports, only the phases that reported and those next to them
    are loaded. If that may not be enough (the flow may end, or has degraded phases), the returned
    function loads all of it.
    """
    long = _long_flows(wakeups)
    parts = {
        flow_id: (
            phases_named_later(tx, flow_id, sorted(part.neighbours | {part.last})),
            completions_named_later(tx, flow_id, part.pipeline_key, sorted(part.neighbours)),
        )
        for flow_id, part in long.items()
    }
    read_others = _query_all(tx, sorted(set(wakeups) - set(long)))

    def read(locked: Sequence[Locked]) -> LoadedRows:
        found = read_others()
        whole = []
        flows = {one.flow.flow_id: one for one in locked}
        for flow_id, (read_phases, read_completions) in parts.items():
            rows, seen, one = read_phases(), read_completions(), flows.get(flow_id)
            if one is None or not _is_enough(one, long[flow_id], rows, seen):
                whole.append(flow_id)
                continue
            found.phases[flow_id], found.completions[flow_id] = rows.phases, seen
            found.only[flow_id] = long[flow_id].reported | long[flow_id].following
        if whole:
            more = _query_all(tx, whole)()
            found.phases.update(more.phases)
            found.completions.update(more.completions)
        return found

    return read


def _is_enough(
    locked: Locked, part: _Part, rows: LongFlowRows, seen: Sequence[CompletionRow]
) -> bool:
    """Whether a part of a flow suffices: the flow cannot end, and there are no other effects.

    Phases that started degraded may be rerun, and a phase that was reported before it started ends
    immediately, so that phases after it are evaluated as well.
    """
    flow = locked.flow
    is_late = flow.deadline_at is None or locked.now >= flow.deadline_at
    may_end = part.last in part.neighbours or not any(
        row.phase == part.last and not row.is_over for row in rows.phases
    )
    return not (
        is_late
        or not flow.is_open
        or locked.has_breakers
        or rows.is_degraded
        or may_end
        or any(one.phase in part.following for one in seen)
    )


def _long_flows(wakeups: Mapping[int, Wakeup]) -> dict[int, _Part]:
    """Return what to load of long flows whose events are all reports."""
    found: dict[int, _Part] = {}
    for flow_id, wakeup in wakeups.items():
        known = long_flow_plan(flow_id)
        is_report = wakeup.phases and not (
            wakeup.all_gates or wakeup.due or wakeup.evidence or wakeup.failures
        )
        if known is None or not is_report or len(found) >= LONG_AT_ONCE:
            continue
        pipeline_key, of_flow = known
        plan = of_flow.plan
        if not all(plan.has_phase(phase) for phase in wakeup.phases):
            continue
        following = {name for phase in wakeup.phases for name in plan.next_phases(phase)}
        before = {name for phase in following for name in plan.phase(phase).after}
        found[flow_id] = _Part(
            pipeline_key,
            frozenset(wakeup.phases),
            frozenset(following),
            frozenset(before),
            plan.phases[-1].name,
        )
    return found


def _query_all(tx: Tx, ids: Sequence[int]) -> Callable[[], LoadedRows]:
    """Send the queries for all phases and completions of flows."""
    if not ids:
        return lambda: LoadedRows({}, {}, {})
    phases, seen = phases_later(tx, ids), completions_later(tx, ids)
    return lambda: LoadedRows(phases(), seen(), {})


def snapshots_of(
    tx: Tx,
    locked: Sequence[Locked],
    wakeups: Mapping[int, Wakeup],
    known: LoadedRows,
    *,
    is_read: bool = False,
) -> list[FlowSnapshot]:
    """Return the snapshots of locked flows, in the order of the locks.

    `is_read`: the flows are not locked, and nothing is written.
    """
    now = max(one.now for one in locked)
    rows, seen, _ = known
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
    for one in locked:
        long_flow_remember(one.flow, plans[one.flow.flow_id])
    fanning_out = [flow_id for flow_id, plan in plans.items() if plan.fan_outs]
    expansions = {}
    if fanning_out and is_read:
        expansions = expansions_of(tx, fanning_out)
    elif fanning_out:
        expansions = expansions_fold_later(tx, fanning_out)()
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
            only=known.only.get(one.flow.flow_id),
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
