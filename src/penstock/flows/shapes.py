"""JSON representations of flows, with public ids, ISO times and plain JSON.

The API and the command line's `--json` share them. This module covers flows, phases, explanations,
proofs and traces; `flows.gates.shapes` covers gates, overrides and interventions.
"""

from __future__ import annotations

import json
from typing import Any

from penstock.audit.shapes import journal_shape
from penstock.core.clock import iso
from penstock.core.formatting import id_or_none, iso_or_none, parsed
from penstock.core.ids import encode
from penstock.flows.client.flows import CompletionReceipt, FlowDetail, TriggerResult
from penstock.flows.client.trigger_preview import FlowPreview
from penstock.flows.explain.client import CauseTree, FlowExplanation, TracedCause
from penstock.flows.explain.commands import Suggestion
from penstock.flows.explain.explain import PhaseExplanation
from penstock.flows.explain.facts import FlowFact, OpenFlowFact
from penstock.flows.explain.trace import MissingStep, Step
from penstock.flows.explain.why import Cause, walk
from penstock.flows.gates.rows import Trigger
from penstock.flows.gates.shapes import decision_shape
from penstock.flows.rows import CompletionRow, Flow, PhaseRow


def flow_shape(flow: Flow) -> dict[str, Any]:
    """Return the JSON form of a flow."""
    return {
        "flow_id": encode("flow", flow.flow_id),
        "customer_id": flow.customer_id,
        "pipeline_template": flow.pipeline,
        "partition": flow.partition,
        "mode": flow.mode,
        "generation": flow.generation,
        "state": flow.state,
        "is_degraded": flow.is_degraded,
        "missing": json.loads(flow.missing),
        "correlation_id": flow.correlation_id,
        "trigger_source": flow.trigger_source,
        "opened_by": flow.opened_by,
        "config_id": encode("cfg", flow.config_id) if flow.config_id else None,
        "parent_flow_id": id_or_none("flow", flow.parent_flow_id),
        "start_phase": flow.start_phase,
        "created_at": iso(flow.created_at),
        "ended_at": iso_or_none(flow.ended_at),
        "deadline_at": iso_or_none(flow.deadline_at),
    }


def flow_detail_shape(detail: FlowDetail) -> dict[str, Any]:
    """Return a flow with its phases, completions, triggers, decisions and journal."""
    return {
        "flow": flow_shape(detail.flow),
        "phases": [_phase_shape(row) for row in detail.phases],
        "completions": [_completion_shape(row) for row in detail.completions],
        "triggers": [_trigger_shape(row) for row in detail.triggers],
        "decisions": [decision_shape(row) for row in detail.decisions],
        "journal": [journal_shape(row) for row in detail.journal],
    }


def _phase_shape(row: PhaseRow) -> dict[str, Any]:
    context = row.gate_context
    return {
        "phase": row.phase,
        "processor": row.processor or None,
        "state": row.state,
        "since": iso(row.since_at),
        "started_at": iso_or_none(row.started_at),
        "ended_at": iso_or_none(row.ended_at),
        "next_look_at": iso_or_none(row.probe_at),
        "waiting_since": iso_or_none(row.waiting_since),
        "tries": row.tries,
        "is_degraded": row.is_degraded,
        "verdict": context.get("verdict"),
        "missing": context.get("missing", []),
        "warnings": context.get("warnings", []),
    }


def _completion_shape(row: CompletionRow) -> dict[str, Any]:
    return {
        "phase": row.phase,
        "processor": row.processor,
        "status": row.status,
        "at": iso(row.at),
        "run_id": id_or_none("run", row.run_id),
        "execution_id": row.execution_id,
        "records_processed": row.records,
        "quality_score": row.quality,
        "entities_changed": parsed(row.entities),
    }


def _trigger_shape(row: Trigger) -> dict[str, Any]:
    return {
        "phase": row.phase,
        "processor": row.processor or None,
        "at": iso(row.at),
        "verdict": row.verdict,
        "trigger_source": row.source,
        "is_observed": row.is_observed,
        "runs": row.runs,
    }


def opened_shape(opened: TriggerResult) -> dict[str, Any]:
    """Return the JSON form of a trigger's result."""
    return {
        "flow": flow_shape(opened.flow),
        "is_new": opened.is_new,
        "run_ids": [encode("run", run_id) for run_id in opened.run_ids],
    }


def preview_shape(preview: FlowPreview) -> dict[str, Any]:
    """Return the JSON form of a trigger's preview."""
    return {
        "customer_id": preview.customer,
        "pipeline_template": preview.pipeline,
        "partition": preview.partition,
        "mode": preview.mode,
        "is_new": preview.is_new,
        "generation": preview.generation,
        "flow_id": id_or_none("flow", preview.flow_id),
        "text": preview.text,
        "phases": [
            {"phase": one.phase, "fate": one.fate, "processors": list(one.processors)}
            for one in preview.phases
        ],
    }


def completion_receipt_shape(reception: CompletionReceipt) -> dict[str, Any]:
    """Return the JSON form of a completion report's outcome."""
    if reception.dead_letter_id is not None:
        outcome = "dead"
    elif not reception.is_new:
        outcome = "known"
    else:
        outcome = "opened" if reception.opened else "taken"
    return {
        "outcome": outcome,
        "flow_id": id_or_none("flow", reception.flow_id),
        "dead_letter_id": id_or_none("dl", reception.dead_letter_id),
    }


def flow_explanation_shape(explained: FlowExplanation) -> dict[str, Any]:
    """Return the JSON form of a flow's explanation."""
    explanation, flow = explained.explanation, explained.flow
    return {
        "as_of": iso(explained.now),
        "flow": None if flow is None else _named_shape(flow),
        "timezone": "UTC" if flow is None else flow.timezone,
        "title": explanation.title,
        "summary": explanation.summary,
        "phases": [_story_shape(story) for story in explanation.phases],
        "actions": [_offer_shape(offer) for offer in explanation.offers],
        "still_open": [] if flow is None else [_open_shape(older) for older in flow.still_open],
    }


def _open_shape(older: OpenFlowFact) -> dict[str, Any]:
    return {
        "flow_id": older.flow_id,
        "mode": older.mode,
        "generation": older.generation,
        "created_at": iso(older.opened_at),
        "phase": older.phase,
        "state": older.state,
    }


def _story_shape(story: PhaseExplanation) -> dict[str, Any]:
    return {
        "phase": story.phase,
        "state": story.state,
        "word": story.word,
        "count": story.count,
        "at": iso_or_none(story.at),
        "headline": story.headline,
        "sentences": list(story.sentences),
        "until": iso_or_none(story.until),
    }


def _offer_shape(offer: Suggestion) -> dict[str, Any]:
    return {"command": offer.command, "does": offer.does}


def _named_shape(flow: FlowFact) -> dict[str, Any]:
    return {
        "flow_id": flow.flow_id,
        "customer_id": flow.customer,
        "pipeline_template": flow.pipeline,
        "partition": flow.partition,
        "mode": flow.mode,
        "generation": flow.generation,
        "state": flow.state,
        "correlation_id": flow.correlation_id,
        "created_at": iso(flow.opened_at),
        "ended_at": iso_or_none(flow.ended_at),
        "deadline_at": iso_or_none(flow.deadline_at),
    }


def cause_tree_shape(proof: CauseTree) -> dict[str, Any]:
    """Return a tree of causes as a flat list, parents first."""
    return {
        "as_of": iso(proof.now),
        "timezone": proof.timezone,
        "earliest_at": iso_or_none(proof.cause.earliest_at),
        "causes": [_cause_shape(depth, cause) for depth, cause in walk(proof.cause)],
    }


def _cause_shape(depth: int, cause: Cause) -> dict[str, Any]:
    return {
        "depth": depth,
        "kind": cause.kind,
        "text": cause.text,
        "clears": cause.clears.value,
        "since": iso_or_none(cause.since),
        "earliest_at": iso_or_none(cause.earliest_at),
        "until": iso_or_none(cause.until_at),
        "action": None if cause.offer is None else _offer_shape(cause.offer),
    }


def trace_shape(found: TracedCause) -> dict[str, Any]:
    """Return the JSON form of a trace."""
    return {
        "correlation_id": found.correlation_id,
        "as_of": iso(found.now),
        "flows": [_named_shape(flow) for flow in found.flows],
        "steps": [_step_shape(step) for step in found.traced.steps],
        "never": [_absence_shape(absence) for absence in found.traced.absences],
    }


def _step_shape(step: Step) -> dict[str, Any]:
    return {
        "at": iso(step.at),
        "kind": step.kind,
        "flow_id": step.flow_id or None,
        "phase": step.phase,
        "processor": step.processor,
        "run_id": step.run_id,
        "text": step.text,
    }


def _absence_shape(absence: MissingStep) -> dict[str, Any]:
    return {
        "flow_id": absence.flow_id,
        "phase": absence.phase,
        "text": absence.text,
        "since": iso_or_none(absence.since),
        "until": iso_or_none(absence.until),
    }
