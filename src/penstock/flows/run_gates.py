"""Gates of single runs: whether a run that is not part of a flow may start.

Runs created by a bound message or submitted by a person or program are checked by the processor's
gate, like runs of a flow: the run waits, starts, starts degraded, or fails and becomes a dead
letter. Missing history that only a person can supply opens an intervention; the run waits for it
until its deadline. Probes run outside any transaction under a token, as those of flows do; the
orchestrator calls `run_once`.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from penstock.audit.rows import Entry, NewAlert
from penstock.audit.store.alerts import alert_open
from penstock.audit.store.journal import journal_append_many
from penstock.audit.store.telemetry import emit_after_commit
from penstock.audit.telemetry import Event, GateDecided, log_event
from penstock.core.clock import MINUTE
from penstock.core.errors import StoreError
from penstock.core.ids import encode
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.core.stored_json import dumps
from penstock.db.store import Transactions, Tx
from penstock.flows.advance.messages import (
    SEVERITIES,
    check_failed_fields,
    decision_context,
    intervention_payload,
)
from penstock.flows.advance.telemetry import decision_event
from penstock.flows.gates.acknowledge import gate_response
from penstock.flows.gates.evidence import Observation, assess
from penstock.flows.gates.gate import decide
from penstock.flows.gates.override import Override
from penstock.flows.gates.probe_request import Prober, ProbeRequest
from penstock.flows.gates.rows import NewDecision, NewIntervention
from penstock.flows.gates.store.gates import decision_put_many
from penstock.flows.gates.store.overrides import intervention_close_many, intervention_put_many
from penstock.flows.gates.store.run_gates import (
    RunGateDecision,
    RunGateRow,
    run_gate_alert_key,
    run_gate_decide_many,
    run_gate_lease,
    run_gate_overrides,
    run_gate_rows,
)
from penstock.flows.gates.verdict import (
    RULES,
    Acknowledgement,
    AlertLevel,
    Decision,
    GateInput,
    GateStatus,
    Verdict,
)
from penstock.flows.plan import FlowPlan
from penstock.flows.store.logs import alert_resolve_many, outbox_announce_many
from penstock.flows.store.plans import planned
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.parameters import defaults, run_parameters
from penstock.pipelines.plan import Need
from penstock.runs.rows import RunEnd
from penstock.runs.store.finish import run_end_many
from penstock.runs.store.gated import run_gate_pass
from penstock.runs.store.runs import run_cancel_pending

FAILED_TOPIC: Final = "penstock.dependency-check-failed"
DEPENDENCY_MISSING: Final = "DEPENDENCY_MISSING"
"""Error type of a run whose gate does not allow it to start."""
LEASE_US: Final = 2 * MINUTE
"""Lease duration of a probe; longer than any probe may take, so that a slow warehouse is not probed
twice.
"""

log = logging.getLogger(__name__)


class _Order(NamedTuple):
    """A leased gate whose data must be probed."""

    gate: RunGateRow
    request: ProbeRequest


class _Observed(NamedTuple):
    gate: RunGateRow
    observations: Sequence[Observation]


@dataclass(slots=True)
class RunGateCounts:
    """Counts of one step."""

    decisions: int = 0
    passed: int = 0
    failed: int = 0
    probes: int = 0


@dataclass(slots=True)
class _Writes:
    """Rows that a batch of decisions writes."""

    decided: list[RunGateDecision] = field(default_factory=list)
    decisions: list[NewDecision] = field(default_factory=list)
    passed: list[tuple[int, str | None]] = field(default_factory=list)
    failed: list[tuple[RunGateRow, Decision]] = field(default_factory=list)
    journal: list[Entry] = field(default_factory=list)
    messages: list[tuple[str, str]] = field(default_factory=list)
    alerts: list[NewAlert] = field(default_factory=list)
    resolved: list[str] = field(default_factory=list)
    interventions: list[NewIntervention] = field(default_factory=list)
    closed: list[tuple[int, str, str, str]] = field(default_factory=list)
    logs: list[tuple[str, str, Event]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def add(self, part: _Writes) -> None:
        """Add the rows of another gate."""
        for name in self.__slots__:
            getattr(self, name).extend(getattr(part, name))


class RunGates:
    """Evaluates the gates of single runs."""

    def __init__(
        self,
        store: Transactions,
        probe: Prober,
        *,
        known: Callable[[ProbeRequest], Sequence[Observation] | None] | None,
        actor: str,
        code: Mapping[str, Pipeline],
        threads: Executor | None,
        batch: int,
    ) -> None:
        """Take the arguments of `Orchestrator`, which creates it; `code` is keyed by digest of the
        declaration.
        """
        self._store = store
        self._probe = probe
        self._known = known
        self._actor = actor
        self._code = code
        self._threads = threads
        self._batch = batch
        self._observed: deque[_Observed] = deque()

    @property
    def has_results(self) -> bool:
        """Whether probes have returned that are not evaluated yet."""
        return bool(self._observed)

    def run_once(self) -> RunGateCounts:
        """Evaluate due and probed gates; probes are run, or started in the background."""
        total = RunGateCounts()
        while True:
            count = min(len(self._observed), self._batch)
            observed = [self._observed.popleft() for _ in range(count)]
            try:
                part, orders = self._store.write(lambda tx: self._step(tx, observed))  # noqa: B023
            except Exception:
                self._observed.extendleft(reversed(observed))
                raise
            total.decisions += part.decisions
            total.passed += part.passed
            total.failed += part.failed
            total.probes += len(orders)
            for order in orders:
                self._start_probe(order)
            if not self._observed and not orders:
                return total

    def _step(self, tx: Tx, observed: Sequence[_Observed]) -> tuple[RunGateCounts, list[_Order]]:
        """Decide observed gates, then lease due ones and decide those that need no probe."""
        leased = run_gate_lease(tx, self._batch, LEASE_US)
        known = {one.gate.run_id: one for one in observed}
        ids = {*leased, *known}
        gates = run_gate_rows(tx, sorted(ids)) if ids else []
        overrides = run_gate_overrides(tx, sorted(ids)) if gates else {}
        writes, orders = _Writes(), list[_Order]()
        now = tx.now()
        for gate in gates:
            seen = known.get(gate.run_id)
            is_current = seen is not None and seen.gate.token == gate.token
            if not is_current and gate.run_id not in leased:
                continue  # the result of a probe whose lease was lost
            part = _Writes()
            try:
                plan = planned(tx, gate.pipeline_key, gate.digest, gate.mode)
                approved = overrides.get(gate.run_id, ())
                found = seen.observations if seen is not None and is_current else None
                order = self._evaluate(gate, plan, found, approved, now, part)
            except StoreError:
                raise
            except Exception:
                # Its lease makes it due again; the other gates are decided now.
                log.exception("the gate of %s failed", encode("run", gate.run_id))
                continue
            writes.add(part)
            if order is not None:
                orders.append(order)
        return self._write(tx, writes) if writes.decided else RunGateCounts(), orders

    def _evaluate(
        self,
        gate: RunGateRow,
        plan: FlowPlan,
        found: Sequence[Observation] | None,
        approved: Sequence[Override],
        now: int,
        writes: _Writes,
    ) -> _Order | None:
        """Decide a gate from its observations; return a probe order if one is needed."""
        needs = plan.needs(gate.phase, gate.processor)
        if found is None and needs:
            request = self._request(gate, plan, now)
            found = None if self._known is None else self._known(request)
            if found is None:
                return _Order(gate, request)
        given = _input(gate, plan, needs, found or (), now)
        where = (gate.customer_id, gate.pipeline, gate.partition, gate.phase)
        in_scope = tuple(one for one in approved if one.applies_to_gate(*where))
        self._decide(gate, replace(given, overrides=in_scope), writes)
        return None

    def _decide(self, gate: RunGateRow, given: GateInput, writes: _Writes) -> None:
        decision = decide(given)
        result = gate_response(decision, retry_count=gate.tries)
        now, is_short = given.now, decision.status is GateStatus.MISSING_HISTORICAL
        counted = result.acknowledgement is Acknowledgement.NACK
        tries = gate.tries + 1 if counted else gate.tries
        is_over = now >= gate.deadline_at
        ends = not result.runs and (is_over or (result.is_final and not decision.intervention))
        if result.runs or ends:
            probe_at = None
        else:
            # An intervention is evaluated again when it is resolved, or at the deadline.
            again = gate.deadline_at if decision.recheck_at is None else decision.recheck_at
            probe_at = min(again, gate.deadline_at)
        is_plain = decision.verdict is Verdict.PROCEED and not decision.overrides_used
        has_context = result.runs and not is_plain
        context = decision_context(decision, given.overrides) if has_context else {}
        writes.decided.append(
            RunGateDecision(
                gate.run_id,
                probe_at,
                gate.waiting_since or (now if result.waits else None),
                tries,
                decision.verdict.value,
                result.status,
                result.reason,
                json.dumps(context, sort_keys=True) if context else None,
            )
        )
        writes.decisions.append(
            NewDecision(*_gate_columns(gate), gate.mode, decision.verdict.value, result.status,
                        decision.completeness, decision.quality, dumps(given), dumps(decision),
                        gate.source)
        )  # fmt: skip
        event = _event(gate, given, decision)
        writes.events.append(event)
        if gate.status != result.status or result.runs or ends:
            where = f"{gate.pipeline}.{gate.processor} {gate.partition}"
            shown = f"gate of {encode('run', gate.run_id)} ({where})"
            text = f"{shown}: {result.status}, {result.reason}"
            writes.logs.append((result.log_level, text, event))
        if result.runs:
            writes.passed.append((gate.run_id, gate.ordering_key))
        elif ends:
            writes.failed.append((gate, decision))
        self._note(gate, given, decision, writes, ends=ends)
        if decision.intervention and not ends:
            writes.interventions.append(
                NewIntervention(*_gate_columns(gate), json.dumps(list(decision.missing)),
                                result.reason, gate.tries, gate.correlation_id,
                                intervention_payload(given.assessments, decision))
            )  # fmt: skip
        elif is_short or gate.status == GateStatus.MISSING_HISTORICAL:
            resolution = f"the gate's verdict is {decision.verdict}"
            writes.closed.append((-gate.run_id, gate.phase, gate.processor, resolution))

    def _note(
        self,
        gate: RunGateRow,
        given: GateInput,
        decision: Decision,
        writes: _Writes,
        *,
        ends: bool,
    ) -> None:
        """Add the journal entry, messages and alerts of a decision."""
        fields = _fields(gate)
        if gate.verdict != decision.verdict.value:
            detail = {**fields, "verdict": decision.verdict.value, "status": decision.status.value}
            writes.journal.append(
                Entry("run", gate.run_id, gate.customer_key, "gate_decided", self._actor,
                      why=decision.reasons[0], detail=json.dumps(detail, sort_keys=True))
            )  # fmt: skip
        if decision.verdict is not Verdict.PROCEED:
            body = {**fields, **check_failed_fields(given, decision, retry_count=gate.tries)}
            writes.messages.append((FAILED_TOPIC, json.dumps(body, sort_keys=True)))
        if gate.verdict is not None and gate.verdict != decision.verdict.value:
            writes.resolved.append(run_gate_alert_key(gate.run_id, Verdict(gate.verdict)))
        if decision.alert is None and not (ends and decision.verdict is Verdict.FAIL):
            return
        level = SEVERITIES[decision.alert or AlertLevel.ERROR]
        verb = "fails at its gate" if ends else "starts degraded" if decision.verdict.starts \
            else "waits for its gate"  # fmt: skip
        where = f"{gate.pipeline} {gate.partition} {gate.phase}.{gate.processor}"
        writes.alerts.append(
            NewAlert(
                rule=f"gate_{decision.verdict.lower()}",
                dedupe_key=run_gate_alert_key(gate.run_id, decision.verdict),
                severity=level,
                customer_key=gate.customer_key,
                subject_kind="run",
                subject=gate.run_id,
                message=f"{where} {verb}: {decision.reasons[0]}",
                detail={**fields, "verdict": decision.verdict.value,
                        "missing": list(decision.missing)},
            )
        )  # fmt: skip

    def _write(self, tx: Tx, writes: _Writes) -> RunGateCounts:
        run_gate_decide_many(tx, writes.decided)
        tx.after_commit(lambda: _log(writes.logs))
        emit_after_commit(tx, GateDecided, lambda: writes.events)
        decision_put_many(tx, writes.decisions)
        intervention_put_many(tx, writes.interventions)
        intervention_close_many(tx, writes.closed)
        journal_append_many(tx, writes.journal)
        outbox_announce_many(tx, writes.messages)
        alert_resolve_many(tx, writes.resolved, self._actor)
        for alert in writes.alerts:
            alert_open(tx, alert)
        if writes.passed:
            run_gate_pass(tx, writes.passed)
        ends = []
        for gate, decision in writes.failed:
            token = run_cancel_pending(tx, gate.run_id)
            assert token is not None, "the row is locked"
            ends.append(_failed(gate, decision, token, self._actor))
        if ends:
            run_end_many(tx, ends)
        return RunGateCounts(len(writes.decided), len(writes.passed), len(ends))

    def _start_probe(self, order: _Order) -> None:
        if self._threads is None:
            self._observed.append(_Observed(order.gate, list(self._probe(order.request))))
            return
        future = self._threads.submit(lambda: list(self._probe(order.request)))
        future.add_done_callback(lambda done: self._on_probed(order.gate, done))

    def _on_probed(self, gate: RunGateRow, done: Future[list[Observation]]) -> None:
        if not done.cancelled() and done.exception() is None:
            self._observed.append(_Observed(gate, done.result()))
            self._store.wake(["flows"])

    def _request(self, gate: RunGateRow, plan: FlowPlan, now: int) -> ProbeRequest:
        """Build the probe request; from the loaded code if possible, as JSON holds no functions."""
        code = self._code.get(gate.digest)
        gate_key = (gate.phase, gate.processor)
        needs = plan.needs(*gate_key) if code is None else code.needs(plan.mode.name, *gate_key)
        return ProbeRequest(
            dependencies=[need.dependency for need in needs],
            partition=gate.partition,
            customer=gate.customer_id,
            parameters=_parameters(gate, plan),
            since=gate.opened_at if gate.waiting_since is None else now,
        )


def _parameters(gate: RunGateRow, plan: FlowPlan) -> dict[str, Any]:
    """Return the parameters that the run receives."""
    return run_parameters(defaults(plan.definition.get("parameters")), gate.parameters)


def _input(
    gate: RunGateRow,
    plan: FlowPlan,
    needs: Sequence[Need],
    observations: Sequence[Observation],
    now: int,
) -> GateInput:
    seen = {one.key: one for one in observations}
    return GateInput(
        mode=plan.gate_mode,
        now=now,
        phase=gate.phase,
        processor=gate.processor,
        partition=gate.partition,
        assessments=tuple(
            assess(
                need.dependency,
                seen.get(need.dependency.key),
                judged_at=now,
                age_counts=plan.gate_mode.age_counts,
                needed_by=need.needed_by,
            )
            for need in needs
        ),
        waited_us=0 if gate.waiting_since is None else now - gate.waiting_since,
        historical_tries=gate.tries,
        rules=RULES,
    )


def _fields(gate: RunGateRow) -> dict[str, Any]:
    """Return the fields common to messages, journal entries and alerts about a run's gate."""
    return {
        "run_id": encode("run", gate.run_id),
        "customer_id": gate.customer_id,
        "pipeline": gate.pipeline,
        "partition": gate.partition,
        "mode": gate.mode,
        "phase": gate.phase,
        "processor": gate.processor,
        "correlation_id": gate.correlation_id,
    }


def _failed(gate: RunGateRow, decision: Decision, token: int, actor: str) -> RunEnd:
    """Return the end of a run that its gate does not allow to start: a dead letter, not retried."""
    details = {
        "message": " ".join(decision.reasons),
        "status": decision.status.value,
        "missing": list(decision.missing),
        "retry_count": gate.tries,
    }
    return RunEnd(
        gate.run_id,
        token,
        "FAILED",
        "FAILURE",
        error_type=DEPENDENCY_MISSING,
        error_details=json.dumps(details, sort_keys=True),
        is_dead=True,
        actor=actor,
        why="its gate does not let it start",
    )


def _gate_columns(gate: RunGateRow) -> tuple[CustomerKey, PipelineKey, int, str, str, str]:
    """Return the columns that identify the gate of a run."""
    return (
        gate.customer_key, gate.pipeline_key, -gate.run_id, gate.phase, gate.processor,
        gate.partition,
    )  # fmt: skip


def _event(gate: RunGateRow, given: GateInput, decision: Decision) -> GateDecided:
    return decision_event(
        given,
        decision,
        run_id=gate.run_id,
        customer_id=gate.customer_id,
        pipeline=gate.pipeline,
        phase=gate.phase,
        processor=gate.processor,
        mode=gate.mode,
        correlation_id=gate.correlation_id or encode("run", gate.run_id),
        source=gate.source,
        tries=gate.tries,
    )


def _log(lines: Sequence[tuple[str, str, Event]]) -> None:
    for level, text, event in lines:
        log_event(log, logging.getLevelNamesMapping()[level], text, event)
