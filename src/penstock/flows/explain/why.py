"""Why something is not happening: a tree of causes, each with the earliest time it can clear.

A cause stands in the way of its parent; a parent clears when all its causes have. `earliest_at` is
a lower bound: the clock alone lets it clear then (a retry, a re-check, a breaker), None where only
an event or a person can. Pure, over facts; `client.explaining` asks, everybody shows the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from penstock.core.clock import Micros
from penstock.flows.explain import commands
from penstock.flows.explain.commands import Offer
from penstock.flows.explain.explain import WORDS, evidence_words, headline_of, is_observed
from penstock.flows.explain.facts import (
    FlowFact,
    GateFact,
    LimitFact,
    PhaseFact,
    ProcessorFact,
    RunFact,
)
from penstock.flows.explain.processor_messages import (
    ahead_words,
    failed_words,
    limit_names,
    line_words,
    pause_words,
    processor_words,
    run_words,
)
from penstock.flows.explain.times import Wall

DONE = ("COMPLETE", "DEGRADED", "SKIPPED")


class Clears(StrEnum):
    """What can make a cause go away."""

    TIME = "time"
    EVENT = "event"
    PERSON = "person"
    NEVER = "never"
    """Nothing is pending: it is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Something in the way, and what is behind it."""

    kind: str
    text: str
    clears: Clears = Clears.EVENT
    since: Micros | None = None
    earliest_at: Micros | None = None
    until_at: Micros | None = None
    """When waiting for it ends by itself, whether it cleared or not."""
    offer: Offer | None = None
    children: tuple[Cause, ...] = ()


def why_flow(flow: FlowFact, now: Micros, phase: str | None = None) -> Cause:
    """Why a flow, or one phase of it, has not ended."""
    wall = Wall(now, flow.timezone)
    where = f"{flow.pipeline} {flow.partition} ({flow.mode}, generation {flow.generation})"
    if phase is not None:
        found = flow.phase(phase)
        return _phase(flow, found, wall, frozenset())
    if flow.ended_at is not None:
        said = f"{where} is {flow.state.lower()} since {wall.at(flow.ended_at)}: nothing is pending"
        return Cause(kind="flow", text=said, clears=Clears.NEVER, since=flow.ended_at)
    followed = {name for one in flow.phases for name in one.after}
    last = [one for one in flow.phases if one.name not in followed and one.state not in DONE]
    open_ = last or [one for one in flow.phases if one.state not in DONE]
    seen: set[str] = set()
    children = []
    for one in open_:
        children.append(_phase(flow, one, wall, frozenset(seen)))
        seen |= _covered(flow, one)
    return _joined(
        Cause(
            kind="flow",
            text=f"{where} is open since {wall.at(flow.opened_at)}",
            since=flow.opened_at,
            until_at=flow.deadline_at,
            children=tuple(children),
        )
    )


def why_run(run: RunFact, wall: Wall) -> Cause:
    """Why a run has not ended, or has not started."""
    name = f"{run.run_id} ({run.processor})"
    if not run.is_live:
        at = "" if run.ended_at is None else f" since {wall.at(run.ended_at)}"
        said = f"{name} is {run.state}{at}: nothing is pending"
        return Cause(kind="run", text=said, clears=Clears.NEVER, since=run.ended_at)
    return _joined(
        Cause(
            kind="run",
            text=f"{name} {run_words(run, wall)}",
            since=run.since,
            until_at=run.timeout_at,
            children=tuple(_run_causes(run, wall)),
        )
    )


def flattened(cause: Cause, depth: int = 0) -> Iterator[tuple[int, Cause]]:
    """The tree as lines: (depth, cause), parents first."""
    yield depth, cause
    for child in cause.children:
        yield from flattened(child, depth + 1)


def _phase(flow: FlowFact, phase: PhaseFact, wall: Wall, seen: frozenset[str]) -> Cause:
    headline, until = headline_of(flow, phase, wall)
    text = f"{phase.name} is {WORDS[phase.state]}" + (f": {headline}" if headline else "")
    if phase.state == "IN_PROGRESS" and phase.started_at is not None:
        # What is behind it is told by its causes.
        count = f"{phase.done}/{len(phase.expected)} done"
        text = f"{phase.name} is running since {wall.at(phase.started_at)}, {count}"
        if until is not None:
            text += f", stragglers until {wall.at(until)}"
    if phase.state in DONE:
        return Cause(kind="phase", text=text, clears=Clears.NEVER, since=phase.ended_at)
    if phase.name in seen:
        return Cause(kind="phase", text=f"{phase.name} (see above)")
    if phase.state == "FAILED":
        text = f"{phase.name} failed {headline}"
        children = tuple(_processors(flow, phase, wall))
        return Cause(
            kind="phase", text=text, clears=Clears.PERSON, since=phase.since, children=children
        )
    causes: list[Cause] = []
    for name in phase.after:
        if flow.phase(name).state not in DONE:
            causes.append(_phase(flow, flow.phase(name), wall, seen))
    if phase.state == "IN_PROGRESS":
        causes += _processors(flow, phase, wall)
    causes += _gates(flow, phase, wall)
    if not causes and phase.state == "PENDING" and flow.behind is not None:
        text_ahead = f"{flow.behind} has not ended, and flows of its config follow each other"
        causes.append(Cause(kind="flow", text=text_ahead, offer=commands.why_of(flow.behind)))
    elif not causes and phase.state == "PENDING":
        causes.append(
            Cause(
                kind="orchestrator",
                text="an orchestrator has not come to it yet",
                clears=Clears.TIME,
                earliest_at=wall.now,
            )
        )
    joined = _joined(
        Cause(kind="phase", text=text, since=phase.since, until_at=until, children=tuple(causes))
    )
    if phase.state == "IN_PROGRESS" and phase.stragglers_until is not None:
        return _capped(joined, phase.stragglers_until)
    return joined


def _gates(flow: FlowFact, phase: PhaseFact, wall: Wall) -> Iterator[Cause]:
    breaker = phase.breaker
    if breaker is not None and breaker.is_open and phase.state != "IN_PROGRESS":
        yield Cause(
            kind="breaker",
            text=f"the breaker of {phase.name} is open after {breaker.failures} failures in a row",
            clears=Clears.TIME,
            earliest_at=breaker.again_at,
            until_at=breaker.again_at,
        )
        return
    for gate in (phase.gate, *phase.gates):
        if gate is not None and gate.state in ("WAITING", "BLOCKED"):
            yield _gate(flow, phase, gate, wall)


def _gate(flow: FlowFact, phase: PhaseFact, gate: GateFact, wall: Wall) -> Cause:
    decision = gate.decision
    name = f"the gate of {gate.processor or phase.name}"
    if decision is None:
        return Cause(
            kind="gate",
            text=f"{name} is being asked",
            clears=Clears.TIME,
            since=gate.since,
            earliest_at=gate.look_at,
        )
    waiting = gate.waiting_since if decision.verdict == "WAIT" else None
    since = gate.since if waiting is None else waiting
    text = f"{name} says {decision.verdict} since {wall.at(since)}: {' '.join(decision.reasons)}"
    lacking = [item for item in decision.evidence if item.status != "COMPLETE"]
    children = tuple(
        Cause(
            kind="dependency",
            text=evidence_words(item),
            offer=commands.override(flow, phase.name, item.table)
            if item.table in decision.missing and decision.status != "missing_required"
            else None,
        )
        for item in lacking
        if item.kind != "optional"
    )
    if decision.verdict == "WAIT":
        look = gate.look_at if gate.look_at is not None else decision.recheck_at
        return Cause(
            kind="gate",
            text=text,
            clears=Clears.TIME,
            since=since,
            earliest_at=look,
            until_at=decision.waits_until,
            children=children,
        )
    item = phase.intervention
    if item is not None:
        offer = commands.resolve(item)
        children += (
            Cause(
                kind="intervention",
                text=f"{item.intervention_id} waits for a person",
                clears=Clears.PERSON,
                since=item.opened_at,
                offer=offer,
            ),
        )
    return Cause(
        kind="gate",
        text=text,
        clears=Clears.PERSON if item else Clears.EVENT,
        since=since,
        offer=commands.check(flow, phase.name),
        children=children,
    )


def _processors(flow: FlowFact, phase: PhaseFact, wall: Wall) -> Iterator[Cause]:
    if is_observed(phase):
        text = "the pipeline only observes: nothing was started, a schedule has to"
        yield Cause(kind="observe", text=text, since=phase.started_at)
        return
    held = {gate.processor for gate in phase.gates if gate.trigger is None}
    for processor in phase.processors:
        if not processor.is_done and processor.name not in held:
            yield _processor(flow, phase, processor, wall)


def _processor(flow: FlowFact, phase: PhaseFact, processor: ProcessorFact, wall: Wall) -> Cause:
    live, text = processor.live, processor_words(processor, wall)
    if live is not None:
        failed = failed_words(processor.failures)
        return _joined(
            Cause(
                kind="processor",
                text=f"{processor.name} has not completed" + (f", it {failed}" if failed else ""),
                since=live.since,
                children=(why_run(live, wall),),
            )
        )
    if processor.status == "failed":
        offer = commands.retry(processor.failures[-1]) if processor.failures else None
        return Cause(
            kind="processor", text=text, clears=Clears.PERSON, since=processor.at, offer=offer
        )
    offer = commands.complete(flow, phase.name, processor.name) if processor.is_external else None
    return Cause(kind="processor", text=text, since=phase.started_at, offer=offer)


def _run_causes(run: RunFact, wall: Wall) -> Iterator[Cause]:
    if run.state in ("RUNNING", "CLAIMED"):
        until = "" if run.timeout_at is None else f", until {wall.at(run.timeout_at)} at the latest"
        yield Cause(kind="execution", text=f"it is being executed{until}", until_at=run.timeout_at)
    elif run.waits == "later":
        kind = "retry" if run.attempt > 1 else "schedule"
        yield Cause(
            kind=kind,
            text=f"attempt {run.attempt} is due {wall.coming(run.due_at)}",
            clears=Clears.TIME,
            earliest_at=run.due_at,
        )
    elif run.waits == "paused":
        for pause in run.pauses:
            yield Cause(
                kind="pause",
                text=pause_words(pause),
                clears=Clears.PERSON,
                since=pause.since,
                offer=commands.resume(pause),
            )
    elif run.waits == "blocked":
        front = run.behind or "an earlier run"
        text = f"{front} has not ended, and runs of one ordering key follow each other"
        yield Cause(kind="ordering_key", text=text)
    elif run.waits == "limited":
        yield from _limit_causes(run, wall)
    elif run.waits == "ready":
        yield from _worker_causes(run)


def _limit_causes(run: RunFact, wall: Wall) -> Iterator[Cause]:
    lacking = [limit for limit in run.limits if limit.lacks]
    if not lacking:
        text = "it is about to take its turn" if run.limits else "it is about to stand in line"
        yield Cause(kind="limit", text=f"{text} for {limit_names([k.name for k in run.limits])}")
    for limit in lacking:
        if limit.most == 0:
            text = f"nobody may hold limit {limit.name}: its capacity is 0"
            offer = commands.open_limit(limit.name)
            yield Cause(kind="limit", text=text, clears=Clears.PERSON, offer=offer)
        elif limit.tokens_at is not None:
            text = f"the rate of limit {limit.name} is used up{line_words(limit)}"
            at = limit.tokens_at
            yield Cause(kind="limit", text=text, clears=Clears.TIME, earliest_at=at)
        else:
            text = f"limit {limit.name} has no room for it{line_words(limit)}"
            holders = tuple(_holder_causes(limit, wall))
            offer = commands.show_limit(limit.name)
            yield Cause(kind="limit", text=text, children=holders, offer=offer)


def _holder_causes(limit: LimitFact, wall: Wall) -> Iterator[Cause]:
    for one in limit.holders:
        much = f" {one.weight} of it" if one.weight > 1 else ""
        until = "" if one.until_at is None else f", until {wall.at(one.until_at)} at the latest"
        text = f"{one.holder} {one.doing}{much} since {wall.at(one.since)}{until}"
        yield Cause(kind="holder", text=text, since=one.since, until_at=one.until_at)
    if limit.has_others:
        yield Cause(kind="holder", text="held by others")


def _worker_causes(run: RunFact) -> Iterator[Cause]:
    where = "external workers" if run.is_external else f"pool {run.pool}"
    if run.workers == 0 and not run.is_external:
        yield Cause(
            kind="worker",
            text=f"no worker of {where} is alive",
            clears=Clears.PERSON,
            offer=commands.worker(run.pool),
        )
        return
    known = f" ({run.workers} alive)" if run.workers is not None and not run.is_external else ""
    yield Cause(kind="worker", text=f"no worker of {where} has taken it yet{known}")
    ahead = ahead_words(run)
    if ahead and run.ahead:
        yield Cause(kind="fairness", text=f"{ahead}: priority first, then customers by turns")


def _joined(cause: Cause) -> Cause:
    """A parent clears when its causes have: not before the last of those that know when."""
    if not cause.children:
        return cause
    known = [child.earliest_at for child in cause.children if child.earliest_at is not None]
    ways = [child.clears for child in cause.children]
    clears = next((way for way in (Clears.PERSON, Clears.EVENT) if way in ways), Clears.TIME)
    return Cause(
        kind=cause.kind,
        text=cause.text,
        clears=clears,
        since=cause.since,
        earliest_at=max(known, default=None),
        until_at=cause.until_at,
        offer=cause.offer,
        children=cause.children,
    )


def _capped(cause: Cause, until: Micros) -> Cause:
    """Stragglers are not waited for beyond their deadline, whatever becomes of them."""
    earliest = until if cause.earliest_at is None else min(cause.earliest_at, until)
    timed = cause.clears is not Clears.TIME and cause.earliest_at is None
    return Cause(
        kind=cause.kind,
        text=cause.text,
        clears=Clears.TIME if timed else cause.clears,
        since=cause.since,
        earliest_at=earliest,
        until_at=until,
        offer=cause.offer,
        children=cause.children,
    )


def _covered(flow: FlowFact, phase: PhaseFact) -> set[str]:
    """A phase and everything before it: what its cause has told of."""
    found = {phase.name}
    for name in phase.after:
        found |= _covered(flow, flow.phase(name))
    return found
