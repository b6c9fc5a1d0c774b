"""Explanations of why a flow or run makes no progress: a tree of causes, each with its earliest
end.

A cause blocks its parent; a parent clears when all its causes have cleared. `earliest_at` is a
lower bound for causes that clear with time (a retry, a recheck, a breaker), and None for those that
only an event or a person can clear. Pure, over facts: `flows.explain.client` loads them, and the
API and the CLI show the same tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from penstock.core.clock import Micros
from penstock.flows.explain import commands
from penstock.flows.explain.explain import STATE_LABELS, headline_of, is_observed
from penstock.flows.explain.facts import (
    FlowFact,
    GateFact,
    LimitFact,
    PauseFact,
    PhaseFact,
    ProcessorFact,
    RunFact,
    RunGateFact,
)
from penstock.flows.explain.processor_messages import (
    describe_evidence,
    describe_failures,
    describe_incapable_workers,
    describe_items,
    describe_last_failure,
    describe_limit_usage,
    describe_maximum,
    describe_missing_scheduler,
    describe_pause,
    describe_processor,
    describe_queue_position,
    describe_run,
    list_limit_names,
)
from penstock.flows.explain.records import Suggestion
from penstock.flows.explain.times import LocalClock

DONE = ("COMPLETE", "DEGRADED", "SKIPPED")


class Clears(StrEnum):
    """What can clear a cause."""

    TIME = "time"
    EVENT = "event"
    PERSON = "person"
    NEVER = "never"
    """Nothing is pending: the flow, phase or run has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Something that blocks progress, with its own causes as `children`."""

    kind: str
    text: str
    clears: Clears = Clears.EVENT
    since: Micros | None = None
    earliest_at: Micros | None = None
    until_at: Micros | None = None
    """Time at which waiting for it ends even if it has not cleared; None if it never does."""
    offer: Suggestion | None = None
    children: tuple[Cause, ...] = ()


def why_flow(flow: FlowFact, now: Micros, phase: str | None = None) -> Cause:
    """Return why a flow, or one of its phases, has not ended."""
    wall = LocalClock(now, flow.timezone)
    where = f"{flow.pipeline} {flow.partition} ({flow.mode}, generation {flow.generation})"
    if phase is not None:
        found = flow.phase(phase)
        return _phase(flow, found, wall, frozenset())
    if flow.ended_at is not None:
        text = f"{where} ended {flow.state} at {wall.at(flow.ended_at)}: nothing is pending"
        return Cause(kind="flow", text=text, clears=Clears.NEVER, since=flow.ended_at)
    followed = {name for one in flow.phases for name in one.after}
    last = [one for one in flow.phases if one.name not in followed and one.state not in DONE]
    open_ = last or [one for one in flow.phases if one.state not in DONE]
    seen: set[str] = set()
    children = []
    for one in open_:
        children.append(_phase(flow, one, wall, frozenset(seen)))
        seen |= _covered(flow, one)
    return joined(
        Cause(
            kind="flow",
            text=f"{where} has been open since {wall.at(flow.opened_at)}",
            since=flow.opened_at,
            until_at=flow.deadline_at,
            children=tuple(children),
        )
    )


def pause_cause(pause: PauseFact) -> Cause:
    """Return a pause as a cause that a person clears by resuming."""
    return Cause(
        kind="pause",
        text=describe_pause(pause),
        clears=Clears.PERSON,
        since=pause.since,
        offer=commands.resume(pause),
    )


def scheduler_cause(text: str) -> Cause:
    """Return the lack of a scheduler as a cause that a person clears by starting one."""
    return Cause(kind="scheduler", text=text, clears=Clears.PERSON, offer=commands.scheduler())


def why_run(run: RunFact, wall: LocalClock, retry: RunFact | None = None) -> Cause:
    """Return why a run has not ended or not started; retry: its later attempt, if that is live."""
    name = f"{run.run_id} ({run.processor})"
    if not run.is_live:
        at = "" if run.ended_at is None else f" at {wall.at(run.ended_at)}"
        text = f"{name} ended {run.state}{at}"
        if retry is None:
            text = f"{text}: nothing is pending"
            return Cause(kind="run", text=text, clears=Clears.NEVER, since=run.ended_at)
        text = f"{text}: attempt {run.attempt} of it is retried by attempt {retry.attempt}"
        child = why_run(retry, wall)
        return joined(Cause(kind="run", text=text, since=run.ended_at, children=(child,)))
    return joined(
        Cause(
            kind="run",
            text=f"{name} {describe_run(run, wall)}{_expiry(run, wall)}",
            since=run.since,
            until_at=run.timeout_at or run.expires_at,
            children=tuple(_run_causes(run, wall)),
        )
    )


def _expiry(run: RunFact, wall: LocalClock) -> str:
    return "" if run.expires_at is None else f"; it expires {wall.upcoming(run.expires_at)}"


def walk(cause: Cause, depth: int = 0) -> Iterator[tuple[int, Cause]]:
    """Yield the tree as (depth, cause) pairs, parents first."""
    yield depth, cause
    for child in cause.children:
        yield from walk(child, depth + 1)


def _phase(flow: FlowFact, phase: PhaseFact, wall: LocalClock, seen: frozenset[str]) -> Cause:
    headline, until = headline_of(flow, phase, wall)
    text = f"{phase.name} is {STATE_LABELS[phase.state]}" + (f": {headline}" if headline else "")
    if phase.state == "IN_PROGRESS" and phase.started_at is not None:
        # Its causes give the details.
        count = f"{phase.completed_count}/{len(phase.expected)} done"
        text = f"{phase.name} has been running since {wall.at(phase.started_at)}, {count}"
        if until is not None:
            text += f", stragglers until {wall.at(until)}"
    if phase.state in DONE:
        return Cause(kind="phase", text=text, clears=Clears.NEVER, since=phase.ended_at)
    if phase.name in seen:
        return Cause(kind="phase", text=f"{phase.name} (see above)")
    if phase.state == "FAILED":
        text = f"{phase.name} failed{' at' if phase.ended_at is not None else ''} {headline}"
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
    if not causes and phase.state == "PENDING" and flow.preceding_flow_id is not None:
        text_ahead = (
            f"{flow.preceding_flow_id} has not ended, and flows of its config run one at a time"
        )
        causes.append(
            Cause(kind="flow", text=text_ahead, offer=commands.why_of(flow.preceding_flow_id))
        )
    elif not causes and phase.state == "PENDING":
        causes.append(
            Cause(
                kind="orchestrator",
                text="no orchestrator has evaluated it yet",
                clears=Clears.TIME,
                earliest_at=wall.now,
            )
        )
    whole = joined(
        Cause(kind="phase", text=text, since=phase.since, until_at=until, children=tuple(causes))
    )
    if phase.state == "IN_PROGRESS" and phase.stragglers_until is not None:
        return _capped(whole, phase.stragglers_until)
    return whole


def _gates(flow: FlowFact, phase: PhaseFact, wall: LocalClock) -> Iterator[Cause]:
    breaker = phase.breaker
    if breaker is not None and breaker.is_open and phase.state != "IN_PROGRESS":
        yield Cause(
            kind="breaker",
            text=f"the breaker of {phase.name} is open ({breaker.failures} consecutive failures)",
            clears=Clears.TIME,
            earliest_at=breaker.next_probe_at,
            until_at=breaker.next_probe_at,
        )
        return
    for gate in (phase.gate, *phase.gates):
        if gate is not None and gate.state in ("WAITING", "BLOCKED"):
            yield _gate(flow, phase, gate, wall)


def _gate(flow: FlowFact, phase: PhaseFact, gate: GateFact, wall: LocalClock) -> Cause:
    decision = gate.decision
    name = f"the gate of {gate.processor or phase.name}"
    if decision is None:
        return Cause(
            kind="gate",
            text=f"{name} is being evaluated",
            clears=Clears.TIME,
            since=gate.since,
            earliest_at=gate.probe_at,
        )
    waiting = gate.waiting_since if decision.verdict == "WAIT" else None
    since = gate.since if waiting is None else waiting
    reasons = " ".join(decision.reasons)
    text = f"{name} has returned {decision.verdict} since {wall.at(since)}: {reasons}"
    lacking = [item for item in decision.evidence if item.status != "COMPLETE"]
    children = tuple(
        Cause(
            kind="dependency",
            text=describe_evidence(item, reasons),
            offer=commands.override(flow, phase.name, item.table)
            if item.table in decision.missing and decision.status != "missing_required"
            else None,
        )
        for item in lacking
        if item.kind != "optional"
    )
    if decision.verdict == "WAIT":
        recheck_at = gate.probe_at if gate.probe_at is not None else decision.recheck_at
        return Cause(
            kind="gate",
            text=text,
            clears=Clears.TIME,
            since=since,
            earliest_at=recheck_at,
            until_at=decision.waits_until,
            children=children,
        )
    item = phase.intervention
    if item is not None:
        offer = commands.resolve(item)
        children += (
            Cause(
                kind="intervention",
                text=f"{item.intervention_id} is waiting for a person",
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


def _processors(flow: FlowFact, phase: PhaseFact, wall: LocalClock) -> Iterator[Cause]:
    if is_observed(phase):
        text = "the cascade is set to observe: a schedule must start the processors"
        yield Cause(kind="observe", text=text, since=phase.started_at)
        return
    held = {gate.processor for gate in phase.gates if gate.trigger is None}
    for processor in phase.processors:
        if not processor.is_done and processor.name not in held:
            yield _processor(flow, phase, processor, wall)


def _processor(
    flow: FlowFact, phase: PhaseFact, processor: ProcessorFact, wall: LocalClock
) -> Cause:
    live, text = processor.live, describe_processor(processor, wall)
    items = processor.items
    if items is not None and (live is None or items.failed > items.total - items.required):
        is_over = processor.status == "failed"
        offer = commands.retry_items(flow, processor.name) if items.failed else None
        clears = Clears.PERSON if is_over else Clears.EVENT
        return Cause(kind="items", text=text, clears=clears, since=phase.started_at, offer=offer)
    if live is not None:
        failed = describe_items(items) if items else describe_failures(processor.failures)
        return joined(
            Cause(
                kind="processor",
                text=f"{processor.name} has not completed"
                + (f"; it {failed}{describe_last_failure(processor)}" if failed else ""),
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


def _run_causes(run: RunFact, wall: LocalClock) -> Iterator[Cause]:
    if run.state in ("RUNNING", "CLAIMED"):
        until = "" if run.timeout_at is None else f"; it times out at {wall.at(run.timeout_at)}"
        where = "" if run.endpoint is None else f" at {run.endpoint}"
        is_overdue = run.heartbeat is not None and run.heartbeat.is_overdue(wall.now)
        doing = "it may no longer be executing" if is_overdue else "it is executing"
        yield Cause(kind="execution", text=f"{doing}{where}{until}", until_at=run.timeout_at)
    elif run.pending_reason == "later" and run.lacks_scheduler:
        yield scheduler_cause(describe_missing_scheduler())
    elif run.pending_reason == "later":
        kind = "retry" if run.attempt > 1 else "schedule"
        yield Cause(
            kind=kind,
            text=f"attempt {run.attempt} is due {wall.upcoming(run.due_at)}",
            clears=Clears.TIME,
            earliest_at=run.due_at,
        )
    elif run.pending_reason == "paused":
        yield from map(pause_cause, run.pauses)
        if not run.pauses:  # the caller may not see it
            yield Cause(kind="pause", text="a pause holds it", clears=Clears.PERSON)
    elif run.pending_reason == "blocked":
        front = run.preceding_run_id or "an earlier run"
        text = f"{front} has not ended, and runs with the same ordering key run one at a time"
        yield Cause(kind="ordering_key", text=text)
    elif run.pending_reason == "suspended" and run.sub_flow_id is not None:
        text = f"it triggered {run.sub_flow_id} and waits for it to end"
        yield Cause(kind="flow", text=text, since=run.since, offer=commands.why_of(run.sub_flow_id))
    elif run.pending_reason == "limited":
        yield from _limit_causes(run, wall)
    elif run.pending_reason == "gated" and run.gate is not None:
        yield _run_gate_cause(run, run.gate, wall)
    elif run.pending_reason == "ready":
        yield from _worker_causes(run)


def _run_gate_cause(run: RunFact, gate: RunGateFact, wall: LocalClock) -> Cause:
    name = f"the gate of {run.processor}"
    if gate.verdict is None:
        text = f"{name} is being evaluated"
    else:
        since = wall.at(gate.since)
        text = f"{name} has returned {gate.verdict} since {since}: {gate.reason}"
    return Cause(
        kind="gate",
        text=text,
        clears=Clears.PERSON if gate.needs_a_person else Clears.TIME,
        since=gate.since,
        earliest_at=None if gate.needs_a_person else gate.probe_at,
        until_at=gate.until_at,
        offer=None
        if gate.verdict is None
        else commands.approve(gate.pipeline, gate.partition, run.phase, gate.customer),
    )


def _limit_causes(run: RunFact, wall: LocalClock) -> Iterator[Cause]:
    lacking = [limit for limit in run.limits if limit.is_exhausted]
    if not lacking:
        text = "it is about to take" if run.limits else "it is about to join the queue of"
        yield Cause(kind="limit", text=f"{text} {list_limit_names([k.name for k in run.limits])}")
    for limit in lacking:
        if limit.capacity == 0:
            text = f"limit {limit.name} is closed: its capacity is 0"
            offer = commands.open_limit(limit.name)
            yield Cause(kind="limit", text=text, clears=Clears.PERSON, offer=offer)
        elif limit.tokens_at is not None:
            text = f"the rate of limit {limit.name} is used up{describe_limit_usage(limit)}"
            at = limit.tokens_at
            yield Cause(kind="limit", text=text, clears=Clears.TIME, earliest_at=at)
        else:
            text = f"limit {limit.name} has no free capacity for it{describe_limit_usage(limit)}"
            holders = tuple(_holder_causes(limit, wall))
            offer = commands.show_limit(limit.name)
            if limit.customer is not None:
                text = describe_maximum(limit)
                offer = commands.set_concurrency(limit.customer)
            yield Cause(kind="limit", text=text, children=holders, offer=offer)


def _holder_causes(limit: LimitFact, wall: LocalClock) -> Iterator[Cause]:
    for one in limit.holders:
        much = f" {one.weight} of it" if one.weight > 1 else ""
        until = "" if one.until_at is None else f", until {wall.at(one.until_at)} at the latest"
        text = f"{one.holder} {one.activity}{much} since {wall.at(one.since)}{until}"
        yield Cause(kind="holder", text=text, since=one.since, until_at=one.until_at)
    if limit.has_others:
        yield Cause(kind="holder", text="other holders (not shown)")


def _worker_causes(run: RunFact) -> Iterator[Cause]:
    where = f"pool {run.pool}"
    worker = "external worker" if run.is_external else f"worker in {where}"
    lacking = ""
    if run.workers == 0 and not run.is_external:
        lacking = f"there is no live worker in {where}"
    elif run.is_unclaimed:
        lacking = f"{describe_incapable_workers(run)}: there is capacity, but it is not claimed"
    if lacking:
        offer = commands.worker(run.pool)
        yield Cause(kind="worker", text=lacking, clears=Clears.PERSON, offer=offer)
        return
    known = f" ({run.workers} live)" if run.workers is not None and not run.is_external else ""
    text = f"no {worker} has claimed it yet{known}"
    if run.endpoint is not None:
        text = f"no dispatcher has sent it to {run.endpoint} yet: every worker runs one"
    yield Cause(kind="worker", text=text)
    ahead = describe_queue_position(run)
    if ahead and run.runs_ahead:
        text = f"{ahead}: ordered by priority, then fairly between customers"
        yield Cause(kind="fairness", text=text)


def joined(cause: Cause) -> Cause:
    """Return a parent with `clears` and `earliest_at` derived from its causes.

    It clears no earlier than the latest known time among them.
    """
    if not cause.children:
        return cause
    known = [child.earliest_at for child in cause.children if child.earliest_at is not None]
    ways = [child.clears for child in cause.children]
    order = (Clears.PERSON, Clears.EVENT, Clears.TIME)
    clears = next((way for way in order if way in ways), Clears.NEVER)
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
    """Return a cause that clears at `until` at the latest, because stragglers are dropped then."""
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
    """Return a phase and all phases before it, which its cause already describes."""
    found = {phase.name}
    for name in phase.after:
        found |= _covered(flow, flow.phase(name))
    return found
