"""Explanations of flows: what was decided for each phase, when, why, and what it waits for.

Pure functions from facts to sentences, so that tests can tabulate every situation. Times are in the
pipeline's time zone. `flows.explain.client` calls `explain`; the command line, the API and the UI
show the result unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.core.clock import Micros
from penstock.core.naming import DEFAULT_CUSTOMER
from penstock.flows.explain import commands
from penstock.flows.explain.facts import (
    DecisionFact,
    FlowFact,
    GateFact,
    OpenFlowFact,
    PhaseFact,
    ProcessorFact,
    ProducerFact,
)
from penstock.flows.explain.processor_messages import (
    describe_evidence,
    describe_items,
    describe_last_failure,
    describe_missing_process,
    describe_pause,
    describe_processor,
    warnings_without_errors,
)
from penstock.flows.explain.records import Suggestion
from penstock.flows.explain.suggestions import suggestions_of
from penstock.flows.explain.times import LocalClock, format_count, format_list, format_times
from penstock.pipelines.declare.producers import spelling_hint

STATE_LABELS = {
    "PENDING": "not triggered",
    "WAITING": "waiting",
    "BLOCKED": "blocked",
    "IN_PROGRESS": "running",
    "COMPLETE": "complete",
    "DEGRADED": "degraded",
    "FAILED": "failed",
    "SKIPPED": "skipped",
}

PROCESSORS_SHOWN = 2
"""Maximum number of processors that a headline names."""
PRODUCERS_SHOWN = 3
"""Maximum number of producers of one table that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseExplanation:
    """The explanation of a phase: one line (word, count, headline), followed by sentences.

    count: completed and expected processors, such as "1/2". until: when the phase stops waiting or
    is tried again; None if there is no such time.
    """

    phase: str
    state: str
    word: str
    count: str
    at: Micros | None
    headline: str
    sentences: tuple[str, ...] = ()
    until: Micros | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The explanation of a flow, with commands that the user may run."""

    title: str
    summary: str
    phases: tuple[PhaseExplanation, ...] = ()
    offers: tuple[Suggestion, ...] = ()


def explain(flow: FlowFact, now: Micros) -> Explanation:
    """Return the explanation of a flow at time `now`."""
    wall = LocalClock(now, flow.timezone)
    return Explanation(
        title=title_of(flow),
        summary=_summary(flow, wall),
        phases=tuple(_phase(flow, phase, wall) for phase in flow.phases),
        offers=suggestions_of(flow, now),
    )


def explain_missing_flow(
    pipeline: str,
    partition: str,
    customer: str,
    mode: str | None,
    *,
    configs: Sequence[str] = (),
) -> Explanation:
    """Return the explanation for a partition that has no flow.

    configs: the active ones that a trigger can belong to; with several, it has to name one.
    """
    where = f"{pipeline} · {partition}" + (f" · {mode}" if mode else "")
    given = (pipeline, partition, customer)
    chosen: Sequence[str | None] = configs if len(configs) > 1 else (None,)
    starts = [
        commands.trigger(*given, mode=mode, config_id=one, does=_start_text(one)) for one in chosen
    ]
    return Explanation(
        title=where,
        summary="There is no flow: it was never triggered, or its retention period has passed.",
        offers=(commands.preview_trigger(*given, mode, chosen[0]), *starts),
    )


def explain_without_flows(
    pipeline: str, partition: str, customer: str, *, is_customer_known: bool
) -> Explanation:
    """Return the explanation for a partition of a pipeline that has runs, but no flows."""
    given = (pipeline, partition, customer)
    listed = (commands.runs_of(*given),) if is_customer_known else ()
    return Explanation(
        title=f"{pipeline} · {partition}",
        summary=f"{pipeline} is one processor without needs: it has runs, not flows.",
        offers=(*listed, commands.submit_run(*given)),
    )


def _start_text(config_id: str | None) -> str:
    return "start it now" if config_id is None else f"start it now, with the config {config_id}"


def title_of(flow: FlowFact) -> str:
    """Return the title line, which identifies the flow."""
    parts = [flow.pipeline, flow.partition, flow.mode, f"generation {flow.generation}"]
    if flow.customer != DEFAULT_CUSTOMER:
        parts.insert(0, flow.customer)
    return " · ".join([*parts, f"correlation {flow.correlation_id}"])


def _summary(flow: FlowFact, wall: LocalClock) -> str:
    opened = f"Opened by {flow.opened_by} at {wall.at(flow.opened_at)} ({flow.trigger_source})"
    if flow.ended_at is None:
        text = f"{opened}, still open"
        if flow.deadline_at is not None:
            text += f"; it fails if it has not ended by {wall.at(flow.deadline_at)}"
    else:
        text = f"{opened}, {flow.state.lower()} at {wall.at(flow.ended_at)}"
        if flow.missing and flow.state == "DEGRADED":
            text += f", without {format_list(flow.missing)}"
    lines = [f"{text}. Times are {flow.timezone}."]
    if flow.is_observe_mode:
        lines.append("The pipeline is in observe mode: gates decide, but schedules start the work.")
    if flow.newer_generation is not None:
        lines.append(f"Generation {flow.newer_generation} is newer.")
    lines += [_still_open(older) for older in flow.still_open]
    for given in flow.overrides:
        what = given.dependency or "any missing dependency"
        where = f" in {given.phase}" if given.phase else ""
        lines.append(
            f"{given.approved_by} approved proceeding without {what}{where} until "
            f"{wall.at(given.expires_at)}: {given.reason}."
        )
    return " ".join(lines)


def _still_open(older: OpenFlowFact) -> str:
    stands = (
        ""
        if older.phase is None
        else f", with phase {older.phase} {STATE_LABELS[older.state or 'PENDING']}"
    )
    return f"An older flow is still open: {older.mode} generation {older.generation}{stands}."


def _phase(flow: FlowFact, phase: PhaseFact, wall: LocalClock) -> PhaseExplanation:
    headline, until = headline_of(flow, phase, wall)
    started = phase.started_at is not None or phase.state in ("COMPLETE", "DEGRADED", "FAILED")
    return PhaseExplanation(
        phase=phase.name,
        state=phase.state,
        word="observed" if is_observed(phase) else STATE_LABELS[phase.state],
        count=f"{phase.completed_count}/{len(phase.expected)}"
        if started and phase.expected
        else "",
        at=phase.ended_at or phase.started_at,
        headline=headline,
        sentences=(*_sentences(phase, wall), *_producer_sentences(flow, phase, wall)),
        until=until,
    )


def headline_of(flow: FlowFact, phase: PhaseFact, wall: LocalClock) -> tuple[str, Micros | None]:
    """Return the headline of a phase, and when it stops waiting or is tried again."""
    gate = phase.gate
    decision = None if gate is None else gate.decision
    if phase.state == "IN_PROGRESS":
        return _progress(phase, wall)
    if phase.state == "WAITING":
        return _waiting(phase, decision, wall)
    if phase.state == "BLOCKED":
        return _blocked(phase, decision, wall)
    if phase.state == "PENDING":
        return _pending(flow, phase), None
    if phase.state == "SKIPPED":
        return _skipped(flow, phase), None
    ended = wall.at(phase.ended_at) if phase.ended_at is not None else ""
    if phase.state == "FAILED":
        lost = [p.name for p in phase.processors if not p.is_done]
        why = f"without {format_list(lost)}" if lost else _reason(decision)
        counts = _item_counts(phase)
        why = f"{why}: {'; '.join(counts)}" if counts else why
        return " ".join(part for part in (ended, why) if part), None
    parts = [ended]
    if phase.state == "DEGRADED":
        parts.append(_degraded(phase))
    parts.append(_earlier_failures(phase))
    if phase.is_inherited:
        parts.append("inherited from the previous generation")
    return "  ".join(part for part in parts if part), None


def _degraded(phase: PhaseFact) -> str:
    """Return why a phase that ended is degraded."""
    decision = None if phase.gate is None else phase.gate.decision
    lines = warnings_without_errors(decision) if decision is not None else []
    late = [p.name for p in phase.processors if not p.is_done]
    if late:
        lines.append(f"without {format_list(late)}")
    part = [p.name for p in phase.processors if p.status == "partial" and p.items is None]
    if part:
        lines.append(f"{format_list(part)} completed in part")
    lines += _item_counts(phase)
    known = " ".join(lines)
    carried = [item for item in phase.missing if item not in known]
    if carried and not phase.is_inherited:
        lines.append(f"without {format_list(carried)} since an earlier phase")
    return "; ".join(lines)


def _earlier_failures(phase: PhaseFact) -> str:
    """Return how many attempts failed before the processors of a phase completed; may be empty."""
    tried = [p for p in phase.processors if p.is_done and p.failures]
    if not tried:
        return ""
    count = format_count(sum(len(p.failures) for p in tried), "failed attempt")
    return f"(after {count} of {format_list([p.name for p in tried])})"


def _item_counts(phase: PhaseFact) -> list[str]:
    """Return the counts of items of the processors that did not complete all of them."""
    return [
        f"{processor.name} {describe_items(processor.items)}"
        for processor in phase.processors
        if processor.items is not None and processor.status != "success"
    ]


def is_observed(phase: PhaseFact) -> bool:
    """Return whether the phase was not started only because the cascade is in observe mode."""
    gates = [gate for gate in (phase.gate, *phase.gates) if gate is not None]
    triggers = [gate.trigger for gate in gates if gate.trigger is not None]
    return bool(triggers) and all(trigger.is_observed for trigger in triggers)


def _progress(phase: PhaseFact, wall: LocalClock) -> tuple[str, Micros | None]:
    if is_observed(phase) and phase.started_at is not None:
        return f"would have started at {wall.at(phase.started_at)}; nothing was started", None
    text = f"since {wall.at(phase.started_at)}" if phase.started_at is not None else ""
    until = phase.stragglers_until
    if until is not None:
        text += f", stragglers until {wall.at(until)}"
    waiting = [gate for gate in phase.gates if gate.state in ("WAITING", "BLOCKED")]
    held = {gate.processor for gate in waiting}
    lacking = [p for p in _by_trouble(phase.processors, wall) if p.name not in held]
    if lacking and not waiting and all(p.is_paused for p in lacking):
        return f"{text}: {_held_by_pause(lacking)}", until
    troubled = [p for p in lacking if p.has_failed or p.misses_heartbeats(wall.now)]
    named = troubled or lacking
    shown = [describe_processor(p, wall) for p in named[:PROCESSORS_SHOWN]]
    if len(named) > PROCESSORS_SHOWN:
        shown.append(f"and {len(named) - PROCESSORS_SHOWN} more")
    at_gates = [f"{gate.processor} {STATE_LABELS[gate.state]} at its gate" for gate in waiting]
    shown += at_gates[:PROCESSORS_SHOWN]
    return f"{text}: {'; '.join(shown)}" if shown else text, until


def _by_trouble(processors: Iterable[ProcessorFact], wall: LocalClock) -> list[ProcessorFact]:
    """Return the processors that have not completed: those whose worker misses heartbeats first,
    then those that failed, those that wait, and those that run.
    """

    def rank(one: ProcessorFact) -> tuple[bool, bool, bool]:
        runs = one.live is not None and one.live.state in ("RUNNING", "CLAIMED")
        return not one.misses_heartbeats(wall.now), not one.has_failed, runs

    return sorted((one for one in processors if not one.is_done), key=rank)


def _held_by_pause(processors: Sequence[ProcessorFact]) -> str:
    """Return which pause holds the runs of processors: "2 runs are held by a pause: …"."""
    pauses = [pause for one in processors if one.live is not None for pause in one.live.pauses]
    whats = "; ".join(dict.fromkeys(map(describe_pause, pauses)))
    verb = "run is" if len(processors) == 1 else "runs are"
    return f"{len(processors):,} {verb} held by a pause{f': {whats}' if whats else ''}"


def _waiting(
    phase: PhaseFact, decision: DecisionFact | None, wall: LocalClock
) -> tuple[str, Micros | None]:
    gates = [phase.gate] if not phase.gates else list(phase.gates)
    waits = [gate for gate in gates if gate is not None and gate.state == "WAITING"]
    since = min((gate.waiting_since or gate.since for gate in waits), default=phase.since)
    if decision is None:
        decision = next((gate.decision for gate in waits if gate.decision is not None), None)
    awaited = () if decision is None else awaited_tables(decision)
    what = f"for {format_list(awaited)}" if awaited else "for more data"
    text = f"since {wall.at(since)} {what}"
    if decision is None or decision.waits_until is None:
        return text, None
    return f"{text}, until {wall.at(decision.waits_until)}", decision.waits_until


def _blocked(
    phase: PhaseFact, decision: DecisionFact | None, wall: LocalClock
) -> tuple[str, Micros | None]:
    since = f"since {wall.at(phase.since)}"
    breaker = phase.breaker
    if breaker is not None and breaker.is_open and breaker.next_probe_at is not None:
        again = wall.upcoming(breaker.next_probe_at)
        words = f"breaker open after {breaker.failures} failures, tries again {again}"
        return f"{since}: {words}", breaker.next_probe_at
    if decision is None:
        decision = next((g.decision for g in phase.gates if g.decision is not None), None)
    what, awaited = "its gate failed", () if decision is None else awaited_tables(decision)
    if awaited:
        what = f"its gate failed, {format_list(awaited)} missing"
    person = "; needs a person" if phase.intervention is not None else ""
    return f"{since}: {what}{person}", None


def awaited_tables(decision: DecisionFact) -> tuple[str, ...]:
    """Return the missing tables that the gate waits for; optional ones are excluded."""
    optional = {item.table for item in decision.evidence if item.kind == "optional"}
    return tuple(name for name in decision.missing if name not in optional)


def _pending(flow: FlowFact, phase: PhaseFact) -> str:
    incomplete = [
        name for name in phase.after if flow.phase(name).state not in ("COMPLETE", "DEGRADED")
    ]
    if incomplete:
        verb = "is" if len(incomplete) == 1 else "are"
        return f"{format_list(incomplete)} {verb} not complete"
    if flow.preceding_flow_id is not None:
        return f"{flow.preceding_flow_id}, the previous flow of its config, has not ended"
    return "its gate has not been evaluated yet"


def _skipped(flow: FlowFact, phase: PhaseFact) -> str:
    if not phase.expected:
        return f"{flow.mode} does not run it"
    if flow.ended_at is not None and flow.state in ("FAILED", "CANCELLED"):
        return f"the flow {'failed' if flow.state == 'FAILED' else 'was cancelled'} before it"
    if flow.start_phase is not None:
        return f"this generation starts at {flow.start_phase}"
    return "not part of this flow"


def _sentences(phase: PhaseFact, wall: LocalClock) -> list[str]:
    """Return sentences about the decision, its evidence and missing data; empty before one."""
    lines: list[str] = []
    gates = [gate for gate in (phase.gate, *phase.gates) if gate is not None]
    for gate in gates:
        lines += gate_sentences(gate, wall)
    if phase.state == "IN_PROGRESS" or (phase.state == "FAILED" and phase.processors):
        lacking = _by_trouble(phase.processors, wall)
        held = {gate.processor for gate in phase.gates if gate.trigger is None}
        if not is_observed(phase):
            lines += [
                f"{describe_processor(p, wall)}{describe_last_failure(p)}"
                f"{describe_missing_process(p)}."
                for p in lacking
                if p.name not in held
            ]
    lines += [f"{name} receives {what}." for name, what in phase.received]
    if phase.intervention is not None:
        item = phase.intervention
        tried = f" after {item.tries} tries" if item.tries > 1 else ""
        what = f": {format_list(item.missing)} missing" if item.missing else ""
        lines.append(
            f"Manual intervention is required ({item.intervention_id}, opened at "
            f"{wall.at(item.opened_at)}{tried}){what}."
        )
    return lines


def _producer_sentences(flow: FlowFact, phase: PhaseFact, wall: LocalClock) -> list[str]:
    """Return the producers of tables that a waiting or blocked gate lacks, with their results."""
    if phase.state not in ("WAITING", "BLOCKED"):
        return []
    gates = [gate for gate in (phase.gate, *phase.gates) if gate is not None]
    awaited = [t for g in gates if g.decision is not None for t in awaited_tables(g.decision)]
    lines = []
    for table in dict.fromkeys(awaited):
        if not flow.producers_of(table):
            known = {one.table for one in flow.producers if one.pipeline == flow.pipeline}
            hint = spelling_hint(table, known)
            lines += [] if hint is None else [hint]
        producers = flow.producers_of(table)
        for one in producers[:PRODUCERS_SHOWN]:
            where = f"{one.phase}/{one.processor}"
            if one.pipeline != flow.pipeline:
                lines.append(f"{table} is produced by {where} of pipeline {one.pipeline}.")
            else:
                lines.append(f"{table} is produced by {where}{_production(flow, one, wall)}.")
        left = len(producers) - PRODUCERS_SHOWN
        if left > 0:
            lines.append(f"{table} has {format_count(left, 'more producer')}.")
    return lines


def _production(flow: FlowFact, one: ProducerFact, wall: LocalClock) -> str:
    made = flow.producer(one)
    if made is None or made.at is None:
        return ", which has not reported" if made is not None else ""
    records = "" if made.records is None else f" with {format_count(made.records, 'record')}"
    ended = {"success": "completed", "partial": "completed in part", "failed": "failed"}
    return f", which {ended.get(made.status or '', 'reported')}{records} at {wall.at(made.at)}"


def gate_sentences(gate: GateFact, wall: LocalClock) -> list[str]:
    """Return the last decision of a gate, its evidence, and when it is evaluated again."""
    decision = gate.decision
    if decision is None:
        return []
    subject = f"The gate of {gate.processor}" if gate.processor else "The gate"
    by = "" if decision.source in ("orchestrator", "scheduler") else f" ({decision.source})"
    lines = [
        f"{subject} decided {decision.verdict} at {wall.at(decision.at)}{by}: {_reason(decision)}"
    ]
    shown = tuple(item.table for item in decision.evidence)
    notes = [note for note in decision.warnings if not note.startswith(shown)]
    if notes:
        lines.append(f"Warnings: {'; '.join(notes)}.")
    reason = _reason(decision)
    evidence = [describe_evidence(item, reason) for item in decision.evidence]
    if evidence:
        lines.append(f"Evidence: {'; '.join(evidence)}.")
    if gate.state == "WAITING":
        lines.append(_next_evaluation(gate, decision, wall))
    elif gate.state == "BLOCKED" and decision.verdict == "FAIL":
        lines.append("It is evaluated again when upstream data arrives, or on request.")
    return lines


def _next_evaluation(gate: GateFact, decision: DecisionFact, wall: LocalClock) -> str:
    probe_at = gate.probe_at if gate.probe_at is not None else decision.recheck_at
    text = "It is evaluated again when upstream data arrives"
    if probe_at is not None:
        text = f"It is evaluated again {_when(probe_at, wall)}, or when upstream data arrives"
    if gate.tries:
        text += f"; tried {format_times(gate.tries)} so far"
    if decision.waits_until is None:
        return f"{text}."
    return f"{text}; it stops waiting at {wall.at(decision.waits_until)}."


def _when(moment: Micros, wall: LocalClock) -> str:
    return f"at {wall.at(moment)}" if moment > wall.now else "any moment"


def _reason(decision: DecisionFact | None) -> str:
    if decision is None or not decision.reasons:
        return "no reason was recorded."
    return " ".join(decision.reasons)
