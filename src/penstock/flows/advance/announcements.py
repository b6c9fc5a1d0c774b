"""Bodies of the messages that flows publish: completions, triggers and changes of status.

Pure functions over a snapshot. `ChangeSet` adds the fields that identify the flow, and `write`
stores the messages with the change that they announce.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

from penstock.core.clock import iso
from penstock.core.formatting import id_or_none
from penstock.core.ids import encode
from penstock.entities.report import LISTED_MAX, NOT_REPORTED, REASON_MAX, merged
from penstock.entities.rows import ReportedEntities
from penstock.flows.advance.messages import dependency_check
from penstock.flows.advance.snapshot import FlowSnapshot
from penstock.flows.cascade import GateRequest
from penstock.flows.rows import CompletionRow, SingleRunCompletion, legacy_reported
from penstock.pipelines.plan import PhasePlan

Scores: TypeAlias = tuple[float | None, float | None]
"""Completeness in percent, and quality."""
CASCADE_SOURCE = "orchestrator"
"""Trigger source of a start that a preceding phase caused."""
FALLBACK_SOURCE = "fallback"
"""Trigger source of a phase that was started at its fallback time."""
SELF_HEAL_SOURCE = "self_heal"
"""Trigger source of a start that self-heal made because the cascade missed it."""


def completion_body(snapshot: FlowSnapshot, seen: CompletionRow) -> dict[str, Any]:
    """Return the completion of a processor, with the result of its gate."""
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
            "total_expected": seen.total_expected,
            "total_processed": seen.records,
            "completeness_pct": seen.completeness_pct,
            "quality_score": seen.quality,
        },
        "dependencies_met": not is_degraded,
        "dependency_checks": _checks(None if row is None else row.evidence),
        **_entities_changed(snapshot, [seen]),
        "metadata": {},
    }


def run_completion_message(seen: SingleRunCompletion) -> dict[str, Any]:
    """Return the completion of a run without a flow, with the fields of one in a flow."""
    return {
        "flow_id": None,
        "customer_id": seen.customer_id,
        "pipeline": seen.pipeline,
        "partition": seen.partition,
        "mode": seen.mode,
        "generation": None,
        "correlation_id": seen.correlation_id or encode("run", seen.first_run_id),
        "phase": seen.phase,
        "processor_name": seen.processor,
        "status": seen.status,
        "execution_id": encode("run", seen.run_id),
        "processing_mode": seen.mode,
        "trigger_source": seen.trigger_source,
        "completeness": {
            "total_expected": seen.total_expected,
            "total_processed": seen.records,
            "completeness_pct": seen.completeness_pct,
            "quality_score": seen.quality,
        },
        "dependencies_met": True,
        "dependency_checks": [],
        "entities_changed": None,
        "entities_total": None,
        "everything_changed": None,
        "metadata": {},
    }


def trigger_body(
    snapshot: FlowSnapshot, ask: GateRequest, verdict: str, source: str, names: Sequence[str]
) -> dict[str, Any]:
    """Return the start of a phase or of one processor, with the entities that earlier phases
    changed.
    """
    context = snapshot.row(ask.phase, ask.processor or "").gate_context
    before = snapshot.completions_of(snapshot.planned.plan.phase(ask.phase).after)
    return {
        "verdict": verdict,
        "missing": context.get("missing", []),
        "trigger_source": source,
        "processors": list(names),
        **_entities_changed(snapshot, before),
    }


def _entities_changed(
    snapshot: FlowSnapshot, completions: Sequence[CompletionRow]
) -> dict[str, Any]:
    """Return the entities that completions changed, each once, by kind.

    More than 1,000 are not listed: `entities_total` has their number, and the flow has the ids. If
    a processor did not report its changes, the result is null.
    """
    found = [reported_by(snapshot, seen) for seen in completions]
    known = [one for one in found if one is not None]
    ids = merged(one.ids for one in known if one.ids is not None)
    total: Counter[str] = Counter()
    for one in known:
        total.update(one.counts)
    is_short = all(one.ids is not None for one in known)
    is_short = is_short and sum(len(listed) for listed in ids.values()) <= LISTED_MAX
    if is_short:
        total = Counter({kind: len(listed) for kind, listed in ids.items()})
    unknown = [
        f"{seen.phase}.{seen.processor} {NOT_REPORTED if one is None else one.unknown}"
        for seen, one in zip(completions, found, strict=True)
        if (one is None and len(completions) > 1 and known) or (one is not None and one.unknown)
    ]
    return {
        "entities_changed": ids if is_short and known else None,
        "entities_total": dict(total) if known else None,
        "everything_changed": "; ".join(unknown)[:REASON_MAX] or None,
    }


def reported_by(snapshot: FlowSnapshot, seen: CompletionRow) -> ReportedEntities | None:
    """Return the data reported with a completion."""
    return snapshot.reported.get(seen.reported_by) or legacy_reported(seen)


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
    """Return the dependencies that a gate evaluated, from its stored evidence by dependency key."""
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
