"""All changes that result from evaluating a batch of flows, collected before they are written.

Pure: `decide` adds to a change set, `write` stores it in the transaction that loaded the flows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from penstock.audit.rows import Entry, NewAlert
from penstock.audit.telemetry import Event
from penstock.core.naming import ProcessorKey
from penstock.core.stored_json import dumps
from penstock.flows.advance.announcements import (
    CASCADE_SOURCE,
    Scores,
    completion_body,
    phase_scores,
    status_body,
    trigger_body,
)
from penstock.flows.advance.late_data import LateData
from penstock.flows.advance.messages import (
    check_failed_fields,
    detail_of,
    fallback_alert,
    flow_alert,
    flow_fields,
    gate_alert,
    gate_alert_key,
    gate_log_text,
    history_queries,
    intervention_payload,
    last_verdict,
    needs_intervention,
    output_alert,
    output_alert_key,
    phase_alert,
    phase_alert_key,
)
from penstock.flows.advance.snapshot import FlowSnapshot, NeededProbe
from penstock.flows.advance.telemetry import flow_ended, gate_decided, phase_ended
from penstock.flows.cascade import FlowState, GateRequest, PhaseProgress, is_set_complete
from penstock.flows.gates.evidence import Assessment, Observation
from penstock.flows.gates.rows import NewDecision, NewIntervention, NewTrigger
from penstock.flows.gates.verdict import Decision, GateInput, Verdict
from penstock.flows.phases import ENDED, PhaseState
from penstock.flows.rows import (
    LATE_DATA,
    CheckLogRow,
    FlowRow,
    NewCompletion,
    PhaseLogRow,
    PhaseRow,
)
from penstock.pipelines.plan import PhasePlan
from penstock.runs.rows import NewRun

STATUS_TOPIC: Final = "penstock.orchestration-status"
FAILED_TOPIC: Final = "penstock.dependency-check-failed"
CachedObservations: TypeAlias = Callable[[NeededProbe], Mapping[str, Observation] | None]
"""Function that returns cached observations of a gate; None if it must be probed."""


@dataclass(slots=True)
class Start:
    """Processors that a trigger starts."""

    snapshot: FlowSnapshot
    phase: str
    processor: str
    names: tuple[str, ...]
    is_entry: bool
    source: str

    @property
    def processor_keys(self) -> list[tuple[int, str, str]]:
        """The (pipeline, phase, name) keys of the processors."""
        return [(self.snapshot.flow.pipeline_key, self.phase, name) for name in self.names]


@dataclass(slots=True)
class ChangeSet:
    """All changes of a batch of flows."""

    actor: str
    known: CachedObservations | None = None
    topics: frozenset[str] = frozenset()
    """Topics that exist; messages on others are not built."""
    wanted: list[NeededProbe] = field(default_factory=list)
    late: list[LateData] = field(default_factory=list)
    closed: list[FlowRow] = field(default_factory=list)
    """Flows whose successful trial closed a breaker; the flows it blocked are evaluated again."""
    starts: list[Start] = field(default_factory=list)
    fan_ins: list[NewCompletion] = field(default_factory=list)
    ended: int = 0
    overdue: list[int] = field(default_factory=list)
    """Flows that failed at their deadline; their runs are cancelled."""
    decisions: list[NewDecision] = field(default_factory=list)
    triggers: list[NewTrigger] = field(default_factory=list)
    journal: list[Entry] = field(default_factory=list)
    phase_log: list[PhaseLogRow] = field(default_factory=list)
    check_log: list[CheckLogRow] = field(default_factory=list)
    downstream: list[tuple[int, str, str]] = field(default_factory=list)
    messages: list[tuple[str, str]] = field(default_factory=list)
    alerts: list[NewAlert] = field(default_factory=list)
    resolved: list[str] = field(default_factory=list)
    interventions: list[NewIntervention] = field(default_factory=list)
    closed_interventions: list[tuple[int, str, str, str]] = field(default_factory=list)
    flows: list[tuple[int, str, bool, str, bool]] = field(default_factory=list)
    begun: list[tuple[int, int, int | None]] = field(default_factory=list)
    """Flows whose deadline counts from now on, or no longer: (flow, deadline, begin)."""
    ended_configs: list[int] = field(default_factory=list)
    repaired: list[int] = field(default_factory=list)
    """Successful flows above generation 1: alerts about earlier generations are resolved."""
    logs: list[tuple[str, str, Event | None]] = field(default_factory=list)
    """Decisions about data, by log level and text; a wait is logged when it begins."""
    events: list[Event] = field(default_factory=list)
    _scores: dict[tuple[int, str], Scores] = field(default_factory=dict)
    """Completeness and quality by flow and phase, as last decided or as the phase ended."""

    def completed(self, snapshot: FlowSnapshot, reported: Iterable[tuple[str, str]]) -> None:
        """Announce completions of processors, once each."""
        for phase, processor in sorted(reported):
            topic = f"{snapshot.flow.pipeline}.{phase}.complete"
            for seen in snapshot.completions if topic in self.topics else ():
                if (seen.phase, seen.processor) == (phase, processor):
                    self._emit(snapshot, topic, phase, completion_body(snapshot, seen))

    def states_changed(self, snapshot: FlowSnapshot) -> None:
        """Announce the phases whose state has changed since they were last announced."""
        if STATUS_TOPIC not in self.topics:
            return
        for phase, before in list(snapshot.states_before.items()):
            state = snapshot.states_before[phase] = snapshot.rows[phase, ""].state
            if state != before:
                scores = self._scores.get((snapshot.flow.flow_id, phase), (None, None))
                self._emit(snapshot, STATUS_TOPIC, phase, status_body(snapshot, state, scores))

    def decided(
        self,
        snapshot: FlowSnapshot,
        ask: GateRequest,
        judged: tuple[GateInput, Decision],
        before: PhaseRow,
        source: str,
    ) -> None:
        """Record the decision of a gate."""
        flow, processor = snapshot.flow, ask.processor or ""
        given, decision = judged
        self.decisions.append(
            NewDecision(
                flow.customer_key, flow.pipeline_key, flow.flow_id, ask.phase, processor,
                flow.partition, flow.mode, decision.verdict.value, decision.status.value,
                decision.completeness, decision.quality, dumps(given), dumps(decision), source,
            )
        )  # fmt: skip
        self.check_log += _checks(flow, ask, given, decision, before)
        event = gate_decided(snapshot, ask, judged, source, before.tries)
        self.events.append(event)
        repeats = decision.verdict is Verdict.WAIT and before.waiting_since is not None
        if not repeats and (given.assessments or decision.verdict is not Verdict.PROCEED):
            text = gate_log_text(snapshot, ask, decision)
            self.logs.append((decision.log_level, text, event))
        self._scores[flow.flow_id, ask.phase] = (decision.completeness, decision.quality)
        if not decision.verdict.starts:
            self._note(snapshot, ask, "decided", decision, before.state)
        if decision.verdict is not Verdict.PROCEED and FAILED_TOPIC in self.topics:
            body = check_failed_fields(given, decision, retry_count=before.tries)
            self._emit(snapshot, FAILED_TOPIC, ask.phase, {"processor": processor or None, **body})
        if given.fallback:
            self.alerts.append(fallback_alert(snapshot, ask, decision))
        if decision.alert is not None and not (given.fallback and decision.verdict.starts):
            self.alerts.append(gate_alert(snapshot, ask, decision, decision.alert))
        previous = last_verdict(before.state)
        if previous is not None and previous is not decision.verdict:
            self.resolved.append(gate_alert_key(flow.flow_id, ask.phase, processor, previous))
        gate_key_columns = (flow.flow_id, ask.phase, processor)
        if decision.intervention:
            self.interventions.append(_intervention(snapshot, ask, judged, before.tries))
        elif decision.verdict.starts and needs_intervention(before):
            self.closed_interventions.append(
                (*gate_key_columns, f"the gate's verdict is {decision.verdict}")
            )

    def started(
        self, snapshot: FlowSnapshot, ask: GateRequest, decision: Decision, source: str
    ) -> None:
        """Record the start of a phase or of one processor."""
        flow, processor = snapshot.flow, ask.processor or ""
        plan = snapshot.planned.plan.phase(ask.phase)
        asked = (processor,) if processor else plan.expected
        names = tuple(name for name in asked if snapshot.needs_run(name, plan))
        is_entry = snapshot.starts_with(ask)
        is_observed = snapshot.is_observed and (not is_entry or flow.trigger_source == LATE_DATA)
        fan_outs = snapshot.planned.fan_outs
        runs = 0 if is_observed else sum((ask.phase, name) not in fan_outs for name in names)
        self.triggers.append(
            NewTrigger(
                flow.flow_id,
                ask.phase,
                processor,
                flow.customer_key,
                decision.verdict.value,
                source,
                is_observed,
                runs,
                *snapshot.cause_of(ask.phase, is_cascaded=source in (CASCADE_SOURCE, LATE_DATA)),
            )
        )
        if not is_observed:
            self.starts.append(Start(snapshot, ask.phase, processor, names, is_entry, source))
        self._note(snapshot, ask, "triggered", decision, source=source)
        self.downstream += [(flow.flow_id, name, ask.phase) for name in plan.after]
        topic = f"{flow.pipeline}.{ask.phase}.trigger"
        if topic in self.topics:
            body = trigger_body(snapshot, ask, decision.verdict.value, source, names)
            self._emit(snapshot, topic, ask.phase, body)

    def breaker_open(self, snapshot: FlowSnapshot, ask: GateRequest) -> None:
        """Record that a gate was not evaluated because its breaker is open."""
        flow, detail = snapshot.flow, detail_of(snapshot, ask.phase, ask.processor or "")
        self.journal.append(
            Entry("flow", flow.flow_id, flow.customer_key, "breaker_open", self.actor, None,
                  "BLOCKED", None, "five failures in a row", detail)
        )  # fmt: skip

    def phase_ended(
        self, snapshot: FlowSnapshot, phase: PhasePlan, progress: PhaseProgress
    ) -> None:
        """Record that a phase ended, or that its last outstanding processor completed it."""
        flow, row = snapshot.flow, snapshot.row(phase.name)
        done = [s.processor for s in snapshot.completions_of([phase.name]) if s.status != "failed"]
        completed = [name for name in phase.expected if name in done]
        missing = [name for name in phase.expected if name not in done]
        scores = self._scores[flow.flow_id, phase.name] = phase_scores(snapshot, [phase])
        began, context = row.started_at, row.gate_context
        self.phase_log.append(
            PhaseLogRow(
                flow.customer_key, flow.pipeline_key, flow.flow_id, phase.name, flow.partition,
                flow.mode, row.state.lower(), began, snapshot.now,
                None if began is None else snapshot.now - began, len(phase.expected),
                len(completed), json.dumps(completed), json.dumps(missing),
                *scores, not context,
                json.dumps(context.get("warnings", [])), flow.correlation_id, flow.config_id,
            )
        )  # fmt: skip
        self.events.append(phase_ended(snapshot, phase.name, len(completed), len(phase.expected)))
        detail = detail_of(snapshot, phase.name, "", completed=len(completed), missing=missing)
        self.journal.append(
            Entry("flow", flow.flow_id, flow.customer_key, "phase_ended", self.actor,
                  progress.state.value, row.state, None, None, detail)
        )  # fmt: skip
        if not is_set_complete(phase, progress):
            self.alerts.append(phase_alert(snapshot, phase, missing))
        elif progress.state in ENDED:
            self.resolved.append(phase_alert_key(flow.flow_id, phase.name))

    def outputs_probed(
        self, snapshot: FlowSnapshot, phase: PhasePlan, short: Sequence[Assessment]
    ) -> None:
        """Record the outputs that a completed phase did not produce; an empty list resolves the
        alert.
        """
        if not short:
            self.resolved.append(output_alert_key(snapshot.flow.flow_id, phase.name))
            return
        alert = output_alert(snapshot, phase, short)
        self.alerts.append(alert)
        level = "ERROR" if any(a.fail_if_missing for a in short) else "WARNING"
        self.logs.append((level, alert.message, None))

    def flow_ended(self, snapshot: FlowSnapshot, state: FlowState) -> None:
        """Record the end of a flow."""
        flow = snapshot.flow
        ran = [row for row in snapshot.rows.values() if row.state != PhaseState.SKIPPED]
        contexts = [row.gate_context for row in ran if row.gate is not None]
        missing = sorted({item for context in contexts for item in context.get("missing", ())})
        is_degraded = state is not FlowState.COMPLETE
        self.ended += 1
        snapshot.flow = flow._replace(state=state.value, ended_at=snapshot.now)
        self.events.append(flow_ended(snapshot, state.value))
        self.flows.append((flow.flow_id, state.value, is_degraded, json.dumps(missing), True))
        self.journal.append(
            Entry("flow", flow.flow_id, flow.customer_key, "ended", self.actor, flow.state,
                  state.value, None, None, detail_of(snapshot, "", ""))
        )  # fmt: skip
        if STATUS_TOPIC in self.topics:
            self.states_changed(snapshot)
            scores = phase_scores(snapshot, snapshot.planned.plan.phases)
            body = status_body(snapshot, state.value, scores)
            self._emit(snapshot, STATUS_TOPIC, "", {**body, "missing": missing})
        self.ended_configs.append(flow.config_id)
        self.closed_interventions += [
            (flow.flow_id, phase, processor, f"the flow ended {state}")
            for (phase, processor), row in snapshot.rows.items()
            if needs_intervention(row)
        ]
        if state is not FlowState.FAILED and flow.generation > 1:
            self.repaired.append(flow.flow_id)
        if state is FlowState.FAILED:
            self.overdue.append(flow.flow_id)
            self.alerts.append(flow_alert(snapshot))
        elif is_degraded or any(row.waiting_since for row in snapshot.rows.values()):
            self.resolved += [
                gate_alert_key(flow.flow_id, phase, processor, verdict)
                for phase, processor in snapshot.rows
                for verdict in Verdict
            ]

    def _note(
        self,
        snapshot: FlowSnapshot,
        ask: GateRequest,
        action: str,
        decision: Decision,
        before: str | None = None,
        *,
        source: str | None = None,
    ) -> None:
        flow, processor = snapshot.flow, ask.processor or ""
        more = {"verdict": decision.verdict.value, "status": decision.status.value}
        more |= {} if source is None else {"trigger_source": source}
        state = snapshot.row(ask.phase, processor).state
        self.journal.append(
            Entry("flow", flow.flow_id, flow.customer_key, action, self.actor, before, state,
                  None, decision.reasons[0], detail_of(snapshot, ask.phase, processor, **more))
        )  # fmt: skip

    def _emit(self, snapshot: FlowSnapshot, topic: str, phase: str, body: dict[str, Any]) -> None:
        message = {**flow_fields(snapshot, phase, ""), **body}
        self.messages.append((topic, json.dumps(message, sort_keys=True)))


def _intervention(
    snapshot: FlowSnapshot, ask: GateRequest, judged: tuple[GateInput, Decision], tries: int
) -> NewIntervention:
    flow = snapshot.flow
    given, decision = judged
    queries = history_queries(snapshot, ask, decision)
    return NewIntervention(
        flow.customer_key, flow.pipeline_key, flow.flow_id, ask.phase, ask.processor or "",
        flow.partition, json.dumps(list(decision.missing)), " ".join(decision.reasons),
        tries, flow.correlation_id,
        intervention_payload(given.assessments, decision, queries, flow.message_id),
    )  # fmt: skip


def _checks(
    flow: FlowRow, ask: GateRequest, given: GateInput, decision: Decision, before: PhaseRow
) -> Iterator[CheckLogRow]:
    """Yield log rows of the checks whose outcome differs from the last probe."""
    known = {} if before.evidence is None else json.loads(before.evidence)
    for a in given.assessments:
        if known.get(a.key) == [a.rows, a.expected, a.days_present, str(a.status)]:
            continue
        yield CheckLogRow(
            flow.customer_key, flow.pipeline_key, flow.flow_id, ask.phase,
            ask.processor or "", flow.partition, flow.mode, a.table, str(a.kind),
            flow.partition, a.expected if a.rows is not None else a.min_days,
            a.rows if a.rows is not None else a.days_present, a.completeness, a.quality,
            None if a.age_us is None else a.age_us // 1_000_000, str(a.status),
            json.dumps(list(a.issues)), decision.verdict.value, flow.correlation_id,
            a.probed_us, a.scanned_bytes,
        )  # fmt: skip


def run_rows(
    starts: Sequence[Start],
    processors: Mapping[tuple[int, str, str], tuple[int, str]],
    limits: dict[int, tuple[int, int]],
) -> list[NewRun]:
    """Return the runs of starts, except those of items.

    processors: (key, pool) by pipeline, phase and name. limits: (max_execution_us, sla_us) by
    config.
    """
    made: list[NewRun] = []
    positions: Counter[int] = Counter()
    for start in starts:
        flow = start.snapshot.flow
        most, sla = limits.get(flow.config_id, (None, None))
        for name in start.names:
            if (start.phase, name) in start.snapshot.planned.fan_outs:
                continue
            number, _ = processors[flow.pipeline_key, start.phase, name]
            ordered = flow.is_ordered and start.is_entry
            at = None
            if start.is_entry and flow.start_at is not None:
                at = flow.start_at + flow.start_gap * positions[flow.flow_id]
                positions[flow.flow_id] += 1
            made.append(
                NewRun(
                    customer_key=flow.customer_key,
                    processor_key=ProcessorKey(number),
                    config_id=flow.config_id or None,
                    flow_id=flow.flow_id,
                    partition=flow.partition,
                    mode=flow.mode,
                    occurrence_time=flow.occurrence_time,
                    scheduled_time=at,
                    priority=flow.priority,
                    max_execution_us=most,
                    sla_us=sla if start.is_entry else None,
                    ordering_key=f"config:{flow.config_id}:{number}" if ordered else None,
                    parameters=flow.parameters,
                    correlation_id=flow.correlation_id,
                    trigger_source=start.source,
                    trigger_message_id=flow.message_id if start.is_entry else None,
                )
            )
    return made
