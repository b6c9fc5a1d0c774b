"""Loading of facts about a flow or a run in one transaction, as records of `flows.explain.facts`.

Read-only. A client scoped to one customer sees nothing about others: not the length of the shared
queue, its workers, or who paused the system.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace

from penstock.access.store.names import NameResolver, PipelineInfo
from penstock.core.clock import Micros
from penstock.core.errors import InvalidInput
from penstock.core.ids import encode
from penstock.db.store import Tx
from penstock.entities.store import inputs_of_flow
from penstock.flows.cascade import FlowState
from penstock.flows.explain.facts import (
    CLAIM_GRACE_US,
    RUNS_AHEAD_MAX,
    BreakerFact,
    DecisionFact,
    FlowFact,
    GateFact,
    HeartbeatFact,
    ItemsFact,
    LimitFact,
    OpenFlowFact,
    OverrideFact,
    PauseFact,
    PhaseFact,
    ProcessorFact,
    ProducerFact,
    RunFact,
    TriggerFact,
)
from penstock.flows.explain.store.items import item_facts
from penstock.flows.explain.store.limits import limit_facts
from penstock.flows.explain.store.reads import (
    decisions_latest,
    executions_of_flow,
    heartbeats_of,
    interventions_of_flow,
    run_blocking,
    runs_ahead,
    runs_of_flow,
)
from penstock.flows.explain.store.rows import (
    decision_fact,
    ended_fact,
    error_message,
    intervention_fact,
    run_gate_fact,
)
from penstock.flows.explain.store.schedulers import SchedulerLoader
from penstock.flows.gates.breaker import BreakerState
from penstock.flows.gates.rows import InterventionRow
from penstock.flows.gates.store.gates import breakers_of, triggers_of
from penstock.flows.gates.store.overrides import overrides_of
from penstock.flows.gates.store.run_gates import run_gate_get
from penstock.flows.phases import PhaseState
from penstock.flows.plan import FlowPlan
from penstock.flows.rows import CompletionRow, FlowFilter, FlowRow, PhaseRow
from penstock.flows.store.completions import completions_of
from penstock.flows.store.flows import flow_list, flow_waits_for, generation_newest, phases_of
from penstock.flows.store.plans import planned
from penstock.pipelines.declare.endpoint import shown_url
from penstock.runs.rows import RunRow, public_ordering_key
from penstock.runs.states import Admission
from penstock.runs.store.admission import PauseRow, pause_list
from penstock.runs.store.leases import SessionRow, session_list
from penstock.runs.store.sub_flows import sub_flow_waiting

OPEN_FLOWS_MAX = 5
"""Maximum number of older open flows of a partition that are named."""
WAITS = {
    Admission.READY: "ready",
    Admission.LATER: "later",
    Admission.PAUSED: "paused",
    Admission.BLOCKED: "blocked",
    Admission.LIMITED: "limited",
    Admission.GATED: "gated",
    Admission.SUSPENDED: "suspended",
}


class FactLoader:
    """Loader of facts within one transaction."""

    def __init__(self, tx: Tx, names: NameResolver) -> None:
        self._tx = tx
        self._names = names
        self._pauses: list[PauseRow] | None = None
        self._workers: list[SessionRow] | None = None
        self.schedulers = SchedulerLoader(tx, names)

    def flow(self, flow: FlowRow) -> FlowFact:
        """Load a flow with its phases, gates, runs, breakers, pauses and interventions."""
        tx, flow_id = self._tx, flow.flow_id
        plan = planned(tx, flow.pipeline_key, flow.digest, flow.mode)
        newest = max(generation_newest(tx, flow.key), flow.generation)
        behind = flow_waits_for(tx, flow_id) if flow.is_open else None
        return FlowFact(
            flow_id=encode("flow", flow_id),
            customer=flow.customer_id,
            pipeline=flow.pipeline,
            partition=flow.partition,
            mode=flow.mode,
            config=encode("cfg", flow.config_id) if flow.config_id else None,
            generation=flow.generation,
            state=flow.state,
            correlation_id=flow.correlation_id,
            trigger_source=flow.trigger_source,
            opened_by=flow.opened_by,
            opened_at=flow.created_at,
            timezone=str(plan.definition.get("timezone") or "UTC"),
            ended_at=flow.ended_at,
            deadline_at=flow.deadline_at,
            start_phase=flow.start_phase,
            is_observe_mode=plan.observes,
            missing=tuple(json.loads(flow.missing)),
            phases=self._phases(flow, plan),
            overrides=tuple(
                OverrideFact(
                    override_id=given.id,
                    approved_by=given.approved_by,
                    reason=given.reason,
                    expires_at=given.expires_at,
                    phase=given.phase,
                    dependency=given.dependency,
                )
                for given in overrides_of(tx, [flow_id]).get(flow_id, ())
            ),
            newer_generation=newest if newest > flow.generation else None,
            preceding_flow_id=None if behind is None else encode("flow", behind),
            still_open=self._still_open(flow),
            producers=self._producers(plan),
        )

    def run(self, run: RunRow) -> RunFact:
        """Return the facts about a run, live or ended."""
        return self.runs([run])[0]

    def runs(self, runs: Sequence[RunRow]) -> list[RunFact]:
        """Return the facts about runs, in their order."""
        is_bound = self._names.customer_id is not None
        heartbeats = heartbeats_of(self._tx, runs, is_bound=is_bound)
        return [self._run(run, heartbeats.get(run.run_id)) for run in runs]

    def _run(self, run: RunRow, heartbeat: HeartbeatFact | None) -> RunFact:
        info = self._info(run.pipeline)
        waits = None if run.admission is None else WAITS.get(Admission(run.admission))
        rows = [] if info is None else info.processors
        row = next((r for r in rows if (r.phase, r.name) == (run.phase, run.processor)), None)
        pool = "default" if row is None else row.pool
        endpoint = None if info is None or row is None else info.endpoint_url(row)
        is_bound = self._names.customer_id is not None
        is_ready = waits == "ready" and run.finished_at is None
        front = run_blocking(self._tx, run.run_id) if waits == "blocked" else None
        waited = sub_flow_waiting(self._tx, run.run_id) if waits == "suspended" else None
        gate = run_gate_get(self._tx, run.run_id) if waits == "gated" else None
        is_hidden = is_bound or not is_ready or endpoint is not None
        workers = None if is_hidden else self._alive(pool)
        is_external = info is not None and row is not None and info.is_external(row)
        timeout = None
        if run.started_at is not None and run.max_execution_us is not None:
            timeout = run.started_at + run.max_execution_us
        return RunFact(
            run_id=encode("run", run.run_id),
            pipeline=run.pipeline,
            phase=run.phase,
            processor=run.processor,
            state=run.state,
            attempt=run.attempt,
            since=run.state_at,
            due_at=run.scheduled_time,
            pending_reason=waits,
            started_at=run.started_at,
            ended_at=run.finished_at,
            timeout_at=timeout,
            expires_at=run.expires_at,
            error_type=run.error_type,
            error=error_message(run.error_details),
            claimed_by=run.claimed_by,
            heartbeat=heartbeat,
            pool=pool,
            ordering_key=public_ordering_key(run.ordering_key),
            preceding_run_id=None if front is None else encode("run", front),
            sub_flow_id=None if waited is None else encode("flow", waited),
            runs_ahead=None
            if is_bound or not is_ready
            else runs_ahead(self._tx, run.run_id, RUNS_AHEAD_MAX),
            workers=None if workers is None else len(workers),
            is_unclaimed=not is_external and _is_unclaimed(run, workers or (), self._tx.now()),
            pauses=self.pauses_of(run.customer_id, run.pipeline, run.config_id)
            if waits == "paused"
            else (),
            limits=self._limits(run) if waits == "limited" else (),
            gate=None if gate is None else run_gate_fact(gate),
            lacks_scheduler=waits == "later" and self.schedulers.is_missing_for(run.scheduled_time),
            is_external=is_external,
            endpoint=None if endpoint is None else shown_url(endpoint),
        )

    def executions(self, flow: FlowRow) -> list[RunFact]:
        """Return the ended executions of a flow, oldest first."""
        return [ended_fact(row) for row in executions_of_flow(self._tx, flow)]

    def _limits(self, run: RunRow) -> tuple[LimitFact, ...]:
        customer = self._names.customer_key(self._tx, None)
        return limit_facts(self._tx, run.run_id, customer)

    def _producers(self, plan: FlowPlan) -> tuple[ProducerFact, ...]:
        """Return the producers of the tables that this plan's gates need, in any pipeline."""
        needed = {
            need.dependency.table for phase in plan.plan.phases for need in plan.needs(phase.name)
        }
        if not needed:
            return ()
        return tuple(
            ProducerFact(
                table=table, pipeline=info.name, phase=phase["name"], processor=processor["name"]
            )
            for info in self._names.pipelines_in(self._tx)
            for phase in info.definition["phases"]
            for processor in phase["processors"]
            for table in processor.get("produces", ())
            if table in needed or info.name == plan.definition["name"]
        )

    # -- helpers -------------------------------------------------------------------------------

    def _still_open(self, flow: FlowRow) -> tuple[OpenFlowFact, ...]:
        wanted = FlowFilter(
            customer=flow.customer_key,
            pipeline=flow.pipeline_key,
            partition=flow.partition,
            state=FlowState.OPEN.value,
            before=flow.flow_id,
            limit=OPEN_FLOWS_MAX,
        )
        older = flow_list(self._tx, wanted)
        rows = phases_of(self._tx, [one.flow_id for one in older]) if older else {}
        found = []
        for one in older:
            left = [row for row in rows[one.flow_id] if not row.processor and not row.is_ended]
            begun = [row for row in left if row.state != PhaseState.PENDING] or left
            found.append(
                OpenFlowFact(
                    flow_id=encode("flow", one.flow_id),
                    mode=one.mode,
                    generation=one.generation,
                    opened_at=one.created_at,
                    phase=begun[0].phase if begun else None,
                    state=begun[0].state if begun else None,
                )
            )
        return tuple(found)

    def _phases(self, flow: FlowRow, plan: FlowPlan) -> tuple[PhaseFact, ...]:
        tx, flow_id = self._tx, flow.flow_id
        rows = phases_of(tx, [flow_id])[flow_id]
        live = _one_of_each(runs_of_flow(tx, flow_id))
        parts = _Parts(
            seen={(s.phase, s.processor): s for s in completions_of(tx, [flow_id])[flow_id]},
            live=dict(zip(live, self.runs(list(live.values())), strict=True)),
            items=item_facts(tx, flow_id, plan),
            ended=[ended_fact(row) for row in executions_of_flow(tx, flow)],
            decided={key: decision_fact(row) for key, row in decisions_latest(tx, flow_id).items()},
            triggers={
                (t.phase, t.processor): TriggerFact(
                    at=t.at,
                    verdict=t.verdict,
                    source=t.source,
                    is_observed=t.is_observed,
                    runs=t.runs,
                )
                for t in triggers_of(tx, [flow_id])
            },
            filed={(i.phase, i.processor): i for i in interventions_of_flow(tx, flow_id)},
            breakers={
                phase: BreakerFact(
                    failures=given.failures,
                    next_probe_at=given.next_probe_at(),
                    is_open=given.state(tx.now()) is BreakerState.OPEN,
                )
                for (_, phase), given in breakers_of(tx, [flow_id]).items()
            },
        )
        whole = {row.phase: row for row in rows if not row.processor}
        names = [p["name"] for p in plan.definition["phases"] if p["name"] in whole]
        found = [_phase(flow, plan, whole[name], rows, parts) for name in names]
        return _with_inputs(tx, flow_id, found) if plan.incremental else tuple(found)

    def _info(self, pipeline: str) -> PipelineInfo | None:
        try:
            return self._names.pipeline(pipeline, "pipeline", self._tx)
        except InvalidInput:
            return None

    def _alive(self, pool: str) -> list[SessionRow]:
        if self._workers is None:
            self._workers = [one for one in session_list(self._tx) if one.kind == "worker"]
        return [one for one in self._workers if (one.pool or "") == pool]

    def pauses_of(
        self, customer_id: str, pipeline: str, config_id: int | None
    ) -> tuple[PauseFact, ...]:
        """Return the pauses that cover a run, or a config."""
        info = self._info(pipeline)
        if self._pauses is None:
            bound = self._names.customer_key(self._tx, None)
            self._pauses = pause_list(self._tx, bound)
        found = []
        for pause in self._pauses:
            subject = pause.customer_id if pause.scope == "customer" else pause.pipeline
            if pause.scope == "config":
                subject = encode("cfg", pause.subject)
            covers = {
                "all": True,
                "customer": pause.customer_id == customer_id,
                "pipeline": info is not None and pause.subject == info.pipeline_key,
                "config": pause.subject == config_id,
            }[pause.scope]
            if covers:
                found.append(
                    PauseFact(
                        scope=pause.scope,
                        subject=None if pause.scope == "all" else subject,
                        since=pause.paused_at,
                        by=pause.paused_by,
                        reason=pause.reason,
                    )
                )
        return tuple(found)


class _Parts:
    """Rows of a flow, by phase and processor."""

    def __init__(
        self,
        *,
        seen: dict[tuple[str, str], CompletionRow],
        live: dict[tuple[str, str], RunFact],
        ended: list[RunFact],
        decided: dict[tuple[str, str], DecisionFact],
        triggers: dict[tuple[str, str], TriggerFact],
        filed: dict[tuple[str, str], InterventionRow],
        breakers: dict[str, BreakerFact],
        items: dict[tuple[str, str], ItemsFact],
    ) -> None:
        self.seen = seen
        self.live = live
        self.ended = ended
        self.decided = decided
        self.triggers = triggers
        self.filed = filed
        self.breakers = breakers
        self.items = items

    def gate(self, row: PhaseRow) -> GateFact:
        """Return the facts about the gate of a phase or processor."""
        gate_key = (row.phase, row.processor)
        return GateFact(
            processor=row.processor,
            state=row.state,
            since=row.since_at,
            probe_at=row.probe_at,
            waiting_since=row.waiting_since,
            tries=row.tries,
            decision=self.decided.get(gate_key),
            trigger=self.triggers.get(gate_key),
        )

    def processor(self, phase: str, name: str, *, is_external: bool) -> ProcessorFact:
        """Return the facts about an expected processor."""
        gate_key = (phase, name)
        seen = self.seen.get(gate_key)
        ended = [r for r in self.ended if (r.phase, r.processor) == gate_key]
        items = self.items.get(gate_key)
        tried = [r for r in ended if r.state == "FAILED" and items is None]
        run_id = None if seen is None or seen.run_id is None else encode("run", seen.run_id)
        return ProcessorFact(
            name=name,
            status=None if seen is None else seen.status,
            at=None if seen is None else seen.at,
            run_id=run_id,
            records=None if seen is None else seen.records,
            is_external=is_external,
            live=self.live.get(gate_key),
            failures=tuple(tried),
            items=items,
        )


def _is_unclaimed(run: RunRow, workers: Iterable[SessionRow], now: Micros) -> bool:
    """Return whether a worker with capacity has left a ready run unclaimed for too long."""
    if now - max(run.state_at, run.scheduled_time) <= CLAIM_GRACE_US:
        return False
    return any(
        not one.is_draining
        and one.held < one.concurrency
        and not HeartbeatFact(at=one.heartbeat_at, until_at=one.until_at).is_overdue(now)
        for one in workers
    )


def _one_of_each(runs: Iterable[RunRow]) -> dict[tuple[str, str], RunRow]:
    """Return one live run per processor: the newest, or the first of its items."""
    found: dict[tuple[str, str], RunRow] = {}
    for run in runs:
        if run.item_key:
            found.setdefault((run.phase, run.processor), run)
        else:
            found[run.phase, run.processor] = run
    return found


def _with_inputs(tx: Tx, flow_id: int, phases: Sequence[PhaseFact]) -> tuple[PhaseFact, ...]:
    """Add the inputs of incremental processors."""
    texts = {key: str(changed) for key, changed in inputs_of_flow(tx, flow_id).items()}
    return tuple(
        replace(one, received=tuple((n, t) for (p, n), t in texts.items() if p == one.name))
        for one in phases
    )


def _phase(
    flow: FlowRow, plan: FlowPlan, row: PhaseRow, rows: list[PhaseRow], parts: _Parts
) -> PhaseFact:
    name = row.phase
    declared = next((p for p in plan.plan.phases if p.name == name), None)
    expected = () if declared is None else declared.expected
    is_each = declared is not None and declared.terms.on == "each"
    filed = [item for (phase, _), item in sorted(parts.filed.items()) if phase == name]
    begun = row.started_at is not None and row.started_at < flow.created_at
    return PhaseFact(
        name=name,
        state=row.state,
        since=row.since_at,
        after=() if declared is None else declared.after,
        expected=expected,
        is_each=is_each,
        started_at=row.started_at,
        ended_at=row.ended_at,
        stragglers_us=None if declared is None else declared.terms.stragglers_us,
        is_degraded=row.is_degraded,
        is_inherited=begun and flow.parent_flow_id is not None,
        missing=tuple(row.gate_context.get("missing", ())),
        gate=parts.gate(row),
        gates=tuple(parts.gate(one) for one in rows if one.phase == name and one.processor),
        processors=tuple(
            parts.processor(name, one, is_external=f"{name}/{one}" in plan.external)
            for one in expected
        ),
        breaker=parts.breakers.get(name),
        intervention=intervention_fact(filed[0]) if filed else None,
    )
