"""What is said about flows: in messages, journal lines and alerts. Words only, nothing is written.

One place, so that the same flow is called the same everywhere, by `changes` and by `people`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from penstock.audit.store.alerts import Alert
from penstock.core.ids import encode
from penstock.flows.advance.snapshot import Book
from penstock.flows.cascade import Ask
from penstock.flows.gates.verdict import AlertLevel, Decision, GateStatus, Verdict
from penstock.flows.store.flows import Phase
from penstock.pipelines.dependency import Dependency, Kind
from penstock.pipelines.plan import PhasePlan

SEVERITIES: Final = {
    AlertLevel.INFO: "INFO",
    AlertLevel.WARNING: "MEDIUM",
    AlertLevel.ERROR: "HIGH",
    AlertLevel.CRITICAL: "CRITICAL",
}


def gate_key(flow_id: int, phase: str, processor: str, verdict: Verdict) -> str:
    """The dedupe key of the alert about what a gate said: a verdict that follows is news."""
    return f"gate:{flow_id}:{phase}:{processor}:{verdict.lower()}"


def phase_key(flow_id: int, phase: str) -> str:
    """The dedupe key of the alert about a phase that ended without everybody."""
    return f"phase:{flow_id}:{phase}"


def needs_person(gate: Phase) -> bool:
    """Whether a gate may have asked for a person: it counted tries, or gave up at once."""
    return bool(gate.tries) or gate.told.get("status") == GateStatus.MISSING_HISTORICAL


def gate_said(state: str) -> Verdict | None:
    """What the gate of a phase in this state said last, if it kept it from starting."""
    return {"WAITING": Verdict.WAIT, "BLOCKED": Verdict.FAIL}.get(state)


def about(book: Book, phase: str, processor: str) -> dict[str, Any]:
    """What every message, journal line and alert about a flow says."""
    flow = book.flow
    said = {
        "flow_id": encode("flow", flow.flow_id),
        "customer_id": flow.customer_id,
        "pipeline": flow.pipeline,
        "partition": flow.partition,
        "mode": flow.mode,
        "generation": flow.generation,
        "correlation_id": flow.correlation_id,
    }
    if phase:
        said["phase"] = phase
    if processor:
        said["processor"] = processor
    return said


def detail_of(book: Book, phase: str, processor: str, **more: Any) -> str:
    """The same as canonical JSON, with more."""
    return json.dumps({**about(book, phase, processor), **more}, sort_keys=True)


def gate_alert(book: Book, ask: Ask, decision: Decision, level: AlertLevel) -> Alert:
    """A gate said something that people want to know."""
    flow = book.flow
    words = {
        Verdict.FAIL: "must not start",
        Verdict.WAIT: "is waiting",
        Verdict.PROCEED_DEGRADED: "starts degraded",
        Verdict.PROCEED: "starts",
    }[decision.verdict]
    where = f"{flow.pipeline} {flow.partition} {ask.phase}"
    degraded = decision.verdict is Verdict.PROCEED_DEGRADED and decision.warnings
    lacking = f" {'; '.join(decision.warnings)}." if degraded else ""
    needs = [need.dependency for need in book.planned.needs(ask.phase, ask.processor or "")]
    short = [n for n in needs if n.kind is Kind.HISTORICAL and n.table in decision.missing]
    queries = [text for need in short if (text := history_query(need, flow.partition))]
    return Alert(
        rule=f"gate_{decision.verdict.lower()}",
        dedupe_key=gate_key(flow.flow_id, ask.phase, ask.processor or "", decision.verdict),
        severity=SEVERITIES[level],
        customer=flow.customer,
        subject_kind="flow",
        subject=flow.flow_id,
        message=f"{where} {words}: {decision.reasons[0]}{lacking}",
        detail={
            **about(book, ask.phase, ask.processor or ""),
            "verdict": decision.verdict.value,
            "missing": list(decision.missing),
            "warnings": list(decision.warnings),
            **({"queries": queries} if queries else {}),
        },
    )


def history_query(need: Dependency, partition: str) -> str | None:
    """The query that shows which days before a partition a table has, to be run by a person."""
    if need.partition is None:
        return None
    day = partition.replace("'", "''")
    return (
        f"SELECT {need.partition}, count(*) FROM {need.table} WHERE {need.partition} < '{day}' "  # noqa: S608 - shown, never run
        f"GROUP BY 1 ORDER BY 1 DESC LIMIT {need.lookback_days}"
    )


def phase_alert(book: Book, phase: PhasePlan, missing: Sequence[str]) -> Alert:
    """A phase ended without everybody."""
    flow = book.flow
    return Alert(
        rule="phase_incomplete",
        dedupe_key=phase_key(flow.flow_id, phase.name),
        severity="HIGH",
        customer=flow.customer,
        subject_kind="flow",
        subject=flow.flow_id,
        message=f"{flow.pipeline} {flow.partition} {phase.name} ended without {', '.join(missing)}",
        detail={**about(book, phase.name, ""), "missing": list(missing)},
    )


def flow_alert(book: Book) -> Alert:
    """A flow did not end in time."""
    flow = book.flow
    return Alert(
        rule="flow_failed",
        dedupe_key=f"flow:{flow.flow_id}",
        severity="HIGH",
        customer=flow.customer,
        subject_kind="flow",
        subject=flow.flow_id,
        message=f"{flow.pipeline} {flow.partition} ({flow.mode}) did not end by its deadline",
        detail=about(book, "", ""),
    )
