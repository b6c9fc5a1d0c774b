"""Bodies of the messages that flows publish: completions, triggers and changes of status.

Pure functions over a snapshot. `ChangeSet` adds the fields that identify the flow, and `write`
stores the messages with the change that they announce.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from penstock.core.clock import iso
from penstock.core.formatting import id_or_none
from penstock.flows.advance.messages import dependency_check
from penstock.flows.advance.snapshot import FlowSnapshot
from penstock.flows.cascade import GateRequest
from penstock.flows.rows import CompletionRow
from penstock.pipelines.plan import PhasePlan

Scores: TypeAlias = tuple[float | None, float | None]
"""Completeness in percent, and quality."""
CASCADE_SOURCE = "orchestrator"
"""Trigger source of a start that a preceding phase caused."""


def completion_body(snapshot: FlowSnapshot, seen: CompletionRow) -> dict[str, Any]:
    """Return the completion of a processor, with what its gate had found."""
    flow, plan = snapshot.flow, snapshot.planned.plan
    named = seen.phase in [phase.name for phase in plan.phases]
    after = plan.phase(seen.phase).after if named else ()
    starts = seen.phase in (flow.start_phase or "").split(",") or not after
    row = snapshot.rows.get((seen.phase, seen.processor)) or snapshot.rows.get((seen.phase, ""))
    is_degraded = row is not None and (row.is_degraded or bool(row.gate_context.get("missing")))
    return {
        "processor_name": seen.processor,
        "status": seen.status,
        "execution_id": seen.execution_id or id_or_none("run", seen.run_id),
        "processing_mode": flow.mode,
        "trigger_source": flow.trigger_source if starts else CASCADE_SOURCE,
        "completeness": {
            "total_expected": None,  # not stored with a completion: unknown, not 0 or 100 %
            "total_processed": seen.records,
            "completeness_pct": None,
            "quality_score": seen.quality,
        },
        "dependencies_met": not is_degraded,
        "dependency_checks": _checks(None if row is None else row.evidence),
        "entities_changed": {} if seen.entities is None else json.loads(seen.entities),
        "metadata": {},
    }


def trigger_body(
    snapshot: FlowSnapshot, ask: GateRequest, verdict: str, source: str, names: Sequence[str]
) -> dict[str, Any]:
    """Return the start of a phase or of one processor, with what the phases before changed."""
    context = snapshot.row(ask.phase, ask.processor or "").gate_context
    before = snapshot.completions_of(snapshot.planned.plan.phase(ask.phase).after)
    return {
        "verdict": verdict,
        "missing": context.get("missing", []),
        "trigger_source": source,
        "processors": list(names),
        "entities_changed": _entities_changed(before),
    }


def _entities_changed(completions: Sequence[CompletionRow]) -> dict[str, list[Any]]:
    """Return the entities that several completions changed, each once, by kind."""
    found: dict[str, dict[Any, None]] = {}
    for seen in completions:
        given = {} if seen.entities is None else json.loads(seen.entities)
        for kind, ids in given.items() if isinstance(given, dict) else ():
            found.setdefault(kind, {}).update(dict.fromkeys(ids if isinstance(ids, list) else []))
    return {kind: list(ids) for kind, ids in found.items()}


def phase_scores(snapshot: FlowSnapshot, phases: Sequence[PhasePlan]) -> tuple[float, float | None]:
    """Return how many of the phases' processors completed, in percent, and their mean quality."""
    expected = {(phase.name, name) for phase in phases for name in phase.expected}
    seen = [s for s in snapshot.completions if (s.phase, s.processor) in expected]
    done = [s for s in seen if s.status != "failed"]
    quality = [s.quality for s in seen if s.quality is not None]
    share = len(done) * 100 / len(expected) if expected else 100.0
    return share, sum(quality) / len(quality) if quality else None


def status_body(snapshot: FlowSnapshot, status: str, scores: Scores) -> dict[str, Any]:
    """Return the status of a flow or phase with its completeness in percent and its quality."""
    return {
        "status": status,
        "completeness_pct": scores[0],
        "quality_score": scores[1],
        "timestamp": iso(snapshot.now),
    }


def _checks(evidence: str | None) -> list[dict[str, Any]]:
    """Return the dependencies that a gate saw, from its stored evidence by dependency key."""
    known: dict[str, Any] = {} if evidence is None else json.loads(evidence)
    return [
        dependency_check(
            key.partition(":")[2] or key,
            expected,
            found if found is not None else days,
            status,
        )
        for key, (found, expected, days, status) in known.items()
    ]
