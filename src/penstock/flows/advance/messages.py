"""Texts about flows for messages, journal entries and alerts. Pure functions that write nothing.

The change set and interventions share them, so that a flow is described the same way everywhere.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any, Final

from penstock.audit.rows import NewAlert
from penstock.core.clock import format_duration
from penstock.core.ids import encode
from penstock.flows.advance.snapshot import FlowSnapshot
from penstock.flows.cascade import GateRequest
from penstock.flows.gates.breaker import FAILURES_MAX
from penstock.flows.gates.evidence import Assessment
from penstock.flows.gates.messages import warnings_beside
from penstock.flows.gates.override import Override
from penstock.flows.gates.verdict import AlertLevel, Decision, GateInput, GateStatus, Verdict
from penstock.flows.rows import FlowRow, PhaseRow
from penstock.pipelines.dependency import Dependency, DependencyKind
from penstock.pipelines.plan import PhasePlan

SEVERITIES: Final = {
    AlertLevel.INFO: "INFO",
    AlertLevel.WARNING: "MEDIUM",
    AlertLevel.ERROR: "HIGH",
    AlertLevel.CRITICAL: "CRITICAL",
}


def gate_alert_key(flow_id: int, phase: str, processor: str, verdict: Verdict) -> str:
    """Return the dedupe key of a gate's alert. A different verdict is a new alert."""
    return f"gate:{flow_id}:{phase}:{processor}:{verdict.lower()}"


def phase_alert_key(flow_id: int, phase: str) -> str:
    """Return the dedupe key of the alert about a phase that ended with processors missing."""
    return f"phase:{flow_id}:{phase}"


def needs_intervention(gate: PhaseRow) -> bool:
    """Whether a gate may have requested an intervention: it counted tries, or just failed."""
    return bool(gate.tries) or gate.gate_context.get("status") == GateStatus.MISSING_HISTORICAL


def last_verdict(state: str) -> Verdict | None:
    """Return the last verdict of a gate that kept a phase in this state from starting, if any."""
    return {"WAITING": Verdict.WAIT, "BLOCKED": Verdict.FAIL}.get(state)


def flow_fields(snapshot: FlowSnapshot, phase: str, processor: str) -> dict[str, Any]:
    """Return the fields common to every message, journal entry and alert about a flow."""
    flow = snapshot.flow
    fields = {
        "flow_id": encode("flow", flow.flow_id),
        "customer_id": flow.customer_id,
        "pipeline": flow.pipeline,
        "partition": flow.partition,
        "mode": flow.mode,
        "generation": flow.generation,
        "correlation_id": flow.correlation_id,
    }
    if phase:
        fields["phase"] = phase
    if processor:
        fields["processor"] = processor
    return fields


def decision_context(decision: Decision, overrides: Sequence[Override]) -> dict[str, Any]:
    """Return the part of the gate's decision that is passed to a run."""
    context: dict[str, Any] = {
        "verdict": decision.verdict.value,
        "status": decision.status.value,
        "is_degraded": decision.verdict is Verdict.PROCEED_DEGRADED,
        "missing": list(decision.missing),
        "stale": list(decision.stale),
        "reasons": list(decision.reasons),
        "warnings": list(decision.warnings),
        "completeness": decision.completeness,
        "quality": decision.quality,
    }
    if decision.failure_type is not None:
        context["failure_type"] = decision.failure_type
    if decision.waits_until is not None:
        context["waits_until"] = decision.waits_until
    if decision.overrides_used:
        context["overrides"] = list(decision.overrides_used)
        context["override_reason"] = "; ".join(
            given.reason for given in overrides if given.id in decision.overrides_used
        )
    return context


def check_failed_fields(
    given: GateInput, decision: Decision, *, retry_count: int
) -> dict[str, Any]:
    """Return the decision as described in a message about a failed check.

    `required_table` is the weakest dependency; `dependency_checks` lists all incomplete
    dependencies.
    """
    lacking = [a for a in given.assessments if a.table in decision.missing]
    weakest = min(lacking, key=lambda a: (a.completeness, a.table), default=None)
    return {
        "decision": decision.verdict.value,
        "status": decision.status.value,
        "reason": decision.reasons[0],
        "missing": list(decision.missing),
        "retry_count": retry_count,
        "required_table": None if weakest is None else weakest.table,
        "found_rows": None if weakest is None else found_of(weakest),
        "expected_rows": None if weakest is None else expected_of(weakest),
        "completeness_pct": decision.completeness,
        "quality_score": decision.quality,
        "dependency_checks": [
            dependency_check(a.table, expected_of(a), found_of(a), a.status) for a in lacking
        ],
    }


def found_of(one: Assessment) -> int | None:
    """Return the rows that a dependency has, or its days if it is historical."""
    return one.rows if one.rows is not None else one.days_present


def expected_of(one: Assessment) -> int | None:
    """Return the rows that a dependency should have, or its days if it is historical."""
    return one.expected if one.rows is not None else one.min_days


def dependency_check(
    table: str, required: int | None, found: int | None, status: str
) -> dict[str, Any]:
    """Return a dependency as messages show it."""
    return {
        "table": table, "required_rows": required, "found_rows": found, "status": str(status),
    }  # fmt: skip


def detail_of(snapshot: FlowSnapshot, phase: str, processor: str, **more: Any) -> str:
    """Return the fields of `flow_fields` and `more` as canonical JSON."""
    return json.dumps({**flow_fields(snapshot, phase, processor), **more}, sort_keys=True)


def gate_alert(
    snapshot: FlowSnapshot, ask: GateRequest, decision: Decision, level: AlertLevel
) -> NewAlert:
    """Build the alert about a gate's decision."""
    flow = snapshot.flow
    words = {
        Verdict.FAIL: "must not start",
        Verdict.WAIT: "is waiting",
        Verdict.PROCEED_DEGRADED: "starts degraded",
        Verdict.PROCEED: "starts",
    }[decision.verdict]
    where = f"{flow.pipeline} {flow.partition} {ask.phase}"
    queries = history_queries(snapshot, ask, decision)
    return NewAlert(
        rule=f"gate_{decision.verdict.lower()}",
        dedupe_key=gate_alert_key(flow.flow_id, ask.phase, ask.processor or "", decision.verdict),
        severity=SEVERITIES[level],
        customer_key=flow.customer_key,
        subject_kind="flow",
        subject=flow.flow_id,
        message=f"{where} {words}: {_reason_text(decision)}",
        detail={
            **flow_fields(snapshot, ask.phase, ask.processor or ""),
            "verdict": decision.verdict.value,
            "missing": list(decision.missing),
            "warnings": list(decision.warnings),
            **({"queries": queries} if queries else {}),
        },
    )


def gate_log_text(snapshot: FlowSnapshot, ask: GateRequest, decision: Decision) -> str:
    """Return the log line about a decision."""
    flow = snapshot.flow
    gate = ask.phase if ask.processor is None else f"{ask.phase}/{ask.processor}"
    return (
        f"gate {flow.pipeline} {flow.partition} {gate} ({flow.mode}, {flow.customer_id}, "
        f"{encode('flow', flow.flow_id)}): {decision.verdict}: {_reason_text(decision)}"
    )


def _reason_text(decision: Decision) -> str:
    """Return the reason of a decision and, if it starts degraded, what else is missing."""
    reason = decision.reasons[0]
    if decision.verdict is not Verdict.PROCEED_DEGRADED:
        return reason
    more = warnings_beside(reason, decision.warnings)
    return f"{reason} {'; '.join(more)}." if more else reason


def intervention_payload(
    found: Sequence[Assessment],
    decision: Decision,
    queries: Sequence[str] = (),
    message_id: str | None = None,
) -> str:
    """Return the part of the evidence that an intervention stores, as JSON."""
    short = [a for a in found if a.table in decision.missing]
    return json.dumps(
        {
            "dependencies": [
                {
                    "table": a.table,
                    "kind": str(a.kind),
                    "days_missing": list(a.days_missing),
                    "issues": list(a.issues),
                    "needed_by": list(a.needed_by),
                }
                for a in short
            ],
            "queries": list(queries),
            **({} if message_id is None else {"message_id": message_id}),
        },
        sort_keys=True,
    )


def history_queries(snapshot: FlowSnapshot, ask: GateRequest, decision: Decision) -> list[str]:
    """Return a query for each table whose history a decision found too short."""
    needs = [need.dependency for need in snapshot.planned.needs(ask.phase, ask.processor or "")]
    short = [
        n for n in needs if n.kind is DependencyKind.HISTORICAL and n.table in decision.missing
    ]
    queries = [history_query(need, snapshot.flow) for need in short]
    return [text for text in queries if text is not None]


def history_query(need: Dependency, flow: FlowRow) -> str | None:
    """Return a query, for operators, that lists the days of a table before the flow's partition."""
    if need.partition is None:
        return None
    conditions = [f"{need.partition} < {_quoted(flow.partition)}"]
    if need.customer is not None:
        conditions.append(f"{need.customer} = {_quoted(flow.customer_id)}")
    if need.where is not None:
        conditions.append(f"({need.where})")
    return (
        f"SELECT {need.partition}, count(*) FROM {need.table} WHERE {' AND '.join(conditions)} "  # noqa: S608 - shown, never run
        f"GROUP BY 1 ORDER BY 1 DESC LIMIT {need.lookback_days}"
    )


def _quoted(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def phase_alert(snapshot: FlowSnapshot, phase: PhasePlan, missing: Sequence[str]) -> NewAlert:
    """Build the alert about a phase that ended with processors missing."""
    flow = snapshot.flow
    return NewAlert(
        rule="phase_incomplete",
        dedupe_key=phase_alert_key(flow.flow_id, phase.name),
        severity="HIGH",
        customer_key=flow.customer_key,
        subject_kind="flow",
        subject=flow.flow_id,
        message=f"{flow.pipeline} {flow.partition} {phase.name} ended without {', '.join(missing)}",
        detail={**flow_fields(snapshot, phase.name, ""), "missing": list(missing)},
    )


def output_alert_key(flow_id: int, phase: str) -> str:
    """Return the dedupe key of the alert about missing outputs of a completed phase."""
    return f"output:{flow_id}:{phase}"


def output_alert(snapshot: FlowSnapshot, phase: PhasePlan, short: Sequence[Assessment]) -> NewAlert:
    """Build the alert about a completed phase with missing outputs."""
    flow = snapshot.flow
    fails = any(a.fail_if_missing for a in short)
    makers = sorted({name for a in short for name in a.needed_by})
    what = ", ".join(f"{a.table} ({'; '.join(a.issues)})" for a in short)
    verb = "failed" if fails else "completed"
    return NewAlert(
        rule="output_missing",
        dedupe_key=output_alert_key(flow.flow_id, phase.name),
        severity="HIGH" if fails else "MEDIUM",
        customer_key=flow.customer_key,
        subject_kind="flow",
        subject=flow.flow_id,
        message=f"{flow.pipeline} {flow.partition} {phase.name} {verb} without its output: "
        f"{what}, produced by {', '.join(makers)}",
        detail={
            **flow_fields(snapshot, phase.name, ""),
            "missing": [a.table for a in short],
            "processors": makers,
        },
    )


def breaker_alert_key(breaker_key: tuple[int, int, str], phase: str) -> str:
    """Return the dedupe key of the alert about an open breaker; flows of a partition share it."""
    customer, pipeline, partition = breaker_key
    return f"breaker:{customer}:{pipeline}:{partition}:{phase}"


def breaker_alert(snapshot: FlowSnapshot, phase: str, failures: int) -> NewAlert:
    """Build the alert about a breaker that opened."""
    flow = snapshot.flow
    return NewAlert(
        rule="breaker_open",
        dedupe_key=breaker_alert_key(flow.breaker_key, phase),
        severity="HIGH",
        customer_key=flow.customer_key,
        subject_kind="flow",
        subject=flow.flow_id,
        message=f"The breaker of {flow.pipeline} {flow.partition} {phase} opened after {failures} "
        "failures in a row: the phase starts nothing for an hour, then a single trial",
        detail={
            **flow_fields(snapshot, phase, ""),
            "values": {"failures": failures},
            "threshold": f"{FAILURES_MAX} failures in a row",
            "fix": f"penstock breakers reset {_target(flow)} {phase} --customer {flow.customer_id}",
        },
    )


def fallback_alert(snapshot: FlowSnapshot, ask: GateRequest, decision: Decision) -> NewAlert:
    """Build the alert about a phase that the cascade had not started by its fallback time."""
    flow = snapshot.flow
    what = "the scheduler started it" if decision.verdict.starts else "it cannot start either"
    fix = f"penstock explain {_target(flow)} --customer {flow.customer_id}"
    return NewAlert(
        rule="cascade_fallback",
        dedupe_key=f"fallback:{flow.flow_id}:{ask.phase}:{ask.processor or ''}",
        severity="MEDIUM" if decision.verdict.starts else "HIGH",
        customer_key=flow.customer_key,
        subject_kind="flow",
        subject=flow.flow_id,
        message=f"The cascade had not started {flow.pipeline} {flow.partition} {ask.phase} by its "
        f"fallback time; {what} ({decision.verdict}): {decision.reasons[0]}",
        detail={
            **flow_fields(snapshot, ask.phase, ask.processor or ""),
            "verdict": decision.verdict.value,
            "missing": list(decision.missing),
            "values": {"completeness": decision.completeness, "quality": decision.quality},
            "fix": fix,
        },
    )


def heal_alert(snapshot: FlowSnapshot, started: Sequence[str], ended: Sequence[str]) -> NewAlert:
    """Build the alert about an action of self-heal that the cascade missed."""
    flow = snapshot.flow
    done = [f"ended {', '.join(ended)}"] if ended else []
    done += [f"started {', '.join(started)}"] if started else []
    after = format_duration(snapshot.planned.mode.heals_after_us)
    return NewAlert(
        rule="self_heal",
        dedupe_key=f"self_heal:{flow.flow_id}",
        severity="INFO",
        customer_key=flow.customer_key,
        subject_kind="flow",
        subject=flow.flow_id,
        message=f"Self-heal {' and '.join(done)} of {flow.pipeline} {flow.partition} "
        f"({flow.mode}), which the cascade had not done for {after}",
        detail={
            **flow_fields(snapshot, "", ""),
            "values": {"started": list(started), "ended": list(ended)},
            "threshold": after,
            "fix": f"penstock explain {_target(flow)} --customer {flow.customer_id}",
        },
    )


def _target(flow: FlowRow) -> str:
    """Return pipeline and partition as command arguments."""
    return f"{flow.pipeline} {shlex.quote(flow.partition)}"


def flow_alert(snapshot: FlowSnapshot) -> NewAlert:
    """Build the alert about a flow that missed its deadline."""
    flow = snapshot.flow
    return NewAlert(
        rule="flow_failed",
        dedupe_key=f"flow:{flow.flow_id}",
        severity="HIGH",
        customer_key=flow.customer_key,
        subject_kind="flow",
        subject=flow.flow_id,
        message=f"{flow.pipeline} {flow.partition} ({flow.mode}) did not end by its deadline",
        detail=flow_fields(snapshot, "", ""),
    )
