"""A flow explained: for every phase what was decided, when, why, on what evidence, what is awaited.

Facts in, sentences out; pure, so that every situation is a row of a table in the tests. Times are
those of the pipeline's wall clock. `client.explaining` asks; the command line, the API and the UI
show what comes of it as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.clock import Micros
from penstock.core.naming import DEFAULT_CUSTOMER
from penstock.flows.explain import commands
from penstock.flows.explain.commands import Offer
from penstock.flows.explain.facts import (
    DecisionFact,
    EvidenceFact,
    FlowFact,
    GateFact,
    OpenFact,
    PhaseFact,
)
from penstock.flows.explain.processor_messages import processor_words
from penstock.flows.explain.suggestions import offers_of
from penstock.flows.explain.times import Wall, listed, times

WORDS = {
    "PENDING": "not triggered",
    "WAITING": "waiting",
    "BLOCKED": "blocked",
    "IN_PROGRESS": "running",
    "COMPLETE": "complete",
    "DEGRADED": "degraded",
    "FAILED": "failed",
    "SKIPPED": "skipped",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStory:
    """A phase in words: one line (word, count, headline), then sentences.

    until: when what is awaited is given up, or looked at again.
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
    """A flow in words, and what somebody can do about it."""

    title: str
    summary: str
    phases: tuple[PhaseStory, ...] = ()
    offers: tuple[Offer, ...] = ()


def explain(flow: FlowFact, now: Micros) -> Explanation:
    """Explain a flow."""
    wall = Wall(now, flow.timezone)
    return Explanation(
        title=title_of(flow),
        summary=_summary(flow, wall),
        phases=tuple(_phase(flow, phase, wall) for phase in flow.phases),
        offers=offers_of(flow, now),
    )


def explain_nothing(pipeline: str, partition: str, customer: str, mode: str | None) -> Explanation:
    """Explain that there is no flow."""
    where = f"{pipeline} · {partition}" + (f" · {mode}" if mode else "")
    more = ("--mode", mode) if mode else ()
    return Explanation(
        title=where,
        summary="There is no flow: nothing has triggered it, or it ended long ago.",
        offers=(
            commands.trigger(
                pipeline, partition, customer, *more, "--dry-run", does="see what would start"
            ),
            commands.trigger(pipeline, partition, customer, *more, does="start it now"),
        ),
    )


def title_of(flow: FlowFact) -> str:
    """The line above: which flow this is."""
    parts = [flow.pipeline, flow.partition, flow.mode, f"generation {flow.generation}"]
    if flow.customer != DEFAULT_CUSTOMER:
        parts.insert(0, flow.customer)
    return " · ".join([*parts, f"correlation {flow.correlation_id}"])


def _summary(flow: FlowFact, wall: Wall) -> str:
    opened = f"Opened by {flow.opened_by} at {wall.at(flow.opened_at)} ({flow.trigger_source})"
    if flow.ended_at is None:
        said = f"{opened}, still open"
        if flow.deadline_at is not None:
            said += f"; it fails if it has not ended by {wall.at(flow.deadline_at)}"
    else:
        said = f"{opened}, {flow.state.lower()} at {wall.at(flow.ended_at)}"
        if flow.missing and flow.state == "DEGRADED":
            said += f", without {listed(flow.missing)}"
    lines = [f"{said}. Times are {flow.timezone}."]
    if flow.observes:
        lines.append("The pipeline observes: gates decide, but schedules start the work.")
    if flow.newer is not None:
        lines.append(f"Generation {flow.newer} is newer.")
    lines += [_still_open(older) for older in flow.still_open]
    for given in flow.overrides:
        what = given.dependency or "whatever is missing"
        where = f" in {given.phase}" if given.phase else ""
        lines.append(
            f"{given.approved_by} approved going on without {what}{where} until "
            f"{wall.at(given.expires_at)}: {given.reason}."
        )
    return " ".join(lines)


def _still_open(older: OpenFact) -> str:
    stands = "" if older.phase is None else f", its {older.phase} {WORDS[older.state or 'PENDING']}"
    return f"An older flow is still open: {older.mode} generation {older.generation}{stands}."


def _phase(flow: FlowFact, phase: PhaseFact, wall: Wall) -> PhaseStory:
    headline, until = headline_of(flow, phase, wall)
    started = phase.started_at is not None or phase.state in ("COMPLETE", "DEGRADED", "FAILED")
    return PhaseStory(
        phase=phase.name,
        state=phase.state,
        word="observed" if is_observed(phase) else WORDS[phase.state],
        count=f"{phase.done}/{len(phase.expected)}" if started and phase.expected else "",
        at=phase.ended_at or phase.started_at,
        headline=headline,
        sentences=tuple(_sentences(phase, wall)),
        until=until,
    )


def headline_of(flow: FlowFact, phase: PhaseFact, wall: Wall) -> tuple[str, Micros | None]:
    """The one line about a phase, and until when what it awaits is awaited."""
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
        why = f"without {listed(lost)}" if lost else _reason(decision)
        return " ".join(part for part in (ended, why) if part), None
    parts = [ended]
    if phase.state == "DEGRADED":
        parts.append(_degraded(phase))
    if phase.is_inherited:
        parts.append("taken over from the generation before")
    return "  ".join(part for part in parts if part), None


def _degraded(phase: PhaseFact) -> str:
    """Why a phase that ended is degraded."""
    decision = None if phase.gate is None else phase.gate.decision
    lines = list(decision.warnings) if decision is not None else []
    late = [p.name for p in phase.processors if not p.is_done]
    if late:
        lines.append(f"without {listed(late)}")
    part = [p.name for p in phase.processors if p.status == "partial"]
    if part:
        lines.append(f"{listed(part)} completed in part")
    known = " ".join(lines)
    carried = [item for item in phase.lacking if item not in known]
    if carried and not phase.is_inherited:
        lines.append(f"without {listed(carried)} since an earlier phase")
    return "; ".join(lines)


def is_observed(phase: PhaseFact) -> bool:
    """Whether the cascade decided to start it and, only observing, did not."""
    gates = [gate for gate in (phase.gate, *phase.gates) if gate is not None]
    seen = [gate.trigger for gate in gates if gate.trigger is not None]
    return bool(seen) and all(trigger.is_observed for trigger in seen)


def _progress(phase: PhaseFact, wall: Wall) -> tuple[str, Micros | None]:
    if is_observed(phase) and phase.started_at is not None:
        return f"would have started at {wall.at(phase.started_at)}; nothing was started", None
    said = f"since {wall.at(phase.started_at)}" if phase.started_at is not None else ""
    until = phase.stragglers_until
    if until is not None:
        said += f", stragglers until {wall.at(until)}"
    lacking = [p for p in phase.processors if not p.is_done]
    troubled = [p for p in lacking if p.failures or p.status == "failed"] or lacking
    waiting = [gate for gate in phase.gates if gate.state in ("WAITING", "BLOCKED")]
    held = {gate.processor for gate in waiting}
    shown = [processor_words(p, wall) for p in troubled if p.name not in held][:2]
    shown += [f"{gate.processor} {WORDS[gate.state]} at its gate" for gate in waiting][:2]
    return f"{said}: {'; '.join(shown)}" if shown else said, until


def _waiting(
    phase: PhaseFact, decision: DecisionFact | None, wall: Wall
) -> tuple[str, Micros | None]:
    gates = [phase.gate] if not phase.gates else list(phase.gates)
    waits = [gate for gate in gates if gate is not None and gate.state == "WAITING"]
    since = min((gate.waiting_since or gate.since for gate in waits), default=phase.since)
    if decision is None:
        decision = next((gate.decision for gate in waits if gate.decision is not None), None)
    awaited = () if decision is None else awaited_of(decision)
    what = f"for {listed(awaited)}" if awaited else "for more data"
    said = f"since {wall.at(since)} {what}"
    if decision is None or decision.waits_until is None:
        return said, None
    return f"{said}, until {wall.at(decision.waits_until)}", decision.waits_until


def _blocked(
    phase: PhaseFact, decision: DecisionFact | None, wall: Wall
) -> tuple[str, Micros | None]:
    since = f"since {wall.at(phase.since)}"
    breaker = phase.breaker
    if breaker is not None and breaker.is_open and breaker.again_at is not None:
        again = wall.coming(breaker.again_at)
        words = f"breaker open after {breaker.failures} failures, tries again {again}"
        return f"{since}: {words}", breaker.again_at
    if decision is None:
        decision = next((g.decision for g in phase.gates if g.decision is not None), None)
    what, awaited = "its gate failed", () if decision is None else awaited_of(decision)
    if awaited:
        what = f"its gate failed, {listed(awaited)} missing"
    person = "; needs a person" if phase.intervention is not None else ""
    return f"{since}: {what}{person}", None


def awaited_of(decision: DecisionFact) -> tuple[str, ...]:
    """What is missing and matters: nobody waits for what is optional."""
    spare = {item.table for item in decision.evidence if item.kind == "optional"}
    return tuple(name for name in decision.missing if name not in spare)


def _pending(flow: FlowFact, phase: PhaseFact) -> str:
    front = [name for name in phase.after if flow.phase(name).state not in ("COMPLETE", "DEGRADED")]
    if front:
        verb = "is" if len(front) == 1 else "are"
        return f"{listed(front)} {verb} not complete"
    if flow.behind is not None:
        return f"{flow.behind}, the flow ahead of it of its config, has not ended"
    return "its gate has not been asked yet"


def _skipped(flow: FlowFact, phase: PhaseFact) -> str:
    if not phase.expected:
        return f"{flow.mode} does not run it"
    if flow.ended_at is not None and flow.state in ("FAILED", "CANCELLED"):
        return f"the flow {'failed' if flow.state == 'FAILED' else 'was cancelled'} before it"
    if flow.start_phase is not None:
        return f"this generation starts at {flow.start_phase}"
    return "left out of this flow"


def _sentences(phase: PhaseFact, wall: Wall) -> list[str]:
    """What was decided, on what evidence, what is awaited; nothing for phases nobody asked."""
    lines: list[str] = []
    gates = [gate for gate in (phase.gate, *phase.gates) if gate is not None]
    for gate in gates:
        lines += gate_sentences(gate, wall)
    if phase.state == "IN_PROGRESS" or (phase.state == "FAILED" and phase.processors):
        lacking = [p for p in phase.processors if not p.is_done]
        held = {gate.processor for gate in phase.gates if gate.trigger is None}
        if not is_observed(phase):
            lines += [f"{processor_words(p, wall)}." for p in lacking if p.name not in held]
    if phase.intervention is not None:
        item = phase.intervention
        tried = f" after {item.tries} tries" if item.tries > 1 else ""
        what = f": {listed(item.missing)} missing" if item.missing else ""
        lines.append(
            f"Only a person can mend this ({item.intervention_id}, filed at "
            f"{wall.at(item.opened_at)}{tried}){what}."
        )
    return lines


def gate_sentences(gate: GateFact, wall: Wall) -> list[str]:
    """What a gate decided last, why, on what, and when it is asked again."""
    decision = gate.decision
    if decision is None:
        return []
    who = f"The gate of {gate.processor}" if gate.processor else "The gate"
    by = "" if decision.source in ("orchestrator", "scheduler") else f" ({decision.source})"
    lines = [f"{who} said {decision.verdict} at {wall.at(decision.at)}{by}: {_reason(decision)}"]
    shown = tuple(item.table for item in decision.evidence)
    notes = [note for note in decision.warnings if not note.startswith(shown)]
    if notes:
        lines.append(f"Lacking: {'; '.join(notes)}.")
    seen = [evidence_words(item) for item in decision.evidence]
    if seen:
        lines.append(f"Seen: {'; '.join(seen)}.")
    if gate.state == "WAITING":
        lines.append(_next_look(gate, decision, wall))
    elif gate.state == "BLOCKED" and decision.verdict == "FAIL":
        lines.append("It is asked again when data arrives upstream, or when a person asks.")
    return lines


def _next_look(gate: GateFact, decision: DecisionFact, wall: Wall) -> str:
    look = gate.look_at if gate.look_at is not None else decision.recheck_at
    said = "It looks again when something arrives upstream"
    if look is not None:
        said = f"It looks again {_when(look, wall)}, or when something arrives upstream"
    if gate.tries:
        said += f"; {times(gate.tries)} so far"
    if decision.waits_until is None:
        return f"{said}."
    return f"{said}; it stops waiting at {wall.at(decision.waits_until)}."


def _when(moment: Micros, wall: Wall) -> str:
    return f"at {wall.at(moment)}" if moment > wall.now else "any moment"


def evidence_words(item: EvidenceFact) -> str:
    """One dependency as it was seen."""
    kind = "" if item.kind == "same_day" else f" ({item.kind})"
    if item.error is not None:
        return f"{item.table}{kind} could not be looked at ({item.error})"
    if item.kind == "historical":
        days = f"{item.days_present or 0} of {item.days_needed or 0} days"
        return f"{item.table}{kind} {'; '.join(item.issues) or days}"
    counted = f"{item.rows or 0}/{item.expected or 0} rows"
    return f"{item.table}{kind} {'; '.join(item.issues) or counted}"


def _reason(decision: DecisionFact | None) -> str:
    if decision is None or not decision.reasons:
        return "no reason was recorded."
    return " ".join(decision.reasons)
