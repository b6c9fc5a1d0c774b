"""Suggested commands for a flow in its current state, the most useful first.

Pure, over facts. A command that would be rejected is never suggested, and a flow without problems
gets no suggestions. `flows.explain.explain` lists them below the explanation.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.core.clock import Micros
from penstock.flows.explain import commands
from penstock.flows.explain.facts import (
    DecisionFact,
    FlowFact,
    PhaseFact,
    ProcessorFact,
    ProducerFact,
)
from penstock.flows.explain.records import Suggestion
from penstock.flows.gates.evidence import date_ranges

SUGGESTIONS_MAX = 8
DAYS_MAX = 2
BACKFILL = "backfill"


def suggestions_of(flow: FlowFact, now: Micros) -> tuple[Suggestion, ...]:
    """Return the suggested commands without duplicates, at most OFFERS_MAX."""
    if flow.ended_at is not None:
        found = list(_ended(flow))
    else:
        found = [offer for phase in flow.phases for offer in _phase(flow, phase)]
        found += _late(flow, now)
        found += [commands.cancel(flow)] if flow.newer_generation is not None else []
    found += [commands.explain(older) for older in flow.still_open]
    known: dict[str, Suggestion] = {}
    for offer in found:
        known.setdefault(offer.command, offer)
    return tuple(list(known.values())[:SUGGESTIONS_MAX])


def _phase(flow: FlowFact, phase: PhaseFact) -> Iterator[Suggestion]:
    if phase.state in ("WAITING", "BLOCKED"):
        yield from _gate(flow, phase)
    if phase.state in ("IN_PROGRESS", "FAILED"):
        for processor in phase.processors:
            yield from _processor(flow, phase, processor)
        for gate in phase.gates:
            if gate.decision is not None and gate.state in ("WAITING", "BLOCKED"):
                yield from _decided(flow, phase, gate.decision)


def _gate(flow: FlowFact, phase: PhaseFact) -> Iterator[Suggestion]:
    gates = [gate for gate in (phase.gate, *phase.gates) if gate is not None]
    for gate in gates:
        if gate.decision is not None:
            yield from _decided(flow, phase, gate.decision)
    if phase.intervention is not None:
        yield commands.resolve(phase.intervention)
    for name in phase.after:
        for processor in flow.phase(name).processors:
            yield from _processor(flow, flow.phase(name), processor)


def _decided(flow: FlowFact, phase: PhaseFact, decision: DecisionFact) -> Iterator[Suggestion]:
    for table in decision.missing:
        for made in flow.producers_of(table)[:1]:
            yield from _producer(flow, made)
    for item in decision.evidence:
        days = [part for text in date_ranges(item.days_missing) for part in text.split(" to ")[:1]]
        # A backfill lacks the days before it, so its earliest day needs an override.
        if decision.status == "missing_historical" and flow.mode != BACKFILL:
            for day in days[:DAYS_MAX]:
                yield commands.trigger(
                    flow.pipeline,
                    day,
                    flow.customer,
                    mode=BACKFILL,
                    config_id=flow.config,
                    does=f"backfill {day}, which is missing in {item.table}",
                )
    if decision.status not in ("missing_required", "cycle"):
        tables = {item.table for item in decision.evidence if item.kind != "optional"}
        for name in decision.missing:
            if name in tables:
                yield commands.override(flow, phase.name, name)
    if decision.evidence:
        yield commands.check(flow, phase.name)
        if decision.verdict == "FAIL" and phase.intervention is None:
            yield commands.recheck(flow, phase.name)


def _producer(flow: FlowFact, made: ProducerFact) -> Iterator[Suggestion]:
    """Suggest running the producer of a missing table again.

    `_decided` passes the first of `producers_of`: the one whose records are most likely missing.
    """
    if made.pipeline != flow.pipeline:
        yield commands.trigger(
            made.pipeline,
            flow.partition,
            flow.customer,
            phase=made.phase,
            does=f"run {made.processor} of {made.pipeline}, which produces {made.table}, again",
        )
        return
    for phase in flow.phases:
        for processor in phase.processors:
            if (phase.name, processor.name) == (made.phase, made.processor):
                if processor.is_done:
                    yield commands.produce_again(flow, made)
                else:
                    yield from _processor(flow, phase, processor)


def _processor(flow: FlowFact, phase: PhaseFact, processor: ProcessorFact) -> Iterator[Suggestion]:
    if processor.items is not None and processor.items.failed:
        yield commands.retry_items(flow, processor.name)
    if processor.is_done:
        return
    live = processor.live
    if live is None:
        if processor.status == "failed" and processor.failures:
            yield commands.retry(processor.failures[-1])
            yield commands.show_run(processor.failures[-1])
        elif processor.is_external and phase.state == "IN_PROGRESS":
            yield commands.complete(flow, phase.name, processor.name)
        return
    if live.pending_reason == "paused":
        for pause in live.pauses:
            yield commands.resume(pause)
    elif live.lacks_scheduler:
        yield commands.scheduler()
    elif live.is_unclaimed or (
        live.pending_reason == "ready" and live.workers == 0 and not live.is_external
    ):
        yield commands.worker(live.pool)
    elif live.is_external and live.pending_reason == "ready":
        yield commands.complete(flow, phase.name, processor.name)
    if processor.failures:
        yield commands.show_run(live)


def _late(flow: FlowFact, now: Micros) -> Iterator[Suggestion]:
    """Suggest `why` if a phase of an open flow has problems, and starting a phase manually if the
    flow does not get there by itself.

    A new generation supersedes this flow, so it is not suggested while a processor merely retries.
    """
    is_stuck = any(_is_stuck(phase) for phase in flow.phases)
    if is_stuck and now >= flow.opened_at:
        held = [one for one in flow.phases if one.state in ("WAITING", "BLOCKED")]
        pending = [one for one in flow.phases if one.state == "PENDING"]
        for phase in (held or pending)[:1]:
            yield commands.trigger_phase(flow, phase.name)
    if is_stuck or any(_retries(phase) for phase in flow.phases):
        yield commands.why(flow)


def _is_stuck(phase: PhaseFact) -> bool:
    """Return whether a phase waits at its gate or failed, or a processor failed permanently."""
    failed = any(processor.status == "failed" for processor in phase.processors)
    return phase.state in ("WAITING", "BLOCKED", "FAILED") or (
        phase.state == "IN_PROGRESS" and failed
    )


def _retries(phase: PhaseFact) -> bool:
    """Return whether a processor of a running phase failed and has not completed since."""
    lacking = [processor for processor in phase.processors if not processor.is_done]
    return phase.state == "IN_PROGRESS" and any(processor.failures for processor in lacking)


def _ended(flow: FlowFact) -> Iterator[Suggestion]:
    """Suggest retries and new triggers for the failed or degraded phases of an ended flow."""
    if flow.newer_generation is not None or flow.state == "COMPLETE":
        return
    for phase in flow.phases:
        if phase.state in ("FAILED", "DEGRADED"):
            for processor in phase.processors:
                if processor.items is not None and processor.items.failed:
                    yield commands.retry_items(flow, processor.name)
                elif processor.status == "failed" and processor.failures:
                    yield commands.retry(processor.failures[-1])
    for phase in flow.phases:
        if phase.state in ("FAILED", "DEGRADED") and not phase.is_inherited:
            if phase.state == "FAILED":
                yield commands.replay_from(flow, phase.name)
            yield commands.trigger_phase(flow, phase.name)
            break
