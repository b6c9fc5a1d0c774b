"""Opening flows: rows of a new generation, inherited completions, start phases.

Generations of one key are counted under a lock, so that two openers get two numbers. A generation
that starts in the middle inherits what its parent completed before that point. Earlier phases that
were never completed are skipped and do not block others. `flows.advance.store.advance` then starts
the flow.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.audit.rows import Entry
from penstock.audit.store.journal import journal_append_many
from penstock.core.clock import Micros
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.db.store import Tx
from penstock.flows.advance.late_data import LateData
from penstock.flows.cascade import (
    LATE_RERUNS_MAX,
    CompletionStatus,
    FlowState,
    flow_deadline,
    inherited_phases,
)
from penstock.flows.ladder.rungs import BY_HAND_SOURCES, next_time_of_day
from penstock.flows.phases import DONE, PhaseState
from penstock.flows.plan import FlowPlan
from penstock.flows.rows import (
    LATE_DATA,
    CompletionRow,
    FlowRow,
    NewCompletion,
    NewFlow,
    NewPhase,
    PhaseRow,
)
from penstock.flows.store.completions import (
    completion_put_many,
    completions_of,
    flow_event_put_many,
)
from penstock.flows.store.flows import (
    flow_get,
    flow_insert_many,
    generation_get,
    generation_next_many,
    generation_take_many,
    phase_insert_many,
    phases_of,
)
from penstock.flows.store.plans import planned
from penstock.pipelines.plan import PhasePlan
from penstock.runs.rows import MessageOrigin
from penstock.runs.store.runs import ordering_key_lock_many


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowOpening:
    """A flow to be opened.

    starts: the phases to start with; empty: the entry phases. generation: None means the next one.
    """

    customer_key: CustomerKey
    pipeline_key: PipelineKey
    digest: str
    mode: str
    partition: str
    source: str
    correlation_id: str
    opened_by: str
    config_id: int = 0
    occurrence_time: int | None = None
    start_at: int | None = None
    start_gap: int = 0
    priority: int = 5
    is_ordered: bool = False
    parameters: str | None = None
    start_phases: tuple[str, ...] = ()
    parent: FlowRow | None = None
    no_downstream: bool = False
    generation: int | None = None
    reruns: int = 0
    origin: MessageOrigin | None = None
    by_hand: bool = False
    only: frozenset[tuple[str, str]] = frozenset()
    """Phase and name of the processors that run in their phases; the others in these phases keep
    their completions from the parent. If empty, all run.
    """

    @property
    def key(self) -> tuple[int, int, int, str, str]:
        """The columns that all generations of the flow share."""
        return self.customer_key, self.pipeline_key, self.config_id, self.partition, self.mode


def opening_lock(
    tx: Tx, customer_key: CustomerKey, pipeline_key: PipelineKey, partition: str
) -> None:
    """Serialize callers that look up a flow of a partition and open one if there is none."""
    opening_lock_many(tx, customer_key, pipeline_key, [partition])


def opening_lock_many(
    tx: Tx, customer_key: CustomerKey, pipeline_key: PipelineKey, partitions: Sequence[str]
) -> None:
    """Take the locks of `opening_lock` for several partitions."""
    ordering_key_lock_many(tx, [f"flow:{customer_key}:{pipeline_key}:{one}" for one in partitions])


def flow_open_many(
    tx: Tx, openings: Sequence[FlowOpening], now: Micros | None = None
) -> list[int | None]:
    """Open flows. Return their ids in order, None where that generation already existed.

    now: the transaction's time, if the caller has read it.
    """
    if not openings:
        return []
    counts = Counter(opening.key for opening in openings)
    if max(counts.values()) > 1:
        return [flow_open_many(tx, [opening], now)[0] for opening in openings]
    now = tx.now() if now is None else now
    by_reruns: dict[int, list[FlowOpening]] = {}
    for opening in openings:
        if opening.generation is None:
            by_reruns.setdefault(opening.reruns, []).append(opening)
    numbers: dict[tuple[int, int, int, str, str], int] = {}
    chosen = {o.key: o.generation for o in openings if o.generation is not None}
    taken = generation_take_many(tx, chosen) if chosen else set()
    for reruns, group in sorted(by_reruns.items()):
        numbers |= generation_next_many(tx, [o.key for o in group], reruns=reruns)
    plans = {o.key: planned(tx, o.pipeline_key, o.digest, o.mode) for o in openings}
    rows = [_row(o, plans[o.key], numbers.get(o.key, o.generation or 1), now) for o in openings]
    fresh = [row for row in rows if row.key not in chosen or row.key in taken]
    made = flow_insert_many(tx, fresh) if fresh else {}
    ids = [made.get((*row.key, row.generation)) for row in rows]
    new = [(o, row, i) for o, row, i in zip(openings, rows, ids, strict=True) if i is not None]
    parents = [o.parent.flow_id for o, _, _ in new if o.parent is not None]
    before = phases_of(tx, parents) if parents else {}
    phases: list[NewPhase] = []
    for opening, _, flow_id in new:
        known = before.get(opening.parent.flow_id, []) if opening.parent is not None else []
        phases += _phases(opening, plans[opening.key], flow_id, known, now)
    phase_insert_many(tx, phases)
    if parents:
        _inherit(tx, [(o, i) for o, _, i in new if o.parent is not None], phases)
    journal_append_many(tx, [_entry(o, row, flow_id) for o, row, flow_id in new])
    return ids


def flow_rerun(tx: Tx, late: LateData, actor: str) -> int:
    """Rerun what depends on late data. Return the number of flows opened.

    If the flow is not the newest generation, the newest one receives the completions instead. At
    most three reruns per partition.
    """
    flow = late.snapshot.flow
    newest, reruns = generation_get(tx, flow.key)
    if newest > flow.generation and _forward_to_newest(tx, late, newest):
        return 0
    if reruns >= LATE_RERUNS_MAX:
        note = f"late data of {', '.join(late.sources)} ignored: {reruns} reruns already"
        entry = Entry("flow", flow.flow_id, flow.customer_key, "late_ignored", actor, why=note)
        journal_append_many(tx, [entry])
        return 0
    opening = FlowOpening(
        customer_key=flow.customer_key,
        pipeline_key=flow.pipeline_key,
        digest=flow.digest,
        mode=flow.mode,
        partition=flow.partition,
        source=LATE_DATA,
        correlation_id=flow.correlation_id,
        opened_by=actor,
        config_id=flow.config_id,
        occurrence_time=flow.occurrence_time + 1,
        priority=flow.priority,
        parameters=flow.parameters,
        start_phases=late.starts,
        parent=flow,
        no_downstream=flow.no_downstream,
        reruns=1,
    )
    (flow_id,) = flow_open_many(tx, [opening])
    if flow_id is None:
        return 0
    flow_event_put_many(tx, [(flow_id, flow.customer_key, None, False)])
    return 1


def _forward_to_newest(tx: Tx, late: LateData, generation: int) -> bool:
    """Copy late completions to the newest generation. Return False if it is gone or cancelled.

    Phases that the newest generation runs itself are left out. All inherited ones are reported,
    even if it already has them: it inherited work that started without the late data and must redo
    it.
    """
    flow = late.snapshot.flow
    customer, pipeline, config_id, partition, mode = flow.key
    params = {
        "customer": customer,
        "pipeline": pipeline,
        "config_id": config_id,
        "partition": partition,
        "mode": mode,
        "generation": generation,
    }
    rows = tx.rows("flow_of_generation", params)
    newest = flow_get(tx, rows[0][0]) if rows else None
    if newest is None or newest.state == FlowState.CANCELLED:
        return False
    plan = planned(tx, newest.pipeline_key, newest.digest, newest.mode).plan
    entries = [phase.name for phase in plan.phases if not phase.after]
    begins = newest.start_phase.split(",") if newest.start_phase else entries
    kept = [source for source in late.sources if source in inherited_phases(plan, begins)]
    seen = [
        _copy(newest.flow_id, CustomerKey(customer), s) for s in late.snapshot.completions_of(kept)
    ]
    completion_put_many(tx, seen, emit_events=False)
    flow_event_put_many(tx, [(newest.flow_id, customer, source, False) for source in kept])
    return True


def _row(opening: FlowOpening, plan: FlowPlan, generation: int, now: int) -> NewFlow:
    return NewFlow(
        customer_key=opening.customer_key,
        pipeline_key=opening.pipeline_key,
        config_id=opening.config_id,
        partition=opening.partition,
        mode=opening.mode,
        generation=generation,
        correlation_id=opening.correlation_id,
        trigger_source=opening.source,
        digest=opening.digest,
        start_phase=",".join(opening.start_phases) or None,
        parent_flow_id=None if opening.parent is None else opening.parent.flow_id,
        deadline_at=flow_deadline(plan.mode, now),
        no_downstream=opening.no_downstream,
        occurrence_time=now if opening.occurrence_time is None else opening.occurrence_time,
        start_at=opening.start_at,
        start_gap=opening.start_gap,
        priority=opening.priority,
        is_ordered=opening.is_ordered,
        parameters=opening.parameters,
        opened_by=opening.opened_by,
        message_id=None if opening.origin is None else opening.origin.message_id,
        subscription=None if opening.origin is None else opening.origin.subscription,
        by_hand=opening.by_hand,
    )


def _phases(
    opening: FlowOpening, plan: FlowPlan, flow_id: int, parent: Sequence[PhaseRow], now: int
) -> list[NewPhase]:
    """Return the phase rows of a new flow: skipped, inherited or pending."""
    customer = opening.customer_key
    begun = {row.phase: row for row in parent if not row.processor and row.started_at is not None}
    done = {name: row for name, row in begun.items() if row.state in DONE}
    begins = opening.start_phases or tuple(p.name for p in plan.plan.phases if not p.after)
    behind = {later for name in begins for later in plan.plan.downstream(name)}
    restarted = set(begins) if opening.no_downstream else {*begins, *behind}
    rows = [
        NewPhase(flow_id, customer, name, state=PhaseState.SKIPPED.value)
        for name in plan.plan.skipped
    ]
    for phase in plan.plan.phases:
        old = done.get(phase.name)
        if phase.name in restarted:
            rows.append(
                NewPhase(
                    flow_id,
                    customer,
                    phase.name,
                    fallback_at=_fallback_at(opening, plan, phase, now),
                )
            )
        elif old is not None and phase.name not in behind:
            rows.append(
                NewPhase(
                    flow_id, customer, phase.name, "", old.state, old.started_at, old.ended_at,
                    None, old.is_degraded, old.gate,
                )
            )  # fmt: skip
        else:
            # Started but not ended by the parent. Data that the parent started without may still
            # arrive.
            was = begun.get(phase.name) if phase.name not in behind else None
            rows.append(
                NewPhase(
                    flow_id, customer, phase.name, state=PhaseState.SKIPPED.value,
                    is_degraded=was is not None and was.is_degraded,
                    gate=None if was is None else was.gate,
                )
            )  # fmt: skip
        if phase.name in restarted and phase.terms.on == "each":
            rows += [NewPhase(flow_id, customer, phase.name, name) for name in phase.expected]
    return rows


def _fallback_at(opening: FlowOpening, plan: FlowPlan, phase: PhasePlan, now: int) -> int | None:
    """Return the fallback time of a phase; None in flows that were opened manually."""
    if phase.fallback is None or opening.source in BY_HAND_SOURCES:
        return None
    return next_time_of_day(phase.fallback, now, plan.timezone)


def _inherit(tx: Tx, opened: Sequence[tuple[FlowOpening, int]], rows: Sequence[NewPhase]) -> None:
    """Copy the completions of phases that a new generation inherits."""
    parents = {opening.parent.flow_id for opening, _ in opened if opening.parent is not None}
    seen = completions_of(tx, sorted(parents))
    kept = {(row.flow_id, row.phase) for row in rows if PhaseState(row.state) in DONE}
    copies = [
        _copy(flow_id, opening.customer_key, s)
        for opening, flow_id in opened
        if opening.parent is not None
        for s in seen[opening.parent.flow_id]
        if (flow_id, s.phase) in kept or _is_kept(opening, s)
    ]
    completion_put_many(tx, copies, emit_events=False)


def _is_kept(opening: FlowOpening, seen: CompletionRow) -> bool:
    """Return whether a processor keeps its completion because only others of its phase run."""
    if seen.status == CompletionStatus.FAILED or (seen.phase, seen.processor) in opening.only:
        return False
    return any(phase == seen.phase for phase, _ in opening.only)


def _copy(flow_id: int, customer_key: CustomerKey, seen: CompletionRow) -> NewCompletion:
    return NewCompletion(
        flow_id,
        seen.processor_key,
        customer_key,
        seen.status,
        seen.at,
        seen.run_id,
        seen.execution_id,
        seen.records,
        seen.quality,
        seen.entities,
        seen.total_expected,
        seen.completeness_pct,
        seen.reported_in or seen.flow_id,
    )


def _entry(opening: FlowOpening, row: NewFlow, flow_id: int) -> Entry:
    detail = {
        "partition": row.partition,
        "mode": row.mode,
        "generation": row.generation,
        "correlation_id": row.correlation_id,
        "trigger_source": row.trigger_source,
        "starts": list(opening.start_phases),
    }
    text = json.dumps(detail, sort_keys=True)
    return Entry("flow", flow_id, row.customer_key, "opened", opening.opened_by, None, "OPEN",
                 None, row.trigger_source, text)  # fmt: skip
