"""Evaluation of one flow: end phases, evaluate gates, end the flow. Pure rules.

The order matters: phases end first, so that later gates are evaluated on their result; the flow's
own end comes last. All results are collected in a `ChangeSet`, which `write` stores in one
transaction. `advance` calls `evaluate_flow` for the snapshot of each flow it has locked.
"""

from __future__ import annotations

import json
from typing import Any, Final

from penstock.core.clock import HOUR
from penstock.flows.advance.announcements import CASCADE_SOURCE, SELF_HEAL_SOURCE
from penstock.flows.advance.change_set import ChangeSet
from penstock.flows.advance.effects import (
    close_breaker,
    count_deadline,
    count_effect,
    count_ends,
    record_healed,
)
from penstock.flows.advance.gate_deadlocks import gate_deadlock
from penstock.flows.advance.late_data import find_late_data
from penstock.flows.advance.messages import decision_context, phase_alert_key
from penstock.flows.advance.snapshot import Evidence, FlowSnapshot, NeededProbe, Wakeup
from penstock.flows.cascade import (
    RANKS,
    CompletionStatus,
    FlowState,
    GateRequest,
    flow_state,
    gates_to_evaluate,
    is_set_complete,
    phase_end_state,
    states_at_deadline,
    straggler_deadline,
)
from penstock.flows.gates import breaker as breakers
from penstock.flows.gates.breaker import BreakerState
from penstock.flows.gates.evidence import Assessment, assess
from penstock.flows.gates.gate import decide
from penstock.flows.gates.verdict import (
    RULES,
    Decision,
    GateInput,
    GateStatus,
    Verdict,
)
from penstock.flows.items.fan_in import fan_in_status
from penstock.flows.phases import DONE, ENDED, WAITS_FOR_GATE, PhaseState, state_for_verdict
from penstock.flows.rows import CompletionRow, NewCompletion
from penstock.pipelines.plan import PhasePlan

_OVER: Final = frozenset({*DONE, PhaseState.SKIPPED})


def evaluate_flow(snapshot: FlowSnapshot, wakeup: Wakeup, changes: ChangeSet) -> None:
    """Advance one flow as far as possible, and announce the changes."""
    _fan_in(snapshot, wakeup, changes)
    changes.completed(snapshot, wakeup.reported)
    count_ends(snapshot, wakeup, changes)
    if not _is_idle(snapshot, wakeup):
        before = dict(snapshot.rows) if wakeup.source == SELF_HEAL_SOURCE else {}
        _advance(snapshot, wakeup, changes)
        if before:
            record_healed(snapshot, before, changes)
        changes.states_changed(snapshot)


def _fan_in(snapshot: FlowSnapshot, wakeup: Wakeup, changes: ChangeSet) -> None:
    """Complete the processors whose items have ended; a later item may improve a completion."""
    for (phase, name), row in snapshot.expansions.items():
        if (phase, name) not in snapshot.planned.fan_outs or not snapshot.planned.plan.has_phase(
            phase
        ):
            continue
        deadline = straggler_deadline(snapshot.planned.plan.phase(phase), snapshot.progress(phase))
        status = fan_in_status(
            row,
            snapshot.planned.fan_outs[phase, name].min_items,
            stragglers_passed=deadline is not None and snapshot.now >= deadline,
        )
        before = snapshot.progress(phase).reports.get(name)
        if status is None or (before is not None and RANKS[status] <= RANKS[before]):
            continue
        # The reports of its items are stored under the flow; an empty object says to read them.
        entities = "{}" if (phase, name) in snapshot.planned.reporting else None
        seen = CompletionRow(
            row.flow_id, phase, name, status.value, snapshot.now, None, row.processor_key, None,
            None, row.records or None, entities,
        )  # fmt: skip
        snapshot.complete(seen)
        changes.fan_ins.append(
            NewCompletion(
                row.flow_id, row.processor_key, row.customer_key, status.value, snapshot.now,
                records=seen.records, entities=entities,
            )
        )  # fmt: skip
        wakeup.phases.add(phase)
        wakeup.reported.add((phase, name))
        if status is CompletionStatus.FAILED:
            wakeup.failures[phase] += 1


def _advance(snapshot: FlowSnapshot, wakeup: Wakeup, changes: ChangeSet) -> None:
    if snapshot.flow.is_open:
        count_deadline(snapshot, changes)
        _end_phases(snapshot, wakeup, changes)
        if not _end_flow(snapshot, changes):
            if snapshot.waits_for_flow is None:
                _evaluate_gates(snapshot, wakeup, changes)
            _schedule_checks(snapshot, wakeup)
            _end_flow(snapshot, changes)
    _resolve_healed(snapshot, wakeup, changes)
    late = find_late_data(snapshot, wakeup)
    if late is not None:
        changes.late.append(late)


def _resolve_healed(snapshot: FlowSnapshot, wakeup: Wakeup, changes: ChangeSet) -> None:
    """Resolve the alert about missing processors of an ended phase once the last has reported."""
    plan = snapshot.planned.plan
    for phase in [plan.phase(name) for name in sorted(wakeup.phases) if plan.has_phase(name)]:
        is_ended = snapshot.row(phase.name).state in ENDED
        if is_ended and is_set_complete(phase, snapshot.progress(phase.name)):
            changes.resolved.append(phase_alert_key(snapshot.flow.flow_id, phase.name))


def _is_idle(snapshot: FlowSnapshot, wakeup: Wakeup) -> bool:
    """Whether the only event is a completion in a phase that still awaits others.

    Most reports are of this kind and have no further effect.
    """
    if (
        wakeup.all_gates
        or wakeup.due
        or wakeup.evidence
        or wakeup.failures
        or wakeup.fallback
        or not snapshot.flow.is_open
    ):
        return False
    plan = snapshot.planned.plan
    for name in wakeup.phases:
        if not plan.has_phase(name) or snapshot.row(name).state != PhaseState.IN_PROGRESS:
            return False
        if phase_end_state(plan.phase(name), snapshot.progress(name), snapshot.now) is not None:
            return False
        if any(name in later.after and later.terms.on == "each" for later in plan.phases):
            return False
    return snapshot.flow.deadline_at is not None and snapshot.now < snapshot.flow.deadline_at


def _end_phases(snapshot: FlowSnapshot, wakeup: Wakeup, changes: ChangeSet) -> None:
    reported = {seen.phase for seen in snapshot.completions}
    for phase in snapshot.current_phases():
        row = snapshot.row(phase.name)
        if row.state in (PhaseState.COMPLETE, PhaseState.SKIPPED):
            continue
        if row.state in WAITS_FOR_GATE and phase.name not in reported:
            continue
        progress = snapshot.progress(phase.name)
        if row.state in WAITS_FOR_GATE and progress.reports and is_set_complete(phase, progress):
            # All processors reported externally before the gate was evaluated: there is nothing to
            # start.
            began = min(seen.at for seen in snapshot.completions_of([phase.name]))
            state = PhaseState.IN_PROGRESS.value
            snapshot.put(phase.name, state=state, started_at=began, probe_at=None)
            row = snapshot.row(phase.name)
        complete = row.state in (PhaseState.FAILED, PhaseState.DEGRADED) and is_set_complete(
            phase, progress
        )
        if row.state == PhaseState.FAILED and complete:
            snapshot.put(phase.name, state=PhaseState.IN_PROGRESS.value, ended_at=None)
        elif row.state == PhaseState.DEGRADED and complete:
            # The last outstanding processor reported: the phase is complete after all, unless other
            # data was missing.
            if not row.is_degraded and set(progress.reports.values()) <= {CompletionStatus.SUCCESS}:
                snapshot.put(phase.name, state=PhaseState.COMPLETE.value)
                changes.phase_ended(snapshot, phase, progress)
            continue
        if snapshot.row(phase.name).state != PhaseState.IN_PROGRESS:
            continue
        end = phase_end_state(phase, snapshot.progress(phase.name), snapshot.now)
        if end in DONE:
            end = _end_with_outputs(snapshot, phase, end, wakeup, changes)
        if end is not None:
            snapshot.put(phase.name, state=end.value, ended_at=snapshot.now, probe_at=None)
            changes.phase_ended(snapshot, phase, progress)
            if end in DONE:
                close_breaker(snapshot, phase.name, changes)


def _end_with_outputs(
    snapshot: FlowSnapshot, phase: PhasePlan, end: PhaseState, wakeup: Wakeup, changes: ChangeSet
) -> PhaseState | None:
    """Return the end state of a completed phase: the given one, or FAILED if a required output is
    incomplete.

    None until its outputs have been probed.
    """
    outputs = snapshot.outputs_of_done(phase.name)
    if not outputs:
        return end
    row = snapshot.row(phase.name)
    evidence = wakeup.evidence.get(row.gate_id)
    if evidence is None or not evidence.is_output:
        ask = GateRequest(
            phase=phase.name, processor=None, upstream=None, set_complete=True,
            stragglers_passed=False, judged_at=None,
        )  # fmt: skip
        since = max((seen.at for seen in snapshot.completions_of([phase.name])), default=None)
        wanted = NeededProbe(snapshot, ask, row.gate_id, since, is_output=True)
        seen = None if changes.known is None else changes.known(wanted)
        if seen is None:
            changes.wanted.append(wanted)
            return None
        evidence = Evidence(token=0, observations=seen, is_output=True)
    found = [
        assess(
            one.dependency,
            evidence.observations.get(one.dependency.key),
            judged_at=snapshot.now,
            age_counts=False,
            needed_by=one.needed_by,
        )
        for one in outputs
    ]
    short = [a for a in found if a.absent or a.completeness < 100]
    changes.outputs_probed(snapshot, phase, short)
    return PhaseState.FAILED if any(a.fail_if_missing for a in short) else end


def _end_flow(snapshot: FlowSnapshot, changes: ChangeSet) -> bool:
    """End the flow when its last phases have ended, or at its deadline."""
    flow = snapshot.flow
    if snapshot.only is not None:
        return False
    if (
        flow.deadline_at is not None
        and snapshot.now < flow.deadline_at
        and any(row.state not in _OVER for (_, part), row in snapshot.rows.items() if not part)
    ):
        return False
    # Without a deadline it waits for the flow before it: it has not begun.
    began = snapshot.now if flow.deadline_at is None else flow.begun_at
    plan, progress = snapshot.planned.plan, snapshot.all_progress()
    state = flow_state(plan, progress, now=snapshot.now, opened_at=began)
    if state is FlowState.OPEN:
        return False
    if state is FlowState.FAILED:
        for name, end in states_at_deadline(snapshot.all_progress()).items():
            snapshot.put(name, state=end.value, ended_at=snapshot.now, probe_at=None)
    for (phase, processor), row in list(snapshot.rows.items()):
        if row.probe_at is not None or row.probe_again:
            snapshot.put(phase, processor, probe_at=None, probe_again=False)
    changes.flow_ended(snapshot, state)
    return True


def _schedule_checks(snapshot: FlowSnapshot, wakeup: Wakeup) -> None:
    """Schedule the next check of phases in progress for their straggler deadline.

    Due gates that could not be evaluated are no longer scheduled: their phase continued without
    them.
    """
    for (name, processor), gate in list(snapshot.rows.items()) if wakeup.due else ():
        if (
            gate.gate_id in wakeup.due
            and gate.probe_at is not None
            and gate.probe_at <= snapshot.now
        ):
            snapshot.put(name, processor, probe_at=None, probe_again=False)
    for phase in snapshot.current_phases():
        row = snapshot.row(phase.name)
        if row.state == PhaseState.IN_PROGRESS:
            due = straggler_deadline(phase, snapshot.progress(phase.name))
            snapshot.put(phase.name, probe_at=due)


def _evaluate_gates(snapshot: FlowSnapshot, wakeup: Wakeup, changes: ChangeSet) -> None:
    for ask in gates_to_evaluate(
        snapshot.planned.plan,
        snapshot.all_progress(),
        snapshot.now,
        phases=snapshot.current_phases(),
        fallback=wakeup.fallback,
    ):
        processor = ask.processor or ""
        row = snapshot.row(ask.phase, processor)
        evidence = wakeup.evidence.get(row.gate_id)
        if evidence is not None and evidence.is_output:
            evidence = None
        upstream = set(snapshot.planned.plan.phase(ask.phase).after)
        is_first = row.waiting_since is None and row.state == PhaseState.PENDING
        is_due = row.gate_id in wakeup.due or wakeup.all_gates or bool(upstream & wakeup.phases)
        is_due = is_due or ask.phase in wakeup.fallback
        if not (is_first or is_due or evidence is not None):
            continue
        if snapshot.breaker(ask.phase).state(snapshot.now) is BreakerState.OPEN:
            _block(snapshot, ask, changes)
            continue
        needs = snapshot.planned.needs(ask.phase, processor)
        if needs and evidence is None:
            wanted = NeededProbe(snapshot, ask, row.gate_id, _since(snapshot, ask, wakeup))
            seen = None if changes.known is None else changes.known(wanted)
            if seen is None:
                changes.wanted.append(wanted)
                continue
            evidence = Evidence(token=0, observations=seen)
        found: tuple[Assessment, ...] = ()
        if evidence is not None:
            found = tuple(
                assess(
                    need.dependency,
                    evidence.observations.get(need.dependency.key),
                    judged_at=ask.judged_at or snapshot.now,
                    age_counts=snapshot.planned.gate_mode.age_counts,
                    needed_by=need.needed_by,
                )
                for need in needs
            )
        given = gate_input(snapshot, ask, found, fallback=ask.phase in wakeup.fallback)
        decision = decide(given)
        _apply(snapshot, ask, given, decision, changes, wakeup.source)


def _since(snapshot: FlowSnapshot, ask: GateRequest, wakeup: Wakeup) -> int | None:
    """Return the earliest start time of a probe whose results this gate may use.

    This is not before the preceding phases ended or last reported. A due probe shares the results
    of probes that began after it became due: results are cached for gates due at the same time, not
    for the next probe. A manual evaluation requires a new probe.
    """
    row = snapshot.row(ask.phase, ask.processor or "")
    after = snapshot.planned.plan.phase(ask.phase).after
    moments = [seen.at for seen in snapshot.completions_of(after)]
    moments += [at for at in (ask.judged_at,) if at is not None]
    if row.gate_id in wakeup.due and row.probe_at is not None:
        moments.append(min(row.probe_at, snapshot.now))
    elif wakeup.all_gates and row.state != PhaseState.PENDING:
        moments.append(snapshot.now)
    return max(moments, default=None)


def gate_input(
    snapshot: FlowSnapshot,
    ask: GateRequest,
    found: tuple[Assessment, ...],
    *,
    fallback: bool = False,
) -> GateInput:
    """Collect everything the decision of a gate depends on."""
    flow, row = snapshot.flow, snapshot.row(ask.phase, ask.processor or "")
    after = snapshot.planned.plan.phase(ask.phase).after
    return GateInput(
        mode=snapshot.planned.gate_mode,
        now=snapshot.now,
        phase=ask.phase,
        processor=ask.processor,
        partition=flow.partition,
        assessments=found,
        upstream=ask.upstream,
        reported=tuple(s.quality for s in snapshot.completions_of(after) if s.quality is not None),
        overrides=tuple(
            given
            for given in snapshot.overrides
            if given.applies_to_gate(flow.customer_id, flow.pipeline, flow.partition, ask.phase)
        ),
        waited_us=0 if row.waiting_since is None else snapshot.now - row.waiting_since,
        historical_tries=row.tries,
        cycle=gate_deadlock(snapshot, ask, found),
        set_complete=ask.set_complete,
        stragglers_passed=ask.stragglers_passed,
        fallback=fallback,
        rules=RULES,
    )


def _block(snapshot: FlowSnapshot, ask: GateRequest, changes: ChangeSet) -> None:
    """Block a phase while its breaker is open, until the breaker allows a trial."""
    processor = ask.processor or ""
    again = snapshot.breaker(ask.phase).next_probe_at()
    row = snapshot.row(ask.phase, processor)
    if row.state != PhaseState.BLOCKED:
        changes.breaker_open(snapshot, ask)
    recheck_at = max(again or 0, snapshot.now + 1) if again is not None else snapshot.now + HOUR
    snapshot.put(ask.phase, processor, state=PhaseState.BLOCKED.value, probe_at=recheck_at)
    _mirror(snapshot, ask)


def _apply(
    snapshot: FlowSnapshot,
    ask: GateRequest,
    given: GateInput,
    decision: Decision,
    changes: ChangeSet,
    source: str | None,
) -> None:
    """Apply a decision to the snapshot: phase, breaker, starts."""
    processor = ask.processor or ""
    row = snapshot.row(ask.phase, processor)
    starts = decision.verdict.starts
    _, asked = breakers.try_start(snapshot.breaker(ask.phase), snapshot.now)
    # A start is not a success yet: its runs, or the end of its phase, report to the breaker.
    if starts:
        snapshot.breaker_put(ask.phase, asked)
    else:
        count_effect(snapshot, ask.phase, asked, decision.effect, changes)
    short = decision.status is GateStatus.MISSING_HISTORICAL
    seen = {a.key: [a.rows, a.expected, a.days_present, str(a.status)] for a in given.assessments}
    context = gate_context(snapshot, ask, decision)
    waits = decision.verdict is Verdict.WAIT
    snapshot.put(
        ask.phase,
        processor,
        state=state_for_verdict(decision.verdict).value,
        started_at=snapshot.now if starts else row.started_at,
        probe_at=None if starts else snapshot.now if row.probe_again else decision.recheck_at,
        probe_again=False,
        waiting_since=row.waiting_since or (snapshot.now if waits else None),
        tries=row.tries + 1 if short and waits else row.tries,
        is_degraded=bool(context.get("is_degraded")),
        gate=json.dumps(context, sort_keys=True) if context else None,
        evidence=json.dumps(seen, sort_keys=True) if seen else None,
    )
    by = source or (snapshot.flow.trigger_source if snapshot.starts_with(ask) else CASCADE_SOURCE)
    changes.decided(snapshot, ask, (given, decision), row, by)
    _mirror(snapshot, ask)
    if starts:
        changes.started(snapshot, ask, decision, by)


def gate_context(snapshot: FlowSnapshot, ask: GateRequest, decision: Decision) -> dict[str, Any]:
    """Return the gate context passed to a phase's runs; empty if there is nothing to pass.

    Data missing in earlier phases is passed on, so that later phases know it.
    """
    plan = snapshot.planned.plan
    before = [snapshot.row(name) for name in plan.phase(ask.phase).after]
    earlier = [item for row in before for item in row.gate_context.get("missing", ())]
    outstanding = [] if ask.upstream is None else [*ask.upstream.outstanding, *ask.upstream.failed]
    outstanding += [
        name
        for (phase, name), row in snapshot.expansions.items()
        if phase in plan.phase(ask.phase).after and row.is_incomplete
    ]
    missing = list(dict.fromkeys([*earlier, *decision.missing, *outstanding]))
    is_degraded = (
        decision.verdict is Verdict.PROCEED_DEGRADED
        or any(row.is_degraded or row.state == PhaseState.DEGRADED for row in before)
        or bool(missing)
    )
    plain = decision.verdict is Verdict.PROCEED and not is_degraded
    if plain and not decision.overrides_used:
        return {}
    is_degraded = is_degraded and decision.verdict.starts
    context = decision_context(decision, snapshot.overrides)
    return {**context, "is_degraded": is_degraded, "missing": missing}


def _mirror(snapshot: FlowSnapshot, ask: GateRequest) -> None:
    """Set a phase with one gate per processor to the state of its most advanced gate."""
    if ask.processor is None:
        return
    gates = [row for (name, p), row in snapshot.rows.items() if name == ask.phase and p]
    phase = snapshot.row(ask.phase)
    if any(row.started_at is not None for row in gates):
        if phase.state in WAITS_FOR_GATE:
            snapshot.put(ask.phase, state=PhaseState.IN_PROGRESS.value, started_at=snapshot.now)
        degraded_contexts = [
            row.gate_context for row in gates if row.started_at is not None and row.is_degraded
        ]
        if degraded_contexts:
            merged = json.dumps(_merged_context(degraded_contexts), sort_keys=True)
            snapshot.put(ask.phase, is_degraded=True, gate=merged)
        return
    states = {row.state for row in gates}
    state = PhaseState.WAITING if PhaseState.WAITING in states else PhaseState.BLOCKED
    if phase.state != state and phase.state in WAITS_FOR_GATE:
        snapshot.put(ask.phase, state=state.value)


def _merged_context(context: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge the contexts of several gates of one phase, for the phases after it."""
    merged = dict(context[0])
    for name in ("missing", "stale", "reasons", "warnings"):
        merged[name] = list(dict.fromkeys(item for one in context for item in one.get(name, ())))
    for name in ("completeness", "quality"):
        merged[name] = min(one[name] for one in context)
    return merged
