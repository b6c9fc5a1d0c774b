"""One flow under its lock: what is known of it, what changes, what has to be looked at.

In memory only: `cascade` fills a book, `judging` decides with it, `changes` writes what came of it.
Nothing here touches the store; phases change through `Book.put`, which knows the legal edges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.flows.cascade import Ask, Completion, Progress
from penstock.flows.gates.breaker import Breaker
from penstock.flows.gates.evidence import Sighting
from penstock.flows.gates.override import Override
from penstock.flows.phases import PhaseState, check
from penstock.flows.store.completions import Seen
from penstock.flows.store.flows import Flow, Phase
from penstock.flows.store.plans import Planned
from penstock.pipelines.plan import PhasePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What somebody saw for a gate, under the token of the lease it looked with."""

    token: int
    sightings: Mapping[str, Sighting]


@dataclass(slots=True)
class Stir:
    """Why a flow is judged: who reported, which gates are due, what was seen for them.

    everything: judge every gate that may be judged. source: who is behind it, when not the cascade.
    """

    phases: set[str] = field(default_factory=set)
    failures: Counter[str] = field(default_factory=Counter)
    due: set[int] = field(default_factory=set)
    evidence: dict[int, Evidence] = field(default_factory=dict)
    everything: bool = False
    source: str | None = None


@dataclass(slots=True)
class Book:
    """A flow and everything that belongs to it."""

    flow: Flow
    planned: Planned
    now: int
    rows: dict[tuple[str, str], Phase]
    seen: list[Seen]
    overrides: tuple[Override, ...] = ()
    breakers: dict[str, Breaker] = field(default_factory=dict)
    """By phase; shared by the books of one partition."""
    behind: int | None = None
    """The earlier flow of its config whose end it waits for before anything of it starts."""
    changed: set[tuple[str, str]] = field(default_factory=set)
    _progress: dict[str, Progress] = field(default_factory=dict)
    breakers_changed: set[str] = field(default_factory=set)

    def row(self, phase: str, processor: str = "") -> Phase:
        """A phase, or the gate of one of its processors."""
        return self.rows[phase, processor]

    def put(self, phase: str, processor: str = "", **fields: Any) -> None:
        """Change a phase; an edge that the state machine does not have is refused."""
        place = (phase, processor)
        old = self.rows[place]
        state = fields.get("state", old.state)
        if state != old.state and not processor:
            check(PhaseState(old.state), PhaseState(state), f"{self.flow.flow_id}/{phase}")
        new = old._replace(**fields)
        if new != old:
            self._progress.pop(phase, None)
            self.rows[place] = new
            self.changed.add(place)

    def breaker(self, phase: str) -> Breaker:
        """The breaker of a phase for this partition."""
        return self.breakers.get(phase, Breaker())

    def breaker_put(self, phase: str, breaker: Breaker) -> None:
        """Remember a breaker, unless there is nothing to remember."""
        if breaker != self.breaker(phase):
            self.breakers[phase] = breaker
            self.breakers_changed.add(phase)

    def seen_of(self, phases: Sequence[str]) -> list[Seen]:
        """What the processors of these phases reported."""
        return [seen for seen in self.seen if seen.phase in phases]

    def progress(self, phase: str) -> Progress:
        """A phase as the rules know it.

        One that was skipped though its mode runs it lies before where this flow was told to start:
        it stands in nobody's way.
        """
        if phase not in self._progress:
            self._progress[phase] = self._progress_of(phase)
        return self._progress[phase]

    def _progress_of(self, phase: str) -> Progress:
        row = self.rows[phase, ""]
        if row.state == PhaseState.SKIPPED:
            expected = self.planned.plan.phase(phase).expected
            return Progress(
                state=PhaseState.SKIPPED if self._is_over else PhaseState.COMPLETE,
                ended_at=self.flow.created_at,
                seen=dict.fromkeys(expected, Completion.SUCCESS),
                degraded=row.is_degraded,
            )
        each = self.planned.plan.phase(phase).terms.on == "each"
        return Progress(
            state=PhaseState(row.state),
            started_at=row.started_at,
            ended_at=row.ended_at,
            seen={s.processor: Completion(s.status) for s in self.seen if s.phase == phase},
            triggered=frozenset(
                processor
                for (name, processor), gate in self.rows.items()
                if each and processor and name == phase and gate.started_at is not None
            ),
            degraded=row.is_degraded,
        )

    def known(self) -> dict[str, Progress]:
        """Every phase of the plan as the rules know it."""
        return {phase.name: self.progress(phase.name) for phase in self.planned.plan.phases}

    @property
    def _is_over(self) -> bool:
        """Whether a skipped phase was left out on purpose (no_downstream), or the flow is over."""
        return self.flow.no_downstream or not self.flow.is_open

    def runs(self, processor: str, phase: PhasePlan) -> bool:
        """Whether a start creates a run for a processor: not for one that has done its work.

        A flow that a report from outside began leaves those outside to themselves.
        """
        done = any(
            s.processor == processor and s.phase == phase.name and s.status != "failed"
            for s in self.seen
        )
        outside = f"{phase.name}/{processor}" in self.planned.external
        return not done and not (outside and self.flow.trigger_source == "event")

    def begins_with(self, ask: Ask) -> bool:
        """Whether the flow was told to begin with this phase: no cascade led to it."""
        return ask.upstream is None or ask.phase in (self.flow.start_phase or "").split(",")

    def led_by(self, phase: str) -> str | None:
        """Whose completion led to a start of the cascade: the last one of the phases before it."""
        before = self.seen_of(self.planned.plan.phase(phase).after)
        done = [seen for seen in before if seen.status != Completion.FAILED]
        last = max(done, key=lambda seen: (seen.at, seen.number), default=None)
        return None if last is None else f"{last.phase}.{last.processor}"

    @property
    def is_observed(self) -> bool:
        """Whether the cascade only watches this flow."""
        return self.planned.observes


@dataclass(frozen=True, slots=True, kw_only=True)
class LookOrder:
    """A look that somebody leased and now has to make, outside any transaction."""

    gate_id: int
    token: int
    flow: Flow
    planned: Planned
    phase: str
    processor: str
    since: int | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A gate that cannot be judged before somebody looked."""

    book: Book
    ask: Ask
    gate_id: int
    since: int | None
    """Looks that began before do not count."""
