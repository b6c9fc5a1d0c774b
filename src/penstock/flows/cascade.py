"""How one phase leads to the next: sets of completions, what may be judged now, and when it ends.

Pure rules over a `Plan` and what is known of each phase. A phase's set is complete when every
expected processor completed, and settled when it is complete or its straggler deadline passed; only
then the gate of the next phase is asked, or at every event where a phase says on="each". Nothing
here locks, writes or reads a clock: the orchestrator does, with the flow's row locked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock.core.clock import DAY, Micros
from penstock.flows.gates.verdict import Upstream
from penstock.flows.phases import DONE, WAITS_FOR_GATE, PhaseState
from penstock.pipelines.mode import Mode
from penstock.pipelines.plan import PhasePlan, Plan

DEADLINE_DEFAULT: Final = DAY
"""A flow whose mode has no service level ends by then."""
LATE_RERUNS_MAX: Final = 3


class Completion(StrEnum):
    """How a processor reported; partial counts as completed, failed does not."""

    SUCCESS = "success"
    PARTIAL = "partial"
    FAILED = "failed"


class FlowState(StrEnum):
    """Where a flow stands."""

    OPEN = "OPEN"
    COMPLETE = "COMPLETE"
    DEGRADED = "DEGRADED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is known of a phase in a flow.

    seen: the latest report of each processor, FAILED once its attempts are used up. triggered: the
    processors that were started one by one (on="each"). degraded: it was started degraded.
    """

    state: PhaseState = PhaseState.PENDING
    started_at: Micros | None = None
    ended_at: Micros | None = None
    seen: Mapping[str, Completion] = field(default_factory=dict)
    triggered: frozenset[str] = frozenset()
    degraded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A gate that may be judged now: of a phase, or of one processor in it.

    judged_at: when the phases before it ended, the moment at which the age of data is taken.
    """

    phase: str
    processor: str | None
    upstream: Upstream | None
    set_complete: bool
    stragglers_passed: bool
    judged_at: Micros | None


def is_set_complete(phase: PhasePlan, progress: Progress) -> bool:
    """Whether every expected processor completed."""
    return not _lacking(phase, progress)


def straggler_deadline(phase: PhasePlan, progress: Progress) -> Micros | None:
    """Return when the next phase stops waiting for this one's missing processors; None: never."""
    if progress.started_at is None or phase.terms.stragglers_us is None:
        return None
    return progress.started_at + phase.terms.stragglers_us


def is_settled(phase: PhasePlan, progress: Progress, now: Micros) -> bool:
    """Whether what follows may be judged: the set is complete, or nobody waits any longer."""
    deadline = straggler_deadline(phase, progress)
    return is_set_complete(phase, progress) or (deadline is not None and now >= deadline)


def phase_end(phase: PhasePlan, progress: Progress, now: Micros) -> PhaseState | None:
    """Return the state in which a phase that is in progress ends now; None while it goes on.

    With somebody missing it ends at the straggler deadline, DEGRADED if anybody completed; without
    such a deadline it ends FAILED once everybody reported and somebody failed for good.
    """
    if is_set_complete(phase, progress):
        reports = {progress.seen.get(name, Completion.SUCCESS) for name in phase.expected}
        whole = not progress.degraded and reports <= {Completion.SUCCESS}
        return PhaseState.COMPLETE if whole else PhaseState.DEGRADED
    lacking = _lacking(phase, progress)
    if is_settled(phase, progress, now):
        some = len(lacking) < len(phase.expected)
        return PhaseState.DEGRADED if some else PhaseState.FAILED
    if phase.terms.stragglers_us is None and all(name in progress.seen for name in lacking):
        return PhaseState.FAILED
    return None


def evaluable(plan: Plan, known: Mapping[str, Progress], now: Micros) -> tuple[Ask, ...]:
    """Return the gates that may be judged now, in the order of the plan."""
    found: list[Ask] = []
    for phase in plan.phases:
        own = known.get(phase.name, Progress())
        earlier = [(plan.phase(name), known.get(name, Progress())) for name in phase.after]
        each = phase.terms.on == "each"
        if each and own.state not in (*WAITS_FOR_GATE, PhaseState.IN_PROGRESS):
            continue
        if not each and own.state not in WAITS_FOR_GATE:
            continue
        ready = all(_is_passed(before, progress, now) for before, progress in earlier)
        stirred = any(progress.seen for _, progress in earlier)
        if not ready and not (each and stirred):
            continue
        names = [n for n in phase.expected if n not in own.triggered] if each else [None]
        found += [_ask(phase.name, name, earlier, now) for name in names]
    return tuple(found)


def may_trigger(plan: Plan, cause: str, phase: str) -> bool:
    """Whether a phase may start another one: never itself, and never one before it."""
    return phase in plan.downstream(cause)


def flow_state(
    plan: Plan, known: Mapping[str, Progress], *, now: Micros, opened_at: Micros
) -> FlowState:
    """Return where a flow stands: it ends with its last phases, or fails at its deadline."""
    states = [known.get(phase.name, Progress()).state for phase in plan.phases]
    if all(state in DONE or state is PhaseState.SKIPPED for state in states):
        whole = PhaseState.DEGRADED not in states
        return FlowState.COMPLETE if whole else FlowState.DEGRADED
    return FlowState.FAILED if now >= flow_deadline(plan.mode, opened_at) else FlowState.OPEN


def flow_deadline(mode: Mode, opened_at: Micros) -> Micros:
    """Return when a flow that has not ended fails: twice its service level, unless set."""
    after = mode.deadline_after_us
    return opened_at + (DEADLINE_DEFAULT if after is None else after)


def deadline_states(known: Mapping[str, Progress]) -> dict[str, PhaseState]:
    """Return the states that open phases take when their flow fails at its deadline."""
    ends = {
        PhaseState.PENDING: PhaseState.SKIPPED,
        PhaseState.WAITING: PhaseState.FAILED,
        PhaseState.BLOCKED: PhaseState.FAILED,
        PhaseState.IN_PROGRESS: PhaseState.FAILED,
    }
    return {name: ends[given.state] for name, given in known.items() if given.state in ends}


def late_start(
    plan: Plan, source: str, known: Mapping[str, Progress], reruns: int
) -> tuple[str, ...]:
    """Return the phases that late data of `source` starts anew in a further generation.

    Only phases that follow it, were started degraded and asked for it (on_late_data="rerun"), and
    of those the first ones: what follows them comes along. reruns: generations that late data
    already started for this partition.
    """
    if reruns >= LATE_RERUNS_MAX:
        return ()
    wanted = [
        name
        for name in plan.downstream(source)
        if plan.phase(name).terms.on_late_data == "rerun"
        and known.get(name, Progress()).degraded
        and known.get(name, Progress()).state not in WAITS_FOR_GATE
    ]
    behind = {later for name in wanted for later in plan.downstream(name)}
    return tuple(name for name in wanted if name not in behind)


def inherited(plan: Plan, starts: Collection[str]) -> tuple[str, ...]:
    """Return the phases whose completions a new generation takes over from its parent."""
    anew = {*starts, *(later for name in starts for later in plan.downstream(name))}
    return tuple(phase.name for phase in plan.phases if phase.name not in anew)


def _lacking(phase: PhasePlan, progress: Progress) -> list[str]:
    if progress.state is PhaseState.COMPLETE:  # also one that a new generation took over
        return []
    done = (Completion.SUCCESS, Completion.PARTIAL)
    return [name for name in phase.expected if progress.seen.get(name) not in done]


def _is_passed(phase: PhasePlan, progress: Progress, now: Micros) -> bool:
    """Whether a phase stands in the way of what follows no longer."""
    return progress.state in DONE or is_settled(phase, progress, now)


def _ask(
    phase: str,
    processor: str | None,
    earlier: Collection[tuple[PhasePlan, Progress]],
    now: Micros,
) -> Ask:
    lacking = [(before, name, p) for before, p in earlier for name in _lacking(before, p)]
    failed = [name for _, name, p in lacking if p.seen.get(name) is Completion.FAILED]
    total = sum(len(before.expected) for before, _ in earlier)
    ends = [p.ended_at for _, p in earlier if p.ended_at is not None]
    upstream = Upstream(
        completed=total - len(lacking),
        expected=total,
        outstanding=tuple(name for _, name, _ in lacking if name not in failed),
        failed=tuple(failed),
    )
    late = [before for before, p in earlier if not is_set_complete(before, p)]
    return Ask(
        phase=phase,
        processor=processor,
        upstream=upstream if earlier else None,
        set_complete=not late,
        stragglers_passed=bool(late) and all(_is_passed(b, p, now) for b, p in earlier),
        judged_at=max(ends) if ends and len(ends) == len(earlier) else None,
    )
