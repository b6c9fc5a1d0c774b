"""Events about flows: the decision of a gate, the end of a phase and of a flow. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.audit.telemetry import FlowEnded, GateDecided, PhaseEnded
from penstock.flows.advance.snapshot import FlowSnapshot
from penstock.flows.cascade import GateRequest
from penstock.flows.gates.evidence import DependencyStatus
from penstock.flows.gates.verdict import Decision, GateInput


def gate_decided(
    snapshot: FlowSnapshot,
    ask: GateRequest,
    judged: tuple[GateInput, Decision],
    source: str,
    tries: int,
) -> GateDecided:
    """Return the event of the decision of a flow's gate."""
    flow = snapshot.flow
    return decision_event(
        *judged,
        flow_id=flow.flow_id,
        customer_id=flow.customer_id,
        pipeline=flow.pipeline,
        phase=ask.phase,
        processor=ask.processor or "",
        mode=flow.mode,
        correlation_id=flow.correlation_id,
        source=source,
        tries=tries,
    )


def decision_event(given: GateInput, decision: Decision, **subject: Any) -> GateDecided:
    """Return the event of a decision about a subject, whose fields are given by name."""
    return GateDecided(
        verdict=decision.verdict.value,
        status=decision.status.value,
        completeness=decision.completeness,
        quality=decision.quality,
        reason=" ".join(decision.reasons),
        at=given.now,
        probed_us=max((a.probed_us or 0 for a in given.assessments), default=0),
        scanned_bytes=sum(a.scanned_bytes or 0 for a in given.assessments),
        checks=_checks(given),
        **subject,
    )


def _checks(given: GateInput) -> dict[str, tuple[int, int]]:
    """Return the number of checked and of missing dependencies, by kind."""
    checked = Counter(str(a.kind) for a in given.assessments)
    missing = Counter(
        str(a.kind) for a in given.assessments if a.status is DependencyStatus.MISSING
    )
    return {kind: (n, missing[kind]) for kind, n in checked.items()}


def phase_ended(snapshot: FlowSnapshot, phase: str, completed: int, expected: int) -> PhaseEnded:
    """Return the event of a phase that ended."""
    flow, row = snapshot.flow, snapshot.row(phase)
    return PhaseEnded(
        flow_id=flow.flow_id,
        customer_id=flow.customer_id,
        pipeline=flow.pipeline,
        phase=phase,
        mode=flow.mode,
        state=row.state,
        correlation_id=flow.correlation_id,
        started_at=row.started_at,
        ended_at=snapshot.now,
        completed=completed,
        expected=expected,
    )


def flow_ended(snapshot: FlowSnapshot, state: str) -> FlowEnded:
    """Return the event of a flow that ended."""
    flow = snapshot.flow
    return FlowEnded(
        flow_id=flow.flow_id,
        customer_id=flow.customer_id,
        pipeline=flow.pipeline,
        partition=flow.partition,
        mode=flow.mode,
        generation=flow.generation,
        state=state,
        correlation_id=flow.correlation_id,
        trigger_source=flow.trigger_source,
        started_at=flow.created_at,
        ended_at=snapshot.now,
        message_id=flow.message_id,
    )
