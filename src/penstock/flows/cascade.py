"""The cascade: when a phase is complete, which gates to evaluate next, and when a flow ends.

Pure rules over a `Plan` and the progress of each phase. A phase's set is complete when every
expected processor has completed, and settled when it is complete or its straggler deadline has
passed. Only then is the gate of the next phase evaluated; a phase declared with on="each" is
evaluated at every event. Nothing here locks, writes or reads a clock: the orchestrator does, with
the flow's row locked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock.core.clock import DAY, Micros
from penstock.flows.gates.verdict import Upstream
from penstock.flows.phases import DONE, WAITS_FOR_GATE, PhaseState
from penstock.pipelines.mode import Mode
from penstock.pipelines.plan import PhasePlan, Plan

DEADLINE_DEFAULT: Final = DAY
"""Time after which a flow fails if its mode sets no deadline and no service level."""
LATE_RERUNS_MAX: Final = 3


class CompletionStatus(StrEnum):
    """The result a processor reported; partial counts as completed, failed does not."""

    SUCCESS = "success"
    PARTIAL = "partial"
    FAILED = "failed"


RANKS: Final = {
    CompletionStatus.FAILED: 0,
    CompletionStatus.PARTIAL: 1,
    CompletionStatus.SUCCESS: 2,
}
"""Rank of each status; a report may only improve a completion."""


class FlowState(StrEnum):
    """Lifecycle state of a flow: open, or how it ended."""

    OPEN = "OPEN"
    COMPLETE = "COMPLETE"
    DEGRADED = "DEGRADED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseProgress:
    """The progress of a phase in a flow.

    reports: the latest report of each processor, FAILED once its attempts are used up. triggered:
    the processors that were started individually (on="each"). degraded: the phase was started
    degraded.
    """

    state: PhaseState = PhaseState.PENDING
    started_at: Micros | None = None
    ended_at: Micros | None = None
    reports: Mapping[str, CompletionStatus] = field(default_factory=dict)
    triggered: frozenset[str] = frozenset()
    degraded: bool = False
    is_held: bool = False
    """Whether its outputs have not been probed yet, or were missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRequest:
    """A gate to evaluate now, of a phase or of one processor in it.

    processor: None for the gate of the phase. judged_at: when the preceding phases ended, which is
    the time at which the age of data is measured; None if they have not all ended.
    """

    phase: str
    processor: str | None
    upstream: Upstream | None
    set_complete: bool
    stragglers_passed: bool
    judged_at: Micros | None


def is_set_complete(phase: PhasePlan, progress: PhaseProgress) -> bool:
    """Return whether every expected processor has completed."""
    return not _incomplete(phase, progress)


def straggler_deadline(phase: PhasePlan, progress: PhaseProgress) -> Micros | None:
    """Return when the next phase stops waiting for missing processors; None if it never does."""
    if progress.started_at is None or phase.terms.stragglers_us is None:
        return None
    return progress.started_at + phase.terms.stragglers_us


def is_settled(phase: PhasePlan, progress: PhaseProgress, now: Micros) -> bool:
    """Return whether the set is complete or its straggler deadline has passed."""
    deadline = straggler_deadline(phase, progress)
    return is_set_complete(phase, progress) or (deadline is not None and now >= deadline)


def phase_end_state(phase: PhasePlan, progress: PhaseProgress, now: Micros) -> PhaseState | None:
    """Return the state in which a phase in progress ends now; None while it continues.

    A phase with missing processors ends at its straggler deadline: DEGRADED if any processor has
    completed, else FAILED. Without such a deadline it ends FAILED once every processor has reported
    and at least one has failed permanently.
    """
    if is_set_complete(phase, progress):
        reports = {progress.reports.get(name, CompletionStatus.SUCCESS) for name in phase.expected}
        all_succeeded = not progress.degraded and reports <= {CompletionStatus.SUCCESS}
        return PhaseState.COMPLETE if all_succeeded else PhaseState.DEGRADED
    incomplete = _incomplete(phase, progress)
    if is_settled(phase, progress, now):
        some = len(incomplete) < len(phase.expected)
        return PhaseState.DEGRADED if some else PhaseState.FAILED
    if phase.terms.stragglers_us is None and all(name in progress.reports for name in incomplete):
        return PhaseState.FAILED
    return None


def gates_to_evaluate(
    plan: Plan,
    known: Mapping[str, PhaseProgress],
    now: Micros,
    *,
    phases: Sequence[PhasePlan] | None = None,
    fallback: Collection[str] = (),
) -> tuple[GateRequest, ...]:
    """Return the gates to evaluate now, in the order of the plan.

    phases: those that can have one; the others are not examined. fallback: phases that no longer
    wait for a complete set; one completed processor in every preceding phase is enough.
    """
    gates: list[GateRequest] = []
    for phase in plan.phases if phases is None else phases:
        own = known.get(phase.name, PhaseProgress())
        earlier = [(plan.phase(name), known.get(name, PhaseProgress())) for name in phase.after]
        each = phase.terms.on == "each"
        if each and own.state not in (*WAITS_FOR_GATE, PhaseState.IN_PROGRESS):
            continue
        if not each and own.state not in WAITS_FOR_GATE:
            continue
        ready = all(
            _is_over(before, progress, now)
            or (
                phase.name in fallback and len(_incomplete(before, progress)) < len(before.expected)
            )
            for before, progress in earlier
        )
        has_reports = any(progress.reports for _, progress in earlier)
        if not ready and not (each and has_reports):
            continue
        names = [n for n in phase.expected if n not in own.triggered] if each else [None]
        gates += [_ask(phase.name, name, earlier, now) for name in names]
    return tuple(gates)


def flow_state(
    plan: Plan, known: Mapping[str, PhaseProgress], *, now: Micros, opened_at: Micros
) -> FlowState:
    """Return the state of a flow: it ends with its last phases, or fails at its deadline.

    opened_at: when it began, for a flow that waited for another.
    """
    states = [known.get(phase.name, PhaseProgress()).state for phase in plan.phases]
    if all(state in DONE or state is PhaseState.SKIPPED for state in states):
        all_succeeded = PhaseState.DEGRADED not in states
        return FlowState.COMPLETE if all_succeeded else FlowState.DEGRADED
    return FlowState.FAILED if now >= flow_deadline(plan.mode, opened_at) else FlowState.OPEN


def flow_deadline(mode: Mode, opened_at: Micros) -> Micros:
    """Return when an open flow fails: the mode's deadline, by default twice its service level.

    With neither, the default is a day, or twice the mode's maximum wait if that is longer.
    """
    after = mode.deadline_after_us
    if after is None:
        after = max(DEADLINE_DEFAULT, 2 * (mode.max_wait_us or 0))
    return opened_at + after


def states_at_deadline(known: Mapping[str, PhaseProgress]) -> dict[str, PhaseState]:
    """Return the new states of open phases when their flow fails at its deadline."""
    after = {
        PhaseState.PENDING: PhaseState.SKIPPED,
        PhaseState.WAITING: PhaseState.FAILED,
        PhaseState.BLOCKED: PhaseState.FAILED,
        PhaseState.IN_PROGRESS: PhaseState.FAILED,
    }
    return {name: after[given.state] for name, given in known.items() if given.state in after}


def phases_to_rerun(
    plan: Plan, source: str, known: Mapping[str, PhaseProgress], reruns: int
) -> tuple[str, ...]:
    """Return the phases that late data of `source` restarts in a new generation.

    These are downstream phases that were started degraded and are declared with
    on_late_data="rerun". Only the first of a chain are returned, because restarting a phase also
    restarts the phases downstream of it. reruns: generations that late data has already started
    for this partition, at most `LATE_RERUNS_MAX`.
    """
    if reruns >= LATE_RERUNS_MAX:
        return ()
    wanted = [
        name
        for name in plan.downstream(source)
        if plan.phase(name).terms.on_late_data == "rerun"
        and known.get(name, PhaseProgress()).degraded
        and known.get(name, PhaseProgress()).state not in WAITS_FOR_GATE
    ]
    behind = {later for name in wanted for later in plan.downstream(name)}
    return tuple(name for name in wanted if name not in behind)


def inherited_phases(plan: Plan, starts: Collection[str]) -> tuple[str, ...]:
    """Return the phases whose completions a new generation inherits from its parent."""
    restarted = {*starts, *(later for name in starts for later in plan.downstream(name))}
    return tuple(phase.name for phase in plan.phases if phase.name not in restarted)


def _incomplete(phase: PhasePlan, progress: PhaseProgress) -> list[str]:
    if progress.state is PhaseState.COMPLETE:  # including one that a new generation inherited
        return []
    done = (CompletionStatus.SUCCESS, CompletionStatus.PARTIAL)
    return [name for name in phase.expected if progress.reports.get(name) not in done]


def _is_over(phase: PhasePlan, progress: PhaseProgress, now: Micros) -> bool:
    """Return whether a phase no longer blocks the phases after it."""
    return progress.state in DONE or (not progress.is_held and is_settled(phase, progress, now))


def _ask(
    phase: str,
    processor: str | None,
    earlier: Collection[tuple[PhasePlan, PhaseProgress]],
    now: Micros,
) -> GateRequest:
    incomplete = [(before, name, p) for before, p in earlier for name in _incomplete(before, p)]
    failed = [name for _, name, p in incomplete if p.reports.get(name) is CompletionStatus.FAILED]
    total = sum(len(before.expected) for before, _ in earlier)
    ended = [p.ended_at for _, p in earlier if p.ended_at is not None]
    upstream = Upstream(
        completed=total - len(incomplete),
        expected=total,
        outstanding=tuple(name for _, name, _ in incomplete if name not in failed),
        failed=tuple(failed),
    )
    late = [before for before, p in earlier if not is_set_complete(before, p)]
    return GateRequest(
        phase=phase,
        processor=processor,
        upstream=upstream if earlier else None,
        set_complete=not late,
        stragglers_passed=bool(late) and all(_is_over(b, p, now) for b, p in earlier),
        judged_at=max(ended) if ended and len(ended) == len(earlier) else None,
    )
