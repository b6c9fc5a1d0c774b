"""Conversion of stored decisions, interventions and executions to facts.

`flows.explain.store.load` is the only caller.
"""

from __future__ import annotations

import json
from typing import Any

from penstock.core.ids import encode
from penstock.core.stored_json import loads
from penstock.flows.explain.facts import (
    DecisionFact,
    EvidenceFact,
    InterventionFact,
    RunFact,
    RunGateFact,
)
from penstock.flows.explain.store.reads import EndedExecution
from penstock.flows.gates.rows import DecisionRow, InterventionRow
from penstock.flows.gates.store.run_gates import RunGateRow
from penstock.flows.gates.verdict import Decision, GateInput
from penstock.runs.attempt_result import error_class

STATES = {"completed": "COMPLETED", "failed": "FAILED", "skipped": "CANCELLED"}


def decision_fact(row: DecisionRow) -> DecisionFact:
    """Return the facts about a recorded decision."""
    given, decision = loads(GateInput, row.input), loads(Decision, row.decision)
    return DecisionFact(
        decision_id=encode("dec", row.decision_id),
        at=row.at,
        verdict=row.verdict,
        status=row.status,
        completeness=row.completeness,
        quality=row.quality,
        reasons=decision.reasons,
        warnings=decision.warnings,
        missing=decision.missing,
        recheck_at=decision.recheck_at,
        waits_until=decision.waits_until,
        source=row.source,
        overrides_used=decision.overrides_used,
        evidence=tuple(
            EvidenceFact(
                table=a.table,
                kind=str(a.kind),
                status=str(a.status),
                issues=a.issues,
                rows=a.rows,
                expected=a.expected,
                days_present=a.days_present,
                days_needed=a.min_days,
                days_missing=a.days_missing,
                needed_by=a.needed_by,
                error=a.error,
            )
            for a in given.assessments
        ),
    )


def intervention_fact(item: InterventionRow) -> InterventionFact:
    """Return the facts about an open intervention."""
    return InterventionFact(
        intervention_id=encode("int", item.intervention_id),
        phase=item.phase,
        processor=item.processor,
        missing=tuple(json.loads(item.missing)),
        reason=item.reason,
        tries=item.tries,
        opened_at=item.opened_at,
    )


def run_gate_fact(gate: RunGateRow) -> RunGateFact:
    """Return the facts about the gate of a single run."""
    return RunGateFact(
        verdict=gate.verdict,
        reason=gate.reason or "",
        since=gate.waiting_since or gate.opened_at,
        probe_at=gate.probe_at,
        until_at=gate.deadline_at,
        pipeline=gate.pipeline,
        partition=gate.partition,
        customer=gate.customer_id,
        needs_a_person=gate.verdict == "FAIL",
    )


def ended_fact(row: EndedExecution) -> RunFact:
    """Return the facts about an ended execution."""
    return RunFact(
        run_id=encode("run", row.run_id),
        phase=row.phase,
        processor=row.processor,
        state=STATES[row.status],
        attempt=row.retry_count + 1,
        since=row.ended_at,
        due_at=row.ended_at,
        started_at=row.started_at,
        ended_at=row.ended_at,
        error_type=row.error_type,
        error=error_message(row.error),
    )


def error_message(details: str | None) -> str | None:
    """Return class and message of JSON error details, or the details unchanged.

    The message alone may say too little: that of `KeyError("price")` is 'price'.
    """
    if details is None:
        return None
    try:
        found: Any = json.loads(details)
    except ValueError:
        return details
    if isinstance(found, dict) and "message" in found:
        return ": ".join(filter(None, [error_class(found), str(found["message"])]))
    return details
