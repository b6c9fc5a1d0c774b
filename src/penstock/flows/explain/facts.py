"""Fact records of a flow: the input of `explain`, `why` and `trace`.

Records only, with public ids and times in microseconds; no reading, no decisions, no text.
`flows.explain.store.load` fills them from the store; tests construct them directly.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.clock import SECOND, Micros


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
    """A holder of a limit: a run or user code. until_at: its latest end, None if unknown."""

    holder: str
    since: Micros
    weight: int = 1
    activity: str = "holds it"
    until_at: Micros | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFact:
    """A limit that a waiting run needs.

    is_exhausted: the limit has no free capacity for the run now. capacity: the configured one;
    held: the part in use. waiters_ahead: the number of waiters before the run in this limit's
    queue. Fields about other customers are None if the caller may not see them; `holders` then
    lists only the caller's own, and `has_others` says whether there are others.
    """

    name: str
    weight: int = 1
    is_exhausted: bool = True
    is_waiting: bool = True
    capacity: int | None = None
    held: int | None = None
    waiters_ahead: int | None = None
    holders: tuple[HolderFact, ...] = ()
    has_others: bool = False
    tokens_at: Micros | None = None
    """When the rate limit admits the run; None if the run does not wait for the rate."""
    customer: str | None = None
    """Customer whose maximum number of runs it is; None for any other limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGateFact:
    """The gate that a single run waits for; `verdict` is None before its first decision."""

    verdict: str | None
    reason: str
    since: Micros
    probe_at: Micros | None
    until_at: Micros
    pipeline: str
    partition: str
    customer: str
    needs_a_person: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatFact:
    """The last heartbeat of the worker that holds a run, and the end of its lease."""

    at: Micros | None = None
    """None if the worker sends no heartbeats yet: the run waits for its start or its response."""
    until_at: Micros | None = None
    """When another worker may take the run over unless this one reports; None if its session has
    ended.
    """

    def is_overdue(self, now: Micros) -> bool:
        """Whether the worker misses heartbeats: settings have it send two or more in a lease."""
        if self.until_at is None:
            return True
        return self.at is not None and now - self.at > (self.until_at - self.at) // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFact:
    """One attempt of a processor.

    pending_reason: why it is pending: ready, later, paused, blocked, limited, gated or suspended.
    preceding_run_id: the preceding run of its ordering key. runs_ahead: the number of ready runs
    before it, counted up to `RUNS_AHEAD_MAX`. workers: the number of live workers of its pool; None
    if the caller may not see it. is_unclaimed: whether one of them has capacity and has not claimed
    it for longer than `CLAIM_GRACE_US`. endpoint: the URL that its HTTP processor is sent to.
    """

    run_id: str
    pipeline: str = ""
    phase: str
    processor: str
    state: str
    attempt: int
    since: Micros
    due_at: Micros
    pending_reason: str | None = None
    started_at: Micros | None = None
    ended_at: Micros | None = None
    timeout_at: Micros | None = None
    expires_at: Micros | None = None
    """When it expires unless it has started; None if it does not expire."""
    error_type: str | None = None
    error: str | None = None
    claimed_by: str | None = None
    heartbeat: HeartbeatFact | None = None
    """Of the worker that holds it; None if none does, or if the caller may not see the worker."""
    pool: str = "default"
    ordering_key: str | None = None
    preceding_run_id: str | None = None
    sub_flow_id: str | None = None
    """Flow that the run triggered and waits for."""
    runs_ahead: int | None = None
    workers: int | None = None
    is_unclaimed: bool = False
    pauses: tuple[PauseFact, ...] = ()
    limits: tuple[LimitFact, ...] = ()
    gate: RunGateFact | None = None
    lacks_scheduler: bool = False
    """Whether it is past its time and no scheduler is alive to make it ready; False if the caller
    may not see that.
    """
    is_external: bool = False
    endpoint: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether the run has not ended."""
        return self.ended_at is None


CLAIM_GRACE_US = 15 * SECOND
"""How long a worker with capacity may leave a ready run unclaimed."""
RUNS_AHEAD_MAX = 1_000
"""Maximum number of queued runs to count; an exact number is not needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemsFact:
    """The items of a processor as counts; `errors` has the most frequent kinds with their numbers.

    error: why the items could not be determined.
    """

    state: str
    total: int
    created: int
    done: int
    failed: int
    required: int
    error: str | None = None
    errors: tuple[tuple[str, int], ...] = ()
    first_failed: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether the items are stored."""
        return self.state == "SEALED"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorFact:
    """A processor that a phase expects: its report, its live run and its failed attempts.

    status: success, partial, failed, or None before it reported. run_id: the run or external
    execution that reported.
    """

    name: str
    status: str | None = None
    at: Micros | None = None
    run_id: str | None = None
    records: int | None = None
    is_external: bool = False
    live: RunFact | None = None
    failures: tuple[RunFact, ...] = ()
    """Ended attempts that failed, oldest first; empty for a processor with items."""
    items: ItemsFact | None = None

    @property
    def is_done(self) -> bool:
        """Whether the processor completed, at least in part."""
        return self.status in ("success", "partial")

    @property
    def is_paused(self) -> bool:
        """Whether a pause holds its run."""
        return self.live is not None and self.live.pending_reason == "paused"

    @property
    def has_failed(self) -> bool:
        """Whether it failed permanently, or an attempt of it did."""
        return bool(self.failures) or self.status == "failed"

    def misses_heartbeats(self, now: Micros) -> bool:
        """Whether the worker that holds its run misses heartbeats."""
        seen = None if self.live is None else self.live.heartbeat
        return seen is not None and seen.is_overdue(now)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceFact:
    """The evidence that a gate used for one dependency."""

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
    """The last decision of a gate, and its evidence."""

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
    """The breaker of a phase; again_at: when it allows the next trial, None while closed."""

    failures: int
    next_probe_at: Micros | None = None
    is_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InterventionFact:
    """An open intervention: a problem that needs a manual resolution."""

    intervention_id: str
    phase: str
    processor: str
    missing: tuple[str, ...]
    reason: str
    tries: int
    opened_at: Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerFact:
    """The trigger that started a phase."""

    at: Micros
    verdict: str
    source: str
    is_observed: bool = False
    runs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFact:
    """The gate of a phase, or of one of its processors (on="each").

    processor: "" for the gate of the phase. probe_at: when the gate is evaluated again.
    """

    processor: str
    state: str
    since: Micros
    probe_at: Micros | None = None
    waiting_since: Micros | None = None
    tries: int = 0
    decision: DecisionFact | None = None
    trigger: TriggerFact | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFact:
    """A phase of a flow; lacking: data missing at its gate and at the gates before it."""

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
    missing: tuple[str, ...] = ()
    gate: GateFact | None = None
    gates: tuple[GateFact, ...] = ()
    processors: tuple[ProcessorFact, ...] = ()
    breaker: BreakerFact | None = None
    intervention: InterventionFact | None = None
    received: tuple[tuple[str, str], ...] = ()
    """Inputs of its incremental processors as text, by name."""

    @property
    def stragglers_until(self) -> Micros | None:
        """When the next phase stops waiting for missing processors; None if it never does."""
        if self.stragglers_us is None or self.started_at is None:
            return None
        return self.started_at + self.stragglers_us

    @property
    def completed_count(self) -> int:
        """The number of expected processors that completed."""
        return sum(1 for processor in self.processors if processor.is_done)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideFact:
    """An override that is in effect."""

    override_id: str
    approved_by: str
    reason: str
    expires_at: Micros
    phase: str | None = None
    dependency: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFlowFact:
    """Another flow of the partition that has not ended, and its current phase."""

    flow_id: str
    mode: str
    generation: int
    opened_at: Micros
    phase: str | None = None
    """The first phase that has not ended."""
    state: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerFact:
    """A processor that declares that it produces a table, in this pipeline or another."""

    table: str
    pipeline: str
    phase: str
    processor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFact:
    """A flow with all its facts; phases are in the order of the plan.

    is_observe_mode: its cascade is in observe mode. newer_generation: a later generation of the
    same partition and mode, which replaces this one. preceding_flow_id: the earlier flow of its
    config that must end before this one starts. still_open: older flows of the partition that have
    not ended. producers: the producers of this pipeline's tables, and those in other pipelines of
    tables that its gates need.
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
    config: str | None = None
    timezone: str = "UTC"
    ended_at: Micros | None = None
    deadline_at: Micros | None = None
    start_phase: str | None = None
    is_observe_mode: bool = False
    missing: tuple[str, ...] = ()
    phases: tuple[PhaseFact, ...] = ()
    overrides: tuple[OverrideFact, ...] = ()
    newer_generation: int | None = None
    preceding_flow_id: str | None = None
    still_open: tuple[OpenFlowFact, ...] = ()
    producers: tuple[ProducerFact, ...] = ()

    def producers_of(self, table: str) -> tuple[ProducerFact, ...]:
        """Return the processors that produce a table: those of this pipeline first, and of these
        the ones that failed or delivered the fewest records.
        """
        found = [one for one in self.producers if one.table == table]
        return tuple(sorted(found, key=self._rank_of_producer))

    def producer(self, made: ProducerFact) -> ProcessorFact | None:
        """Return the processor of a producer; None unless this flow runs it."""
        if made.pipeline != self.pipeline:
            return None
        phases = [phase for phase in self.phases if phase.name == made.phase]
        found = [one for phase in phases for one in phase.processors if one.name == made.processor]
        return found[0] if found else None

    def _rank_of_producer(self, made: ProducerFact) -> tuple[bool, int, int]:
        processor = self.producer(made)
        is_foreign = made.pipeline != self.pipeline
        if processor is None:
            return is_foreign, 5, 0
        if processor.status == "failed":
            return is_foreign, 0, 0
        if processor.records is not None:
            return is_foreign, 3 if processor.records else 1, processor.records
        return is_foreign, 4 if processor.is_done else 2, 0

    def phase(self, name: str) -> PhaseFact:
        """Return a phase by name; raise KeyError if the flow has no such phase."""
        for phase in self.phases:
            if phase.name == name:
                return phase
        raise KeyError(name)
