"""What is known of a flow, as plain facts: what `core.explain`, `core.why` and `core.tracing` word.

Records only, with public ids and times in micros; nothing here reads, decides or words anything.
`client.factfinding` fills them from the store, tests write them down by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.clock import Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseFact:
    """A pause that covers a run."""

    scope: str
    subject: str | None
    since: Micros
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderFact:
    """Who holds a limit: a run, or user code. until_at: when it ends at the latest, if known."""

    holder: str
    since: Micros
    weight: int = 1
    doing: str = "holds it"
    until_at: Micros | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFact:
    """A limit that a waiting run needs.

    lacks: there is no room for it now. most: how much may be held; held: how much is. ahead: how
    many stand before it in this line. Of these, what others do is None where the caller may not
    know; then holders are its own, and `has_others` says whether there must be more of them.
    """

    name: str
    weight: int = 1
    lacks: bool = True
    is_waiting: bool = True
    most: int | None = None
    held: int | None = None
    ahead: int | None = None
    holders: tuple[HolderFact, ...] = ()
    has_others: bool = False
    tokens_at: Micros | None = None
    """When its rate allows it, where that is what is lacking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFact:
    """One attempt of a processor.

    waits: why it is pending: ready, later, paused, blocked or limited. behind: the run in front of
    it under its ordering key. ahead: ready runs taken before it, counted up to `AHEAD_MAX`.
    workers: live workers of its pool; None where the caller may not know.
    """

    run_id: str
    phase: str
    processor: str
    state: str
    attempt: int
    since: Micros
    due_at: Micros
    waits: str | None = None
    started_at: Micros | None = None
    ended_at: Micros | None = None
    timeout_at: Micros | None = None
    error_type: str | None = None
    error: str | None = None
    claimed_by: str | None = None
    pool: str = "default"
    ordering_key: str | None = None
    behind: str | None = None
    ahead: int | None = None
    workers: int | None = None
    pauses: tuple[PauseFact, ...] = ()
    limits: tuple[LimitFact, ...] = ()
    is_external: bool = False

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return self.ended_at is None


AHEAD_MAX = 1_000
"""Nobody needs to know more exactly how long a queue is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorFact:
    """A processor that a phase expects: what it reported, its live run, and what failed before.

    status: success, partial, failed or None; run_id: the run or execution behind the report.
    """

    name: str
    status: str | None = None
    at: Micros | None = None
    run_id: str | None = None
    records: int | None = None
    is_external: bool = False
    live: RunFact | None = None
    failures: tuple[RunFact, ...] = ()
    """Ended attempts that failed, oldest first."""

    @property
    def is_done(self) -> bool:
        """Whether it completed, at least in part."""
        return self.status in ("success", "partial")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFact:
    """What a gate saw of one dependency."""

    table: str
    kind: str
    status: str
    issues: tuple[str, ...] = ()
    rows: int | None = None
    expected: int | None = None
    days_present: int | None = None
    days_needed: int | None = None
    days_missing: tuple[str, ...] = ()
    needed_by: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFact:
    """What a gate decided last, and on what."""

    decision_id: str
    at: Micros
    verdict: str
    status: str
    completeness: float
    quality: float
    reasons: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    recheck_at: Micros | None = None
    waits_until: Micros | None = None
    source: str = "orchestrator"
    evidence: tuple[EvidenceFact, ...] = ()
    overrides_used: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerFact:
    """The breaker of a phase; again_at: when it lets a probe through, None while it is closed."""

    failures: int
    again_at: Micros | None = None
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InterventionFact:
    """Something that only a person can resolve."""

    intervention_id: str
    phase: str
    processor: str
    missing: tuple[str, ...]
    reason: str
    tries: int
    opened_at: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerFact:
    """What started a phase."""

    at: Micros
    verdict: str
    source: str
    is_observed: bool = False
    runs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFact:
    """The gate of a phase, or (on="each") of one of its processors; processor "" is the phase's."""

    processor: str
    state: str
    since: Micros
    look_at: Micros | None = None
    waiting_since: Micros | None = None
    tries: int = 0
    decision: DecisionFact | None = None
    trigger: TriggerFact | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFact:
    """A phase of a flow; lacking: what its gate and the gates before it went without."""

    name: str
    state: str
    since: Micros
    after: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    is_each: bool = False
    started_at: Micros | None = None
    ended_at: Micros | None = None
    stragglers_us: Micros | None = None
    is_degraded: bool = False
    is_inherited: bool = False
    lacking: tuple[str, ...] = ()
    gate: GateFact | None = None
    gates: tuple[GateFact, ...] = ()
    processors: tuple[ProcessorFact, ...] = ()
    breaker: BreakerFact | None = None
    intervention: InterventionFact | None = None

    @property
    def stragglers_until(self) -> Micros | None:
        """When what follows stops waiting for its missing processors."""
        if self.stragglers_us is None or self.started_at is None:
            return None
        return self.started_at + self.stragglers_us

    @property
    def done(self) -> int:
        """How many of the expected processors completed."""
        return sum(1 for processor in self.processors if processor.is_done)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideFact:
    """An approval that counts now."""

    override_id: str
    approved_by: str
    reason: str
    expires_at: Micros
    phase: str | None = None
    dependency: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFact:
    """Another flow of the partition that has not ended, and where it stands."""

    flow_id: str
    mode: str
    generation: int
    opened_at: Micros
    phase: str | None = None
    """The first of its phases that has not ended."""
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFact:
    """A flow with everything that is known of it; phases in the order of the plan.

    newer: a later generation of the same partition and mode, which is what counts now. behind: the
    earlier flow of its config that has to end before it begins. still_open: older flows of the
    partition that have not ended.
    """

    flow_id: str
    customer: str
    pipeline: str
    partition: str
    mode: str
    generation: int
    state: str
    correlation_id: str
    trigger_source: str
    opened_by: str
    opened_at: Micros
    timezone: str = "UTC"
    ended_at: Micros | None = None
    deadline_at: Micros | None = None
    start_phase: str | None = None
    observes: bool = False
    missing: tuple[str, ...] = ()
    phases: tuple[PhaseFact, ...] = ()
    overrides: tuple[OverrideFact, ...] = ()
    newer: int | None = None
    behind: str | None = None
    still_open: tuple[OpenFact, ...] = ()

    def phase(self, name: str) -> PhaseFact:
        """A phase by name; KeyError when the flow has none of that name."""
        for phase in self.phases:
            if phase.name == name:
                return phase
        raise KeyError(name)
