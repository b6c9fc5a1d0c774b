"""Records of diagnosis from the facts and sentences of the rules."""

from __future__ import annotations

from typing import Any, cast

from penstock.core.clock import Micros
from penstock.core.formatting import id_or_none
from penstock.core.records.record import time, time_or_none
from penstock.flows.cascade import FlowState
from penstock.flows.explain.entity import EntityFlowFact, phase_trails, reached_last, summary
from penstock.flows.explain.explain import Explanation, PhaseExplanation
from penstock.flows.explain.facts import FlowFact, OpenFlowFact
from penstock.flows.explain.records import (
    CauseEntry,
    CauseTree,
    EntityFlow,
    EntityPhase,
    ExplainedPhase,
    FlowExplanation,
    FlowTrace,
    MissingTraceStep,
    OpenFlow,
    TraceStep,
)
from penstock.flows.explain.trace import Trace
from penstock.flows.explain.trace_outside import MissingStep, Step
from penstock.flows.explain.why import Cause, walk
from penstock.flows.records import FlowRef


def explanation_record(
    flow: FlowFact | None, explanation: Explanation, now: Micros
) -> FlowExplanation:
    """Convert an explanation to its public record."""
    return FlowExplanation(
        as_of=time(now),
        flow=None if flow is None else _flow_ref(flow),
        timezone="UTC" if flow is None else flow.timezone,
        title=explanation.title,
        summary=explanation.summary,
        phases=[_phase(one) for one in explanation.phases],
        actions=list(explanation.offers),
        still_open=[] if flow is None else [_open_flow(older) for older in flow.still_open],
    )


def _open_flow(older: OpenFlowFact) -> OpenFlow:
    return OpenFlow(
        flow_id=older.flow_id,
        mode=older.mode,
        generation=older.generation,
        created_at=time(older.opened_at),
        phase=older.phase,
        state=older.state,
    )


def _phase(one: PhaseExplanation) -> ExplainedPhase:
    return ExplainedPhase(
        phase=one.phase,
        state=one.state,
        word=one.word,
        count=one.count,
        at=time_or_none(one.at),
        headline=one.headline,
        sentences=list(one.sentences),
        until=time_or_none(one.until),
    )


def _flow_ref(flow: FlowFact) -> FlowRef:
    return FlowRef(
        flow_id=flow.flow_id,
        customer=flow.customer,
        pipeline=flow.pipeline,
        partition=flow.partition,
        mode=flow.mode,
        generation=flow.generation,
        state=FlowState(flow.state),
        correlation_id=flow.correlation_id,
        created_at=time(flow.opened_at),
        ended_at=time_or_none(flow.ended_at),
        deadline_at=time_or_none(flow.deadline_at),
    )


def cause_tree_record(cause: Cause, now: Micros, timezone: str) -> CauseTree:
    """Return a tree of causes as a flat list, parents first."""
    return CauseTree(
        as_of=time(now),
        timezone=timezone,
        earliest_at=time_or_none(cause.earliest_at),
        causes=[_cause(depth, one) for depth, one in walk(cause)],
    )


def _cause(depth: int, cause: Cause) -> CauseEntry:
    return CauseEntry(
        depth=depth,
        kind=cause.kind,
        text=cause.text,
        clears=cause.clears.value,
        since=time_or_none(cause.since),
        earliest_at=time_or_none(cause.earliest_at),
        until=time_or_none(cause.until_at),
        action=cause.offer,
    )


def trace_record(
    correlation_id: str, flows: tuple[FlowFact, ...], traced: Trace, now: Micros
) -> FlowTrace:
    """Convert a trace to its public record."""
    return FlowTrace(
        correlation_id=correlation_id,
        as_of=time(now),
        summary=traced.summary,
        reached_last=traced.reached_last,
        flows=[_flow_ref(flow) for flow in flows],
        steps=[_step(step) for step in traced.steps],
        missing=[_missing_step(one) for one in traced.absences],
    )


def _step(step: Step) -> TraceStep:
    return TraceStep(
        at=time(step.at),
        kind=step.kind,
        flow_id=step.flow_id or None,
        phase=step.phase,
        processor=step.processor,
        run_id=step.run_id,
        text=step.text,
    )


def _missing_step(one: MissingStep) -> MissingTraceStep:
    return MissingTraceStep(
        flow_id=one.flow_id,
        phase=one.phase,
        text=one.text,
        since=time_or_none(one.since),
        until=time_or_none(one.until),
    )


def entity_flow_record(fact: EntityFlowFact, entity: str) -> EntityFlow:
    """Return the record of a flow in which an entity changed."""
    trails = phase_trails(fact)
    return EntityFlow(
        flow_id=id_or_none("flow", fact.flow_id),
        pipeline=fact.pipeline,
        partition=fact.partition,
        mode=fact.mode,
        generation=fact.generation,
        state=fact.state,
        changed_at=time(max(one.at for one in fact.changes)),
        reached_last=reached_last(fact, trails),
        text=summary(fact, trails, entity),
        phases=[
            EntityPhase(
                phase=one.phase,
                state=one.state,
                outcome=cast("Any", one.outcome),
                processors=list(one.processors),
                text=one.text,
            )
            for one in trails
        ],
    )
