"""The worker's steps, without threads: the worker loops over them, the simulation drives them.

Every step is at most one transaction, and safe to repeat after a failure whose outcome is unknown:
a claim whose response was lost is read back (`session_runs`), an end that was in fact stored is
stale the second time and changes nothing. Tables in memory, keyed by fencing token:

    held      claimed, and its end not yet stored
    running   its processor was started; removing a run from here gives the right to end it
    ends      ended, waiting to be stored
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from penstock.access.store.names import NameResolver
from penstock.access.store.registry import pool_ensure
from penstock.audit.telemetry import Events, RunsReleased, RunStarted, WorkerHeartbeat
from penstock.core.clock import SECOND, Clock
from penstock.core.errors import StoreBusy, StoreUnavailable
from penstock.core.ids import new_boot_id
from penstock.core.naming import PoolKey, ProcessorKey
from penstock.db.store import Single, StoreView, Tx
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.parameters import defaults
from penstock.pipelines.store import pipeline_register
from penstock.runs import attempt_result
from penstock.runs.rows import HeldRun, RunEnd
from penstock.runs.store.finish import run_release_many
from penstock.runs.store.held import session_runs
from penstock.runs.store.leases import session_held
from penstock.runs.store.runs import Claim, run_claim, run_start_many
from penstock.worker.buffer import is_suspect
from penstock.worker.completer import ADMIT, FinishQueue, FlushCounts
from penstock.worker.context import LoadedProcessor, RunContext, Signal
from penstock.worker.execution.call import call_inline, check_importable
from penstock.worker.execution.claimed_inputs import ClaimedInputs
from penstock.worker.execution.heartbeat import HeartbeatReport, follow_store
from penstock.worker.execution.run_log import capture_records
from penstock.worker.execution.run_port import StorePort
from penstock.worker.fairness import FairClock
from penstock.worker.options import WorkerOptions
from penstock.worker.outcome import (
    AttemptOutcome,
    finish_of,
    invalid_settings_finish,
    outcome_of_value,
)
from penstock.worker.session import Renewal, WorkerSession

RECHECK_SECONDS: Final = (0.0, 10.0, 130.0)
"""Seconds after which a claim without a response is read back: it may still be committing, and
statements end within 120 s. The rechecks after the last such claim cover earlier ones as well.
"""


class WorkerCore:
    """A worker's state and steps.

    `claim_once`, `flush_once` and `heartbeat_once` may run at the same time in three threads, each
    of them in one thread at a time.
    """

    def __init__(
        self,
        store: StoreView,
        pipelines: Sequence[Pipeline],
        options: WorkerOptions,
        *,
        clock: Clock,
        jitter: Callable[[], float],
        events: Events | None = None,
        boot_id: Callable[[], str] = new_boot_id,
    ) -> None:
        self.options = options
        self.clock = clock
        self.jitter = jitter
        self.events = events or Events()
        self.known: dict[int, LoadedProcessor] = {}
        self.held: dict[int, HeldRun] = {}
        self.running: dict[int, RunContext] = {}
        names = NameResolver(store, clock)
        self._make_port = partial(StorePort, store, names)
        self.ends = FinishQueue(store, self.held, options, names, events=self.events, jitter=jitter)
        self.session = WorkerSession(store.reserved(), options, clock, boot_id)
        self._store = store
        self._pipelines = list(pipelines)
        self.pool_key = 0
        self.cancels: set[int] = set()
        self.fair_clock = FairClock(store, clock)
        self._rechecks: list[float] = []
        self._inputs = ClaimedInputs(store, self.known)
        self._report = HeartbeatReport(clock, options.name)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held and nothing waits to be stored."""
        return not self.held and not self.ends

    def check(self) -> None:
        """Raise DeclarationError unless every pipeline is consistent and can be executed here."""
        for pipeline in self._pipelines:
            pipeline.check()
            for processor in pipeline.processors:
                check_importable(processor)

    def open(self) -> int:
        """Register the pipelines and open a session; return its id. Safe to repeat."""
        self.check()
        capture_records()
        self.pool_key, self.known = self._store.write(
            lambda tx: _register(tx, self._pipelines, self.options)
        )
        self._inputs = ClaimedInputs(self._store, self.known)
        return self.session.open(PoolKey(self.pool_key))

    def heartbeat_once(self) -> Renewal:
        """Renew the session, write progress, receive cancels; then replace a lost session."""
        if self.session.session_id is None:
            return self._reopen()
        contexts, session_id = list(self.running.values()), self.session.session_id
        self._report.collect(contexts)
        renewal, stored = self.session.renew(self._write_report)
        self._report.settle(is_stored=renewal is Renewal.RENEWED)
        now = self.clock.monotonic()
        if stored is not None:
            live = [c for c in contexts if c.held.token in self.running]
            follow_store([c for c in live if c.held.session_id == session_id], stored, now)
        _receive_cancels(self, stored or {}, now)
        if renewal is Renewal.LOST:
            self.signal_all(Signal.LEASE)
        if self.events.wants(WorkerHeartbeat):
            self.events.emit(WorkerHeartbeat(self.session.session_id or 0, renewal, len(self.held)))
        return renewal

    def claim_once(self, n: int, *, start: bool = False) -> list[HeldRun]:
        """Claim up to `n` runs (`start`: as RUNNING); none while the lease is uncertain."""
        now = self.clock.monotonic()
        claim = _claim_of(self, n, now, start=start)
        if claim is None:
            return []
        is_due = bool(self._rechecks) and self._rechecks[0] <= now
        if is_due and (found := self._recheck(self.session.session_id or 0, now)):
            return found
        try:
            runs = self._store.write(Single(lambda tx: run_claim(tx, claim)))
        except StoreUnavailable:
            self._rechecks = _recheck_times(self.clock)
            raise
        return self._claimed(runs, claim, now)

    def flush_and_claim(self, n: int) -> list[HeldRun]:
        """Store ends as `flush_once` does, and claim up to `n` runs in the same transaction.

        It claims if it advanced flows that continue in this worker's pool. It must not run at the
        same time as `claim_once`.
        """
        now = self.clock.monotonic()
        claim = _claim_of(self, n, now)
        if claim is None:
            self.flush_once()
            return []
        try:
            runs = self.ends.flush_and_claim(claim)
        except StoreUnavailable:
            self._rechecks = _recheck_times(self.clock)
            raise
        return self._claimed(runs, claim, now) if runs else []

    def _claimed(self, runs: Sequence[HeldRun], claim: Claim, now: float) -> list[HeldRun]:
        if claim.start_ranks is None:
            self.fair_clock.claim_start.head_claimed(now, self.clock.monotonic())
        self.fair_clock.claimed(runs)
        held = self._hold(runs)
        self._inputs.load(held)
        return held

    def begin(self, held: HeldRun, now: float) -> RunContext | None:
        """Start a run in memory (a suspect also in the store); return None if it must not run."""
        if held.cancel_requested_at is not None or held.token in self.cancels:
            self.cancels.discard(held.token)
            self.ends.add([_cancelled(held, self.options.name)])
            return None
        context = RunContext(held, self.known[held.processor_key], self.clock, now, self._store)
        context.make_port = self._make_port
        context.changed_input = self._inputs.take(held)
        if is_suspect(held):
            if held.run_id not in self.start_many([held]):
                self.forget([held])
                return None
            context.is_marked = True
        self.running[held.token] = context
        if self.events.wants(RunStarted):
            self.events.emit(_started(held))
        return context

    def start_many(self, runs: Iterable[HeldRun]) -> set[int]:
        """Mark claimed runs RUNNING; return the ids of those still held by this worker."""
        pairs = [(run.run_id, run.token) for run in runs]
        session_id = self.session.session_id
        return self._store.write(lambda tx: _start(tx, pairs, session_id))

    def execute(self, held: HeldRun) -> RunEnd | None:
        """Run one processor inline and end its run in memory; return None if it must not run."""
        context = self.begin(held, self.clock.monotonic())
        if context is None:
            return None
        outcome = call_inline(context)
        return self.finish_of(context, outcome) if self.running.pop(held.token, None) else None

    def conclude_value(self, context: RunContext, value: object, now: float) -> RunEnd:
        """Return the end of a run whose processor returned; the plain case is the hot path."""
        if value is None and context.is_plain:
            held, spent = context.held, int((now - context.started_at_s) * SECOND)
            return attempt_result.completed_result(held, duration_us=spent, actor=self.options.name)
        return self.finish_of(context, outcome_of_value(context, value))

    def finish_of(self, context: RunContext, outcome: AttemptOutcome) -> RunEnd:
        """Return the end of a run; unreadable settings must not keep it from ending."""
        now, actor = self.clock.monotonic(), self.options.name
        self.ends.keep(context.take_entries(), context.take_report())
        try:
            return finish_of(context, outcome, jitter=self.jitter, actor=actor, now=now)
        except Exception as error:
            return invalid_settings_finish(context.held, error, actor)

    def end(self, context: RunContext, outcome: AttemptOutcome) -> bool:
        """End a run in memory unless it was ended before; return whether this call ended it."""
        if self.running.pop(context.held.token, None) is None:
            return False
        self.ends.add([self.finish_of(context, outcome)])
        return True

    def flush_once(self) -> FlushCounts:
        """Store the oldest ends in one transaction; on failure they are kept for the next call."""
        return self.ends.flush_once()

    def release_many(self, runs: Sequence[HeldRun]) -> int:
        """Release runs that have not started; return how many this worker still held."""
        if not runs:
            return 0
        rows = [(run.run_id, run.token, 0) for run in runs]
        given = self._store.write(lambda tx: run_release_many(tx, rows))
        self.forget(runs)
        if given:
            self.events.emit(RunsReleased.of(given))
        self._store.wake([ADMIT])
        return len(given)

    def release_all(self) -> int:
        """Release all held runs that have neither started nor ended."""
        busy = self.running.keys() | self.ends.tokens()
        return self.release_many([r for token, r in list(self.held.items()) if token not in busy])

    def forget(self, runs: Iterable[HeldRun]) -> None:
        """Drop runs that this worker no longer holds."""
        for run in runs:
            self.held.pop(run.token, None)
            self.cancels.discard(run.token)
            self._inputs.forget(run.token)

    def signal_all(self, signal: Signal) -> None:
        """Signal every running processor that has no signal yet."""
        now = self.clock.monotonic()
        for context in list(self.running.values()):
            if context.signal is None:
                context.send_signal(signal, now)

    def close(self) -> None:
        """End the session."""
        self.session.close()

    def run_once(self, n: int | None = None) -> FlushCounts:
        """Claim, execute inline and store: a whole worker cycle in one call, for tests."""
        for held in self.claim_once(self.options.concurrency if n is None else n):
            finish = self.execute(held)
            if finish is not None:
                self.ends.add([finish])
        self.fair_clock.raise_once()
        return self.flush_once()

    def _write_report(self, tx: Tx, session_id: int) -> dict[int, bool]:
        """Write progress and log entries; return the session's runs as `session_held` does."""
        self._report.write(tx)
        return session_held(tx, session_id)

    def _reopen(self) -> Renewal:
        try:
            self.session.open(PoolKey(self.pool_key))
        except (StoreUnavailable, StoreBusy):
            return Renewal.UNKNOWN
        return Renewal.RENEWED

    def _recheck(self, session_id: int, now: float) -> list[HeldRun]:
        """Find runs that were claimed by a transaction whose response was lost."""
        known = set(self.held)
        runs = self._store.read(lambda tx: session_runs(tx, session_id))
        self._rechecks = [due for due in self._rechecks if due > now]
        return self._hold(run for run in runs if run.token not in known)

    def _hold(self, runs: Iterable[HeldRun]) -> list[HeldRun]:
        """Keep runs of the current session; the sweeper handles those of a lost session."""
        ours = [run for run in runs if run.session_id == self.session.session_id]
        self.held.update((run.token, run) for run in ours)
        return ours


def _register(
    tx: Tx, pipelines: Sequence[Pipeline], options: WorkerOptions
) -> tuple[int, dict[int, LoadedProcessor]]:
    known: dict[int, LoadedProcessor] = {}
    for pipeline in pipelines:
        numbers = pipeline_register(tx, pipeline)
        preset = defaults(pipeline.parameters)
        for p in pipeline.processors:
            if p.runs not in ("external", "http"):
                number = numbers[p.phase, p.name]
                known[number] = LoadedProcessor(ProcessorKey(number), p, preset, options.secrets)
    return pool_ensure(tx, options.pool), known


def _recheck_times(clock: Clock) -> list[float]:
    return [clock.monotonic() + seconds for seconds in RECHECK_SECONDS]


def _receive_cancels(core: WorkerCore, stored: Mapping[int, bool], now: float) -> None:
    """Signal the running processors that were asked to stop; remember those not started yet."""
    for token in [token for token, is_cancelled in stored.items() if is_cancelled]:
        found = core.running.get(token)
        if found is None and token in core.held:
            core.cancels.add(token)
        elif found is None:
            continue
        elif found.signal is None:
            found.send_signal(Signal.CANCEL, now)
    # A run may have started while its cancel was recorded; the next heartbeat returns it again.
    core.cancels.intersection_update(core.held)


def _claim_of(core: WorkerCore, n: int, now: float, *, start: bool = False) -> Claim | None:
    """Return the parameters of the next claim; None while the lease is uncertain."""
    session_id = core.session.session_id
    if n <= 0 or session_id is None or not core.session.is_safe:
        return None
    return Claim(
        pool_key=PoolKey(core.pool_key),
        processors=list(core.known),
        n=min(n, core.options.batch_max),
        session_id=session_id,
        claimed_by=core.options.name,
        start=start,
        start_ranks=core.fair_clock.claim_start.next_claim(now),
    )


def _cancelled(held: HeldRun, actor: str) -> RunEnd:
    return attempt_result.cancelled(held, actor=actor, why="cancelled before it started")


def _started(held: HeldRun) -> RunStarted:
    return RunStarted(
        held.run_id,
        held.customer_id,
        held.processor_key,
        held.attempt,
        held.flow_id,
        held.correlation_id,
        held.root_run_id or held.run_id,
        held.item_key,
    )


def _start(tx: Tx, pairs: Sequence[tuple[int, int]], session_id: int | None) -> set[int]:
    """Mark runs RUNNING; runs marked by an earlier call whose response was lost still count."""
    started = run_start_many(tx, pairs)
    missing = {token for run_id, token in pairs if run_id not in started}
    if missing and session_id is not None:
        ours = session_runs(tx, session_id)
        started |= {run.run_id for run in ours if run.token in missing and run.started_at}
    return started
