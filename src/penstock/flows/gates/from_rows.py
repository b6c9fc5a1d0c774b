"""Records of gates from the rows of the store and from the rules' decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from penstock.core.clock import Micros
from penstock.core.formatting import id_or_none, parsed
from penstock.core.ids import encode
from penstock.core.records.record import seconds, time, time_or_none
from penstock.core.stored_json import loads
from penstock.flows.gates.evidence import Assessment
from penstock.flows.gates.gate import decide, what_if
from penstock.flows.gates.override import Override
from penstock.flows.gates.records import (
    Backtest,
    GateCheck,
    GateDecision,
    GateDependency,
    GateOverride,
    Intervention,
    OverrideScope,
    ReevaluatedDecision,
    VerdictChange,
)
from penstock.flows.gates.rows import DecisionRow, InterventionRow, OverrideRow
from penstock.flows.gates.verdict import Decision, GateInput
from penstock.pipelines.mode import ModeOptions


def decision_record(row: DecisionRow) -> GateDecision:
    """Return the record of a recorded decision with its evidence."""
    given, decision = loads(GateInput, row.input), loads(Decision, row.decision)
    return GateDecision(
        decision_id=encode("dec", row.decision_id),
        customer=row.customer_id,
        pipeline=row.pipeline,
        flow_id=id_or_none("flow", row.flow_id if row.flow_id > 0 else None),
        run_id=id_or_none("run", -row.flow_id if row.flow_id < 0 else None),
        partition=row.partition,
        mode=row.mode,
        decided_at=time(row.at),
        trigger_source=row.source,
        **_decided(given, decision),
    )


def check_record(
    given: GateInput, decision: Decision, flow_id: int | None, *, is_evaluable: bool
) -> GateCheck:
    """Return the record of a gate check."""
    return GateCheck(
        flow_id=id_or_none("flow", flow_id),
        partition=given.partition,
        mode=given.mode.name,
        probed_at=time(given.now),
        is_evaluable=is_evaluable,
        **_decided(given, decision),
    )


def _decided(given: GateInput, decision: Decision) -> dict[str, Any]:
    return {
        "phase": given.phase,
        "processor": given.processor,
        "verdict": decision.verdict,
        "status": decision.status,
        "acknowledgement": decision.acknowledgement,
        "rule": decision.rule,
        "completeness": decision.completeness,
        "quality": decision.quality,
        "reasons": list(decision.reasons),
        "warnings": list(decision.warnings),
        "missing": list(decision.missing),
        "alert": decision.alert,
        "recheck_at": time_or_none(decision.recheck_at),
        "waits_until": time_or_none(decision.waits_until),
        "overrides_used": list(decision.overrides_used),
        "needs_a_person": decision.intervention,
        "dependencies": [_dependency(one) for one in given.assessments],
    }


def _dependency(one: Assessment) -> GateDependency:
    return GateDependency(
        table=one.table,
        kind=one.kind,
        status=one.status,
        completeness=one.completeness,
        quality=one.quality,
        found_rows=one.rows,
        required_rows=one.expected,
        days_present=one.days_present,
        days_required=one.min_days,
        days_missing=list(one.days_missing),
        age=None if one.age_us is None else seconds(one.age_us),
        issues=list(one.issues),
        needed_by=list(one.needed_by),
        fail_if_missing=one.fail_if_missing,
        probe_time=None if one.probed_us is None else seconds(one.probed_us),
        scanned_bytes=one.scanned_bytes,
    )


def reevaluated_record(
    row: DecisionRow, changes: ModeOptions, override: OverrideScope | None = None
) -> ReevaluatedDecision:
    """Return a recorded decision with the decision under other settings, or with an override."""
    recorded, given = loads(Decision, row.decision), loads(GateInput, row.input)
    recomputed = what_if(given, changes, _tried(row, given, override))
    return ReevaluatedDecision(
        decision_id=encode("dec", row.decision_id),
        flow_id=id_or_none("flow", row.flow_id if row.flow_id > 0 else None),
        run_id=id_or_none("run", -row.flow_id if row.flow_id < 0 else None),
        partition=row.partition,
        mode=row.mode,
        phase=row.phase,
        processor=row.processor or None,
        decided_at=time(row.at),
        then=recorded.verdict,
        now=recomputed.verdict,
        is_changed=recorded.verdict is not recomputed.verdict,
        completeness=recorded.completeness,
        quality=recorded.quality,
        reasons=list(recomputed.reasons),
    )


def _tried(row: DecisionRow, given: GateInput, scope: OverrideScope | None) -> Override | None:
    """Return an override that is in force at the time of a recorded decision."""
    if scope is None:
        return None
    return Override(
        id="tried",
        customer=row.customer_id,
        pipeline=row.pipeline,
        partition=row.partition,
        reason="what if",
        approved_by="you",
        approved_at=given.now,
        expires_at=given.now + 1,
        phase=scope.phase,
        processor=scope.processor,
        dependency=scope.dependency,
    )


def has_diverged(row: DecisionRow) -> bool:
    """Return whether the current rules decide the recorded input differently."""
    return decide(loads(GateInput, row.input)).verdict is not loads(Decision, row.decision).verdict


def backtest_record(
    tried: Sequence[ReevaluatedDecision],
    *,
    within: tuple[Micros, Micros],
    left_out: int,
    diverged: int,
) -> Backtest:
    """Return the record of a backtest, with the number of decisions by pair of verdicts."""
    moves = Counter((one.then, one.now) for one in tried)
    changed = [one for one in tried if one.is_changed]
    return Backtest(
        decisions=len(tried),
        left_out=left_out,
        since=time(within[0]),
        until=time(within[1]),
        modes=dict(sorted(Counter(one.mode for one in tried).items())),
        diverged=diverged,
        changed=len(changed),
        moves=[
            VerdictChange(then=then, now=now, decisions=count)
            for (then, now), count in sorted(moves.items())
        ],
        items=changed,
    )


def override_record(row: OverrideRow) -> GateOverride:
    """Convert an override row to its public record."""
    return GateOverride(
        override_id=encode("ovr", row.override_id),
        customer=row.customer_id,
        pipeline=row.pipeline,
        partition=row.partition,
        phase=row.phase,
        processor=row.processor,
        dependency=row.dependency,
        reason=row.reason,
        approved_by=row.approved_by,
        approved_at=time(row.approved_at),
        expires_at=time(row.expires_at),
        revoked_at=time_or_none(row.revoked_at),
        revoked_by=row.revoked_by,
        source=row.source,
        notes=row.notes,
    )


def intervention_record(row: InterventionRow) -> Intervention:
    """Return the record of an intervention, with the command that resolves it."""
    name = encode("int", row.intervention_id)
    is_open = row.status == "open"
    return Intervention(
        intervention_id=name,
        customer=row.customer_id,
        pipeline=row.pipeline,
        flow_id=id_or_none("flow", row.flow_id if row.flow_id > 0 else None),
        run_id=id_or_none("run", -row.flow_id if row.flow_id < 0 else None),
        phase=row.phase,
        processor=row.processor or None,
        partition=row.partition,
        missing=parsed(row.missing),
        reason=row.reason,
        tries=row.tries,
        correlation_id=row.correlation_id,
        payload=None if row.payload is None else parsed(row.payload),
        status="open" if is_open else "resolved",
        opened_at=time(row.opened_at),
        resolved_at=time_or_none(row.resolved_at),
        resolved_by=row.resolved_by,
        resolution=row.resolution,
        command=f"penstock interventions resolve {name} --resolution WHAT" if is_open else None,
        action="interventions.resolve" if is_open else None,
        arguments={"intervention_id": name} if is_open else {},
    )
