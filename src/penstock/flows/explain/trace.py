"""Traces: chronological steps across phases and flows, and the steps that have not happened.

Pure, over facts: flows with their phases, and executions from the log. `flows.explain.client` loads
the facts of a correlation id and returns its trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.core.clock import Micros
from penstock.flows.explain.explain import STATE_LABELS, headline_of
from penstock.flows.explain.facts import FlowFact, PhaseFact, RunFact
from penstock.flows.explain.processor_messages import describe_error, describe_items
from penstock.flows.explain.times import LocalClock, format_list, format_span
from penstock.flows.explain.trace_outside import (
    MissingStep,
    OutsideFlows,
    Step,
    outside_absences,
    outside_steps,
)

DONE = ("COMPLETE", "DEGRADED")
ORDER = (
    "message",
    "flow",
    "delivery",
    "execution",
    "report",
    "dead_letter",
    "phase",
    "gate",
    "end",
)
"""Order of kinds of steps that happened at the same time."""
NEVER = ("PENDING", "WAITING", "BLOCKED", "SKIPPED")
ITEM_FAILURES_SHOWN = 3
"""Maximum number of failed runs that a trace lists for a processor with items; the counts are a
separate step.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace: its chronological events, the missing steps, and its progress."""

    steps: tuple[Step, ...]
    absences: tuple[MissingStep, ...]
    reached_last: bool | None = None
    summary: str = ""


def trace(
    flows: Sequence[FlowFact],
    executions: Sequence[RunFact],
    now: Micros,
    outside: OutsideFlows | None = None,
) -> Trace:
    """Return the trace of flows and executions. Executions of deleted flows are included."""
    outside = outside or OutsideFlows()
    steps: list[Step] = []
    absences: list[MissingStep] = []
    newest = {_key(flow): flow for flow in sorted(flows, key=lambda flow: flow.generation)}
    for flow in flows:
        wall = LocalClock(now, flow.timezone)
        steps += _flow(flow)
        if newest[_key(flow)] is flow:  # the newest generation does the missing work of older ones
            absences += _absent(flow, wall)
    ended = [run for run in executions if run.ended_at is not None]
    steps += [_execution(run) for run in _without_most_items(ended, flows)]
    steps += outside_steps(outside)
    left = list(outside_absences(outside, now))
    absences += left
    steps.sort(key=lambda step: (step.at, ORDER.index(step.kind)))
    reached, summary = _verdict(flows, absences)
    if reached and left:
        more = f", and {len(left) - 1} more" if len(left) > 1 else ""
        summary += f" Missing: {left[0].text}{more}."
    return Trace(
        steps=tuple(steps), absences=tuple(absences), reached_last=reached, summary=summary
    )


def _key(flow: FlowFact) -> tuple[str, str, str, str, str | None]:
    """Return the key that all generations of a flow share."""
    return flow.customer, flow.pipeline, flow.partition, flow.mode, flow.config


def _verdict(flows: Sequence[FlowFact], absences: Sequence[MissingStep]) -> tuple[bool | None, str]:
    """Return whether the newest flow reached its last phases, and its progress."""
    if not flows:
        text = "Something has not happened: see below." if absences else "Everything has ended."
        return None, text
    flow = max(flows, key=lambda flow: (flow.opened_at, flow.generation, flow.flow_id))
    name = f"{flow.pipeline} {flow.partition}"
    # A phase that the mode does not run expects nothing; one that this flow left out is missing.
    planned = [phase for phase in flow.phases if phase.expected or phase.state != "SKIPPED"]
    before = {other for phase in planned for other in phase.after}
    last = [phase for phase in planned if phase.name not in before]
    names = format_list(tuple(phase.name for phase in last))
    if last and all(phase.state in DONE for phase in last):
        text = f"{name} reached {names}, the last phase{'s' if len(last) > 1 else ''}."
        left_out = tuple(phase.name for phase in planned if phase.state == "SKIPPED")
        return True, f"{text} Not run: {format_list(left_out)}." if left_out else text
    done = [phase.name for phase in planned if phase.state in DONE]
    left = [f"{phase.name} {STATE_LABELS[phase.state]}" for phase in planned
            if phase.state not in DONE]  # fmt: skip
    got = f"got as far as {done[-1]}" if done else "completed no phase"
    return False, f"{name} {got}: {', '.join(left)}."


def _without_most_items(runs: Sequence[RunFact], flows: Sequence[FlowFact]) -> Iterator[RunFact]:
    """Yield the runs; for a processor with items, only the first few that failed."""
    fans_out = {
        (phase.name, processor.name)
        for flow in flows
        for phase in flow.phases
        for processor in phase.processors
        if processor.items is not None
    }
    shown: Counter[tuple[str, str]] = Counter()
    for run in sorted(runs, key=lambda run: run.ended_at or 0):
        gate_key = (run.phase, run.processor)
        shown[gate_key] += 1
        if gate_key not in fans_out or shown[gate_key] <= ITEM_FAILURES_SHOWN:
            yield run


def _flow(flow: FlowFact) -> Iterator[Step]:
    name = f"{flow.pipeline} {flow.partition} ({flow.mode}, generation {flow.generation})"
    yield Step(
        at=flow.opened_at,
        kind="flow",
        flow_id=flow.flow_id,
        phase=None,
        processor=None,
        text=f"{name} opened by {flow.opened_by} ({flow.trigger_source})",
    )
    for phase in flow.phases:
        if not phase.is_inherited:
            yield from _phase(flow, phase)
    if flow.ended_at is not None:
        yield Step(
            at=flow.ended_at,
            kind="end",
            flow_id=flow.flow_id,
            phase=None,
            processor=None,
            text=f"{flow.pipeline} {flow.partition} ended {flow.state}" + _without(flow.missing),
        )


def _phase(flow: FlowFact, phase: PhaseFact) -> Iterator[Step]:
    for gate in (phase.gate, *phase.gates):
        trigger = None if gate is None else gate.trigger
        if gate is None or trigger is None:
            continue
        name = f"{phase.name}/{gate.processor}" if gate.processor else phase.name
        text = f"{name} triggered: {trigger.verdict} ({trigger.source})"
        if trigger.is_observed:
            text = f"{name} would have been triggered: {trigger.verdict} (observed only)"
        if gate.decision is not None and gate.decision.warnings:
            text += f", {'; '.join(gate.decision.warnings)}"
        yield Step(
            at=trigger.at,
            kind="gate",
            flow_id=flow.flow_id,
            phase=phase.name,
            processor=gate.processor or None,
            text=text,
        )
    for processor in phase.processors:
        if processor.at is not None and processor.run_id is None:
            yield Step(
                at=processor.at,
                kind="report",
                flow_id=flow.flow_id,
                phase=phase.name,
                processor=processor.name,
                text=f"{processor.name} reported {processor.status} externally"
                if processor.items is None
                else f"{processor.name} {processor.status}: {describe_items(processor.items)}",
            )
    if phase.ended_at is not None and phase.state in ("COMPLETE", "DEGRADED", "FAILED"):
        incomplete = [p.name for p in phase.processors if not p.is_done]
        text = (
            f"{phase.name} {STATE_LABELS[phase.state]} "
            f"{phase.completed_count}/{len(phase.expected)}"
        )
        yield Step(
            at=phase.ended_at,
            kind="phase",
            flow_id=flow.flow_id,
            phase=phase.name,
            processor=None,
            text=text + _without(incomplete),
        )


def _execution(run: RunFact) -> Step:
    assert run.ended_at is not None
    took = "" if run.started_at is None else f" in {format_span(run.ended_at - run.started_at)}"
    attempt = f", attempt {run.attempt}" if run.attempt > 1 else ""
    text = f"{run.processor} {run.state}{took}{attempt}"
    if run.error_type is not None:
        text += f": {describe_error(run)}"
    return Step(
        at=run.ended_at,
        kind="execution",
        flow_id="",
        phase=run.phase,
        processor=run.processor,
        text=text,
        run_id=run.run_id,
    )


def _absent(flow: FlowFact, wall: LocalClock) -> Iterator[MissingStep]:
    for phase in flow.phases:
        headline, until = headline_of(flow, phase, wall)
        if phase.state in NEVER:
            yield MissingStep(
                flow_id=flow.flow_id,
                phase=phase.name,
                until=until,
                since=None if phase.state == "PENDING" else phase.since,
                text=f"{phase.name}: {describe_absence(phase, headline)}",
            )
        elif phase.state in ("IN_PROGRESS", "FAILED"):
            incomplete = [p.name for p in phase.processors if not p.is_done]
            if incomplete:
                yield MissingStep(
                    flow_id=flow.flow_id,
                    phase=phase.name,
                    since=phase.started_at,
                    until=until,
                    text=f"{phase.name}: {format_list(incomplete)} not completed: {headline}",
                )


def describe_absence(phase: PhaseFact, headline: str) -> str:
    """Describe why a phase did not start: "not triggered: gate WAIT since 14:02 for raw.box"."""
    verdicts = {"WAITING": "gate WAIT ", "BLOCKED": "gate FAIL "}
    if phase.state == "SKIPPED":
        return f"skipped: {headline}"
    if phase.breaker is not None and phase.breaker.is_open:
        return f"not triggered: {headline}"
    return f"not triggered: {verdicts.get(phase.state, '')}{headline}"


def _without(names: Sequence[str]) -> str:
    return f", without {format_list(tuple(names))}" if names else ""
