"""Snapshot of one locked flow in memory: its state, pending changes and required probes.

`load` builds a snapshot, `decide` makes decisions from it and `write` stores the result. This
module never touches the store. Phases change through `FlowSnapshot.put`, which checks every state
transition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.entities.rows import ReportedEntities
from penstock.flows.cascade import CompletionStatus, GateRequest, PhaseProgress
from penstock.flows.gates.breaker import Breaker
from penstock.flows.gates.evidence import Observation
from penstock.flows.gates.override import Override
from penstock.flows.items.fan_in import ExpansionRow
from penstock.flows.phases import PhaseState, check_transition
from penstock.flows.plan import FlowPlan
from penstock.flows.rows import CompletionRow, FlowRow, PhaseRow
from penstock.pipelines.plan import Need, PhasePlan

_PENDING: Final = PhaseState.PENDING.value
_COMPLETE: Final = PhaseState.COMPLETE.value
_OUTPUTS_OPEN: Final = (PhaseState.IN_PROGRESS, PhaseState.FAILED)
"""States in which the outputs of a phase have not been probed, or were missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a probe observed for a gate, with the fencing token of the probe's lease.

    is_output: it observed the outputs of the phase, not its needs.
    """

    token: int
    observations: Mapping[str, Observation]
    is_output: bool = False


@dataclass(slots=True)
class Wakeup:
    """Why a flow is evaluated: phases with new reports, gates that are due, and their evidence.

    all_gates: evaluate every gate that can be evaluated. source: the trigger source, if it is not
    the cascade itself.
    """

    phases: set[str] = field(default_factory=set)
    failures: Counter[str] = field(default_factory=Counter)
    due: set[int] = field(default_factory=set)
    evidence: dict[int, Evidence] = field(default_factory=dict)
    reported: set[tuple[str, str]] = field(default_factory=set)
    """Phase and name of the processors whose completions are announced."""
    all_gates: bool = False
    source: str | None = None
    fallback: set[str] = field(default_factory=set)
    """Phases whose fallback time has come: their gates no longer wait."""


@dataclass(slots=True)
class FlowSnapshot:
    """A flow with its phases, completions, overrides and breakers."""

    flow: FlowRow
    planned: FlowPlan
    now: int
    rows: dict[tuple[str, str], PhaseRow]
    completions: list[CompletionRow]
    overrides: tuple[Override, ...] = ()
    breakers: dict[str, Breaker] = field(default_factory=dict)
    """By phase. The snapshots of one partition share this dict."""
    waits_for_flow: int | None = None
    """An earlier open flow of the same config, which must end before this flow starts anything."""
    only: frozenset[str] | None = None
    """In a partially loaded long flow, the phases that may change; None if all were loaded."""
    expansions: dict[tuple[str, str], ExpansionRow] = field(default_factory=dict)
    """By phase and name, the processors that have one run per item."""
    reported: Mapping[tuple[int, int], ReportedEntities] = field(default_factory=dict)
    """Changed entities by flow and processor; loaded only if messages list them."""
    changed: set[tuple[str, str]] = field(default_factory=set)
    _progress: dict[str, PhaseProgress] = field(default_factory=dict)
    states_before: dict[str, str] = field(init=False)
    """States of the phases as loaded, or as last announced."""
    breakers_changed: set[str] = field(default_factory=set)
    _seen: dict[str, list[CompletionRow]] = field(init=False)
    """Completions by phase."""
    _current: set[str] | None = None

    def __post_init__(self) -> None:
        self._seen = {}
        for seen in self.completions:
            self._seen.setdefault(seen.phase, []).append(seen)
        self.states_before = {name: r.state for (name, part), r in self.rows.items() if not part}

    def row(self, phase: str, processor: str = "") -> PhaseRow:
        """Return a phase, or the gate of one of its processors."""
        return self.rows[phase, processor]

    def put(self, phase: str, processor: str = "", **fields: Any) -> None:
        """Change a phase. Raises an error if the state machine does not allow the transition."""
        gate_key = (phase, processor)
        old = self.rows[gate_key]
        state = fields.get("state", old.state)
        if state != old.state and not processor:
            check_transition(
                PhaseState(old.state), PhaseState(state), f"{self.flow.flow_id}/{phase}"
            )
        new = old._replace(**fields)
        if new != old:
            self._progress.pop(phase, None)
            if self._current is not None and state != old.state:
                self._current.update(self.planned.plan.next_phases(phase))
            self.rows[gate_key] = new
            self.changed.add(gate_key)

    def complete(self, completion: CompletionRow) -> None:
        """Add a completion, or replace the one of the same processor."""
        key = (completion.phase, completion.processor)
        others = [seen for seen in self.completions if (seen.phase, seen.processor) != key]
        self.completions = [*others, completion]
        self._seen[completion.phase] = [
            seen for seen in self.completions if seen.phase == completion.phase
        ]
        self._progress.pop(completion.phase, None)

    def breaker(self, phase: str) -> Breaker:
        """Return the breaker of a phase for this partition."""
        return self.breakers.get(phase, Breaker())

    def breaker_put(self, phase: str, breaker: Breaker) -> None:
        """Store a breaker if it changed."""
        if breaker != self.breaker(phase):
            self.breakers[phase] = breaker
            self.breakers_changed.add(phase)

    def completions_of(self, phases: Sequence[str]) -> list[CompletionRow]:
        """Return the completions reported by the processors of these phases."""
        return [seen for phase in phases for seen in self._seen.get(phase, ())]

    def progress(self, phase: str) -> PhaseProgress:
        """Return a phase in the form the rules use.

        A phase that was skipped although the mode runs it lies before the flow's start phase. It
        counts as complete and does not block later phases.
        """
        if phase not in self._progress:
            self._progress[phase] = self._progress_of(phase)
        return self._progress[phase]

    def _progress_of(self, phase: str) -> PhaseProgress:
        row = self.rows[phase, ""]
        if row.state == PhaseState.SKIPPED:
            expected = self.planned.plan.phase(phase).expected
            return PhaseProgress(
                state=PhaseState.SKIPPED if self._is_over else PhaseState.COMPLETE,
                ended_at=self.flow.created_at,
                reports=dict.fromkeys(expected, CompletionStatus.SUCCESS),
                degraded=row.is_degraded,
            )
        each = self.planned.plan.phase(phase).terms.on == "each"
        return PhaseProgress(
            state=PhaseState(row.state),
            started_at=row.started_at,
            ended_at=row.ended_at,
            reports={s.processor: CompletionStatus(s.status) for s in self._seen.get(phase, ())},
            triggered=frozenset(
                processor
                for (name, processor), gate in self.rows.items()
                if processor and name == phase and gate.started_at is not None
            )
            if each
            else frozenset(),
            degraded=row.is_degraded,
            is_held=row.state in _OUTPUTS_OPEN and bool(self.outputs_of_done(phase)),
        )

    def outputs_of_done(self, phase: str) -> list[Need]:
        """Return the outputs to probe after a phase: those of processors that completed."""
        outputs = self.planned.outputs(phase)
        if not outputs:
            return []
        done = {
            seen.processor
            for seen in self.completions_of([phase])
            if seen.status != CompletionStatus.FAILED
        }
        return [one for one in outputs if done & set(one.needed_by)]

    def all_progress(self) -> Mapping[str, PhaseProgress]:
        """Return every phase of the plan in the form the rules use; computed when it is read."""
        return _ProgressOf(self)

    def current_phases(self) -> list[PhasePlan]:
        """Return the phases that an evaluation can change, in the order of the plan.

        These exclude phases that have ended permanently and phases behind ones that have not
        started, which are most phases of a long flow.
        """
        plan = self.planned.plan
        if self._current is None:
            known, seen = self.states_before, self._seen
            untouched = {n for n, state in known.items() if state == _PENDING and n not in seen}
            self._current = {
                phase.name
                for phase in (plan.phases if self.only is None else plan.in_order(self.only))
                if known.get(phase.name, _COMPLETE) != _COMPLETE
                and not (
                    phase.name in untouched and phase.after and untouched.issuperset(phase.after)
                )
            }
        if self.only is not None:
            self._current &= self.only
        return plan.in_order(self._current)

    @property
    def _is_over(self) -> bool:
        """Whether a skipped phase was left out on purpose (no_downstream) or the flow has ended."""
        return self.flow.no_downstream or not self.flow.is_open

    def needs_run(self, processor: str, phase: PhasePlan) -> bool:
        """Whether a start creates a run for a processor; False if its work is already done.

        A flow that was started by an external report creates no runs for external processors; one
        that a message started through a config does.
        """
        done = any(
            s.processor == processor and s.status != "failed"
            for s in self._seen.get(phase.name, ())
        )
        outside = f"{phase.name}/{processor}" in self.planned.external
        is_reported = self.flow.trigger_source == "event" and not self.flow.config_id
        return not done and not (outside and is_reported)

    def starts_with(self, ask: GateRequest) -> bool:
        """Whether the flow was opened to start with this phase, without a preceding cascade."""
        return ask.upstream is None or ask.phase in (self.flow.start_phase or "").split(",")

    def cause_of(self, phase: str, *, is_cascaded: bool) -> tuple[str | None, int | None]:
        """Return processor and run that led to a start: the last to complete before the phase."""
        if not is_cascaded:
            return None, None
        before = self.completions_of(self.planned.plan.phase(phase).after)
        done = [seen for seen in before if seen.status != CompletionStatus.FAILED]
        last = max(done, key=lambda seen: (seen.at, seen.processor_key), default=None)
        return (None, None) if last is None else (f"{last.phase}.{last.processor}", last.run_id)

    @property
    def is_observed(self) -> bool:
        """Whether the cascade only observes this flow and starts nothing."""
        return self.planned.observes


class _ProgressOf(Mapping[str, PhaseProgress]):
    """The progress of every phase of a flow, by name."""

    def __init__(self, snapshot: FlowSnapshot) -> None:
        self._snapshot = snapshot

    def __getitem__(self, name: str) -> PhaseProgress:
        if not self._snapshot.planned.plan.has_phase(name):
            raise KeyError(name)
        return self._snapshot.progress(name)

    def __iter__(self) -> Iterator[str]:
        return (phase.name for phase in self._snapshot.planned.plan.phases)

    def __len__(self) -> int:
        return len(self._snapshot.planned.plan.phases)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOrder:
    """A leased probe that the caller must run outside any transaction."""

    gate_id: int
    token: int
    flow: FlowRow
    planned: FlowPlan
    phase: str
    processor: str
    since: int | None
    parameters: Mapping[str, Any]
    """Those that the runs of the flow receive, as of the lease."""
    is_output: bool = False


@dataclass(frozen=True, slots=True)
class NeededProbe:
    """A gate that needs new probe results before it can be evaluated."""

    snapshot: FlowSnapshot
    ask: GateRequest
    gate_id: int
    since: int | None
    """Probes that started earlier are ignored."""
    is_output: bool = False
    """Whether the outputs of a completed phase are probed."""
