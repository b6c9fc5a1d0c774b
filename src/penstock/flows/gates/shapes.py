"""JSON representations of gates, overrides and interventions, for the API and `--json`."""

from __future__ import annotations

from typing import Any

from penstock.core.clock import SECOND, iso
from penstock.core.formatting import id_or_none, iso_or_none, parsed
from penstock.core.ids import encode
from penstock.core.stored_json import loads
from penstock.flows.gates.client.gates import Backtest, DecisionComparison, GateCheck
from penstock.flows.gates.evidence import Assessment
from penstock.flows.gates.rows import DecisionRow, Intervention, OverrideRow
from penstock.flows.gates.verdict import Decision, GateInput


def decision_shape(row: DecisionRow) -> dict[str, Any]:
    """Return the JSON form of a recorded decision with its evidence."""
    given, decision = loads(GateInput, row.input), loads(Decision, row.decision)
    return {
        "decision_id": encode("dec", row.decision_id),
        "customer_id": row.customer_id,
        "pipeline_template": row.pipeline,
        "flow_id": encode("flow", row.flow_id),
        "partition": row.partition,
        "mode": row.mode,
        "decided_at": iso(row.at),
        "trigger_source": row.source,
        **_decided(given, decision),
    }


def check_shape(check: GateCheck) -> dict[str, Any]:
    """Return the JSON form of a gate check."""
    return {
        "flow_id": id_or_none("flow", check.flow_id),
        "partition": check.gate_input.partition,
        "mode": check.gate_input.mode.name,
        "looked_at": iso(check.gate_input.now),
        "is_asked": check.is_evaluable,
        **_decided(check.gate_input, check.decision),
    }


def _decided(given: GateInput, decision: Decision) -> dict[str, Any]:
    return {
        "phase": given.phase,
        "processor": given.processor,
        "verdict": decision.verdict.value,
        "status": decision.status.value,
        "rule": decision.rule,
        "completeness": decision.completeness,
        "quality": decision.quality,
        "reasons": list(decision.reasons),
        "warnings": list(decision.warnings),
        "missing": list(decision.missing),
        "alert": None if decision.alert is None else decision.alert.value,
        "recheck_at": iso_or_none(decision.recheck_at),
        "waits_until": iso_or_none(decision.waits_until),
        "overrides_used": list(decision.overrides_used),
        "needs_a_person": decision.intervention,
        "dependencies": [_dependency_shape(a) for a in given.assessments],
    }


def _dependency_shape(a: Assessment) -> dict[str, Any]:
    return {
        "table": a.table,
        "kind": str(a.kind),
        "status": str(a.status),
        "completeness": a.completeness,
        "quality": a.quality,
        "found_rows": a.rows,
        "required_rows": a.expected,
        "days_present": a.days_present,
        "days_required": a.min_days,
        "days_missing": list(a.days_missing),
        "age_seconds": None if a.age_us is None else a.age_us / SECOND,
        "issues": list(a.issues),
        "needed_by": list(a.needed_by),
        "fail_if_missing": a.fail_if_missing,
    }


def decision_comparison_shape(one: DecisionComparison) -> dict[str, Any]:
    """Return a recorded decision and the decision under other settings."""
    row = one.row
    return {
        "decision_id": encode("dec", row.decision_id),
        "flow_id": encode("flow", row.flow_id),
        "partition": row.partition,
        "mode": row.mode,
        "phase": row.phase,
        "processor": row.processor or None,
        "decided_at": iso(row.at),
        "then": one.recorded.verdict.value,
        "now": one.recomputed.verdict.value,
        "changed": one.has_changed,
        "completeness": one.recorded.completeness,
        "quality": one.recorded.quality,
        "reasons": list(one.recomputed.reasons),
    }


def backtest_shape(found: Backtest) -> dict[str, Any]:
    """Return the JSON form of a backtest."""
    return {
        "decisions": found.decisions,
        "changed": len(found.changed),
        "moves": [
            {"then": then, "now": now, "decisions": count}
            for (then, now), count in sorted(found.moves.items())
        ],
        "items": [decision_comparison_shape(one) for one in found.changed],
    }


def override_shape(row: OverrideRow) -> dict[str, Any]:
    """Return the JSON form of an override."""
    return {
        "override_id": encode("ovr", row.override_id),
        "customer_id": row.customer_id,
        "pipeline_template": row.pipeline,
        "partition": row.partition,
        "phase": row.phase,
        "processor": row.processor,
        "dependency": row.dependency,
        "reason": row.reason,
        "approved_by": row.approved_by,
        "approved_at": iso(row.approved_at),
        "expires_at": iso(row.expires_at),
        "revoked_at": iso_or_none(row.revoked_at),
        "revoked_by": row.revoked_by,
        "source": row.source,
        "notes": row.notes,
    }


def intervention_shape(item: Intervention) -> dict[str, Any]:
    """Return the JSON form of an intervention, with the command that resolves it."""
    name = encode("int", item.intervention_id)
    command = f"penstock interventions resolve {name} --resolution WHAT"
    return {
        "intervention_id": name,
        "customer_id": item.customer_id,
        "pipeline_template": item.pipeline,
        "flow_id": encode("flow", item.flow_id),
        "phase": item.phase,
        "processor": item.processor or None,
        "partition": item.partition,
        "missing": parsed(item.missing),
        "reason": item.reason,
        "tries": item.tries,
        "correlation_id": item.correlation_id,
        "status": item.status,
        "opened_at": iso(item.opened_at),
        "resolved_at": iso_or_none(item.resolved_at),
        "resolved_by": item.resolved_by,
        "resolution": item.resolution,
        "command": command if item.status == "open" else None,
    }
