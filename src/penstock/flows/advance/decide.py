"""Judging one flow: phases end, gates are asked, the flow ends. Rules over a `Book`, no store.

The order matters: what ended is settled first, so that what follows is judged on it; the flow's own
end comes last. Everything that comes of it is collected in `Changes` and written by it in one
transaction. `cascade.advance` calls `judge` for each flow it has locked.
"""

from __future__ import annotations

import json
from typing import Any, Final

from penstock.core.clock import HOUR
from penstock.flows.advance.change_set import CASCADE, Changes
from penstock.flows.advance.gate_deadlocks import ring_of
from penstock.flows.advance.late_data import late_data
from penstock.flows.advance.snapshot import Book, Evidence, Stir, Wanted
from penstock.flows.cascade import (
    Ask,
    Completion,
    FlowState,
    deadline_states,
    evaluable,
    flow_state,
    is_set_complete,
    phase_end,
    straggler_deadline,
)
from penstock.flows.gates import breaker as breakers
from penstock.flows.gates.breaker import BreakerState
from penstock.flows.gates.evidence import Assessment, assess
from penstock.flows.gates.gate import decide
from penstock.flows.gates.verdict import Decision, Effect, GateInput, GateStatus, Verdict
from penstock.flows.phases import DONE, WAITS_FOR_GATE, PhaseState, gate_state

_OVER: Final = frozenset({*DONE, PhaseState.SKIPPED})


def judge(book: Book, stir: Stir, changes: Changes) -> None:
    """Bring one flow as far as it goes."""
    _count_ends(book, stir, changes)
    if _is_idle(book, stir):
        return
    if book.flow.is_open:
        _end_phases(book, changes)
        if not _end_flow(book, changes):
            if book.behind is None:
                _ask_gates(book, stir, changes)
            _keep_watch(book, stir)
            _end_flow(book, changes)
    late = late_data(book, stir)
    if late is not None:
        changes.late.append(late)


def _is_idle(book: Book, stir: Stir) -> bool:
    """Whether all that happened is that somebody completed for whom others are still awaited.

    Most reports are of this kind, and nothing follows from them.
    """
    if stir.everything or stir.due or stir.evidence or stir.failures or not book.flow.is_open:
        return False
    plan = book.planned.plan
    known = {phase.name: phase for phase in plan.phases}
    for name in stir.phases:
        phase = known.get(name)
        if phase is None or book.row(name).state != PhaseState.IN_PROGRESS:
            return False
        if phase_end(phase, book.progress(name), book.now) is not None:
            return False
        if any(name in later.after and later.terms.on == "each" for later in plan.phases):
            return False
    return book.flow.deadline_at is not None and book.now < book.flow.deadline_at


def _count_ends(book: Book, stir: Stir, changes: Changes) -> None:
    """Dead runs count against the breaker of their phase; a probe that completes closes it."""
    for phase, count in stir.failures.items():
        for _ in range(count):
            failed = breakers.report(book.breaker(phase), Effect.FAILURE, book.now)
            book.breaker_put(phase, failed)
    for phase in sorted(stir.phases - set(stir.failures)):
        since = book.breaker(phase).probe_at
        done = [seen.at for seen in book.seen_of([phase]) if seen.status != Completion.FAILED]
        if since is not None and max(done, default=-1) >= since:
            _close_breaker(book, phase, changes)


def _close_breaker(book: Book, phase: str, changes: Changes) -> None:
    """The work of a phase came to something: its failures in a row are over."""
    before = book.breaker(phase)
    book.breaker_put(phase, breakers.report(before, Effect.SUCCESS, book.now))
    if before.opened_at is not None:
        changes.closed.append(book.flow)


def _end_phases(book: Book, changes: Changes) -> None:
    reported = {seen.phase for seen in book.seen}
    for phase in book.planned.plan.phases:
        row = book.row(phase.name)
        if row.state in (PhaseState.COMPLETE, PhaseState.SKIPPED):
            continue
        if row.state in WAITS_FOR_GATE and phase.name not in reported:
            continue
        progress = book.progress(phase.name)
        if row.state in WAITS_FOR_GATE and progress.seen and is_set_complete(phase, progress):
            # Everybody reported from outside before the gate was asked: there is nothing to start.
            began = min(seen.at for seen in book.seen_of([phase.name]))
            state = PhaseState.IN_PROGRESS.value
            book.put(phase.name, state=state, started_at=began, look_at=None)
            row = book.row(phase.name)
        complete = row.state in (PhaseState.FAILED, PhaseState.DEGRADED) and is_set_complete(
            phase, progress
        )
        if row.state == PhaseState.FAILED and complete:
            book.put(phase.name, state=PhaseState.IN_PROGRESS.value, ended_at=None)
        elif row.state == PhaseState.DEGRADED and complete:
            # The last straggler came: whole after all, unless something else was lacking.
            if not row.is_degraded and set(progress.seen.values()) <= {Completion.SUCCESS}:
                book.put(phase.name, state=PhaseState.COMPLETE.value)
                changes.phase_ended(book, phase, progress)
            continue
        if book.row(phase.name).state != PhaseState.IN_PROGRESS:
            continue
        end = phase_end(phase, book.progress(phase.name), book.now)
        if end is not None:
            book.put(phase.name, state=end.value, ended_at=book.now, look_at=None)
            changes.phase_ended(book, phase, progress)
            if end in DONE:
                _close_breaker(book, phase.name, changes)


def _end_flow(book: Book, changes: Changes) -> bool:
    """End the flow when its last phases have ended, or at its deadline."""
    flow = book.flow
    states = {book.row(phase.name).state for phase in book.planned.plan.phases}
    if flow.deadline_at is not None and book.now < flow.deadline_at and not states <= _OVER:
        return False
    state = flow_state(book.planned.plan, book.known(), now=book.now, opened_at=flow.created_at)
    if state is FlowState.OPEN:
        return False
    if state is FlowState.FAILED:
        for name, end in deadline_states(book.known()).items():
            book.put(name, state=end.value, ended_at=book.now, look_at=None)
    for (phase, processor), row in list(book.rows.items()):
        if row.look_at is not None or row.look_again:
            book.put(phase, processor, look_at=None, look_again=False)
    changes.flow_ended(book, state)
    return True


def _keep_watch(book: Book, stir: Stir) -> None:
    """Phases in progress are looked at again when their stragglers are due.

    What was due and could not be asked is awaited no more: its phase went on without it.
    """
    for (name, processor), gate in list(book.rows.items()):
        if gate.gate_id in stir.due and gate.look_at is not None and gate.look_at <= book.now:
            book.put(name, processor, look_at=None, look_again=False)
    for phase in book.planned.plan.phases:
        row = book.row(phase.name)
        if row.state == PhaseState.IN_PROGRESS:
            due = straggler_deadline(phase, book.progress(phase.name))
            book.put(phase.name, look_at=due)


def _ask_gates(book: Book, stir: Stir, changes: Changes) -> None:
    for ask in evaluable(book.planned.plan, book.known(), book.now):
        processor = ask.processor or ""
        row = book.row(ask.phase, processor)
        evidence = stir.evidence.get(row.gate_id)
        upstream = set(book.planned.plan.phase(ask.phase).after)
        is_first = row.waiting_since is None and row.state == PhaseState.PENDING
        is_due = row.gate_id in stir.due or stir.everything or bool(upstream & stir.phases)
        if not (is_first or is_due or evidence is not None):
            continue
        if book.breaker(ask.phase).state(book.now) is BreakerState.OPEN:
            _block(book, ask, changes)
            continue
        needs = book.planned.needs(ask.phase, processor)
        if needs and evidence is None:
            wanted = Wanted(book, ask, row.gate_id, _since(book, ask, stir))
            seen = None if changes.known is None else changes.known(wanted)
            if seen is None:
                changes.wanted.append(wanted)
                continue
            evidence = Evidence(token=0, sightings=seen)
        found: tuple[Assessment, ...] = ()
        if evidence is not None:
            found = tuple(
                assess(
                    need.dependency,
                    evidence.sightings.get(need.dependency.key),
                    judged_at=ask.judged_at or book.now,
                    age_counts=book.planned.judging.age_counts,
                    needed_by=need.needed_by,
                )
                for need in needs
            )
        given = gate_input(book, ask, found)
        decision = decide(given)
        _apply(book, ask, given, decision, changes, stir.source)


def _since(book: Book, ask: Ask, stir: Stir) -> int | None:
    """Return the moment before which nobody's look serves this gate.

    Not before what lies ahead of it ended or last reported. A look that is due shares with those
    that began since it was: results are kept for gates of the same moment, not for the next look.
    Whoever asks a gate again by hand wants to know what is there now.
    """
    row = book.row(ask.phase, ask.processor or "")
    after = book.planned.plan.phase(ask.phase).after
    moments = [seen.at for seen in book.seen_of(after)]
    moments += [at for at in (ask.judged_at,) if at is not None]
    if row.gate_id in stir.due and row.look_at is not None:
        moments.append(min(row.look_at, book.now))
    elif stir.everything and row.state != PhaseState.PENDING:
        moments.append(book.now)
    return max(moments, default=None)


def gate_input(book: Book, ask: Ask, found: tuple[Assessment, ...]) -> GateInput:
    """Everything the decision about a gate depends on."""
    flow, row = book.flow, book.row(ask.phase, ask.processor or "")
    after = book.planned.plan.phase(ask.phase).after
    return GateInput(
        mode=book.planned.judging,
        now=book.now,
        phase=ask.phase,
        processor=ask.processor,
        partition=flow.partition,
        assessments=found,
        upstream=ask.upstream,
        reported=tuple(s.quality for s in book.seen_of(after) if s.quality is not None),
        overrides=tuple(
            given
            for given in book.overrides
            if given.is_about(flow.customer_id, flow.pipeline, flow.partition, ask.phase)
        ),
        waited_us=0 if row.waiting_since is None else book.now - row.waiting_since,
        historical_tries=row.tries,
        cycle=ring_of(book, ask, found),
        set_complete=ask.set_complete,
        stragglers_passed=ask.stragglers_passed,
    )


def _block(book: Book, ask: Ask, changes: Changes) -> None:
    """The breaker is open: nothing is tried before it lets a probe through."""
    processor = ask.processor or ""
    again = book.breaker(ask.phase).opens_again_at()
    row = book.row(ask.phase, processor)
    if row.state != PhaseState.BLOCKED:
        changes.breaker_open(book, ask)
    look_at = max(again or 0, book.now + 1) if again is not None else book.now + HOUR
    book.put(ask.phase, processor, state=PhaseState.BLOCKED.value, look_at=look_at)
    _mirror(book, ask)


def _apply(
    book: Book,
    ask: Ask,
    given: GateInput,
    decision: Decision,
    changes: Changes,
    source: str | None,
) -> None:
    """Write a decision into the book: the phase, the breaker, what starts."""
    processor = ask.processor or ""
    row = book.row(ask.phase, processor)
    starts = decision.verdict.starts
    _, asked = breakers.ask(book.breaker(ask.phase), book.now)
    # What starts has come to nothing yet: its runs tell the breaker, or the end of its phase.
    book.breaker_put(
        ask.phase, asked if starts else breakers.report(asked, decision.effect, book.now)
    )
    short = decision.status is GateStatus.MISSING_HISTORICAL
    seen = {a.key: [a.rows, a.expected, a.days_present, str(a.status)] for a in given.assessments}
    told = told_of(book, ask, decision)
    waits = decision.verdict is Verdict.WAIT
    book.put(
        ask.phase,
        processor,
        state=gate_state(decision.verdict).value,
        started_at=book.now if starts else row.started_at,
        look_at=None if starts else book.now if row.look_again else decision.recheck_at,
        look_again=False,
        waiting_since=row.waiting_since or (book.now if waits else None),
        tries=row.tries + 1 if short and waits else row.tries,
        is_degraded=bool(told.get("is_degraded")),
        gate=json.dumps(told, sort_keys=True) if told else None,
        evidence=json.dumps(seen, sort_keys=True) if seen else None,
    )
    by = source or (book.flow.trigger_source if book.begins_with(ask) else CASCADE)
    changes.decided(book, ask, (given, decision), row, by)
    _mirror(book, ask)
    if starts:
        changes.started(book, ask, decision, by)


def told_of(book: Book, ask: Ask, decision: Decision) -> dict[str, Any]:
    """What the runs behind a gate are told; empty when there is nothing to say.

    What earlier phases lacked is carried on: degraded is data.
    """
    plan = book.planned.plan
    before = [book.row(name) for name in plan.phase(ask.phase).after]
    earlier = [item for row in before for item in row.told.get("missing", ())]
    lacking = [] if ask.upstream is None else [*ask.upstream.outstanding, *ask.upstream.failed]
    missing = list(dict.fromkeys([*earlier, *decision.missing, *lacking]))
    is_degraded = (
        decision.verdict is Verdict.PROCEED_DEGRADED
        or any(row.is_degraded or row.state == PhaseState.DEGRADED for row in before)
        or bool(missing)
    )
    plain = decision.verdict is Verdict.PROCEED and not is_degraded
    if plain and not decision.overrides_used:
        return {}
    told: dict[str, Any] = {
        "verdict": decision.verdict.value,
        "status": decision.status.value,
        "is_degraded": is_degraded and decision.verdict.starts,
        "missing": missing,
        "stale": list(decision.stale),
        "reasons": list(decision.reasons),
        "warnings": list(decision.warnings),
        "completeness": decision.completeness,
        "quality": decision.quality,
    }
    if decision.failure_type is not None:
        told["failure_type"] = decision.failure_type
    if decision.waits_until is not None:
        told["waits_until"] = decision.waits_until
    if decision.overrides_used:
        told["overrides"] = list(decision.overrides_used)
        told["override_reason"] = "; ".join(
            given.reason for given in book.overrides if given.id in decision.overrides_used
        )
    return told


def _mirror(book: Book, ask: Ask) -> None:
    """A phase whose processors have gates of their own stands where the best of them stands."""
    if ask.processor is None:
        return
    gates = [row for (name, p), row in book.rows.items() if name == ask.phase and p]
    phase = book.row(ask.phase)
    if any(row.started_at is not None for row in gates):
        if phase.state in WAITS_FOR_GATE:
            book.put(ask.phase, state=PhaseState.IN_PROGRESS.value, started_at=book.now)
        lacking = [row.told for row in gates if row.started_at is not None and row.is_degraded]
        if lacking:
            together = json.dumps(_together(lacking), sort_keys=True)
            book.put(ask.phase, is_degraded=True, gate=together)
        return
    states = {row.state for row in gates}
    state = PhaseState.WAITING if PhaseState.WAITING in states else PhaseState.BLOCKED
    if phase.state != state and phase.state in WAITS_FOR_GATE:
        book.put(ask.phase, state=state.value)


def _together(told: list[dict[str, Any]]) -> dict[str, Any]:
    """What several gates of one phase said, as the phases behind it are to hear it."""
    said = dict(told[0])
    for name in ("missing", "stale", "reasons", "warnings"):
        said[name] = list(dict.fromkeys(item for one in told for item in one.get(name, ())))
    for name in ("completeness", "quality"):
        said[name] = min(one[name] for one in told)
    return said


def is_done(state: str) -> bool:
    """Whether a phase did its work."""
    return PhaseState(state) in DONE
