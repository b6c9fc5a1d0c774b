"""Simulated workers: the real `WorkerCore`, driven without threads on virtual time.

One process has two actors, like the threads of the real one: the heartbeat, and the loop that
claims, begins, marks, ends and flushes. The seed decides how long a run takes; then the processor
returns, fails, exceeds its timeout or stops on request. A suspended process resumes late and
continues as if nothing had happened, which is the case that fencing tokens guard against.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.core.clock import MINUTE, SECOND
from penstock.core.errors import StoreError
from penstock.core.naming import DEFAULT_POOL
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.rows import HeldRun, RunEnd
from penstock.runs.store.finish import run_end_many, run_release_many
from penstock.testing.simulate.actors import ERRORS, Actor, Stage
from penstock.testing.simulate.faults import Fault
from penstock.worker.context import RunContext, Signal
from penstock.worker.options import WorkerOptions
from penstock.worker.outcome import RELEASED, AttemptOutcome
from penstock.worker.session import Renewal
from penstock.worker.worker_core import WorkerCore

LEASE_US = 2 * MINUTE
HEARTBEAT_US = 40 * SECOND
MARK_US = 20 * SECOND
INTERRUPTED = AttemptOutcome(error_type="LEASE_LOST", is_interrupted=True)


@dataclass(slots=True)
class _Execution:
    context: RunContext
    ends_at: int
    outcome: AttemptOutcome


def _results_with_items(pipelines: Sequence[Pipeline]) -> dict[tuple[str, str], str]:
    """Return results, by pipeline and processor, of those whose lists others fan out over."""
    found = {}
    for pipeline in pipelines:
        for declared in pipeline.processors:
            each = declared.terms.each
            if each is not None and each.processor is not None:
                source = each.processor.rpartition(".")[2]
                found[pipeline.name, source] = json.dumps({each.list_field: ["a", "b", "c"]})
    return found


class SimWorker(Actor):
    """The main loop of one worker process."""

    kind = "worker"

    def __init__(
        self, stage: Stage, name: str, pipelines: Sequence[Pipeline], pool: str = DEFAULT_POOL
    ) -> None:
        super().__init__(stage, name, 30 * SECOND)
        self._pipelines = list(pipelines)
        self._pool = pool
        self._listed = _results_with_items(pipelines)
        self._boots = itertools.count(1)
        self._slots = stage.rng.randint(1, 4)
        self._starts = stage.rng.random() < 0.5
        self._advances = sum(name.encode()) % 2 == 0  # one of two workers, by its name
        self._executions: dict[int, _Execution] = {}
        self._waiting: list[HeldRun] = []
        self._sent: list[RunEnd] = []
        self.is_open = False
        self.acts: Callable[[RunContext], object] = lambda _: None
        """What a processor that will succeed does in addition to its result."""
        self.start()

    def start(self) -> None:
        """Start a new process: no session, no runs."""
        stage = self.stage
        options = WorkerOptions(
            pool=self._pool,
            name=self.name,
            concurrency=self._slots,
            batch_max=3,
            lease_us=LEASE_US,
            heartbeat_us=HEARTBEAT_US,
            margin_us=15 * SECOND,
            mark_running_after_us=MARK_US,
            advances=self._advances,
        )
        self.steps = WorkerCore(
            self.store,
            self._pipelines,
            options,
            clock=stage.clock,
            jitter=stage.rng.random,
            boot_id=lambda: f"{self.name}-{next(self._boots)}",
        )
        self.sessions.clear()
        self._executions = {}
        self._waiting = []
        self._sent = []
        self.is_open = False

    def step(self) -> None:
        """Open, then claim, begin, mark, end, flush; each may fail at any transaction."""
        if not self.is_open:
            self.steps.open()
            self.is_open = True
            self.record_session()
        self._claim()
        self._begin()
        self._mark()
        self._end()
        self._flush()

    def record_session(self) -> None:
        """Record the id of the current session."""
        if self.steps.session.session_id is not None:
            self.sessions.add(self.steps.session.session_id)

    def on_session_lost(self) -> None:
        """Handle a lost session: drop runs that have not begun.

        Running ones were signalled to stop.
        """
        self.steps.forget(self._waiting)
        self._waiting = []

    def _claim(self) -> None:
        self.record_session()
        free = self._slots - len(self._executions) - len(self._waiting)
        self._waiting += self.steps.claim_once(free, start=self._starts)
        self.steps.fair_clock.raise_once()

    def _begin(self) -> None:
        rng, clock = self.stage.rng, self.stage.clock
        while self._waiting:
            held = self._waiting[0]
            context = self.steps.begin(held, clock.monotonic())
            self._waiting = [run for run in self._waiting if run.token != held.token]
            if context is None:
                continue
            spread = 1 if self.is_recovering else 6 * MINUTE
            self._executions[held.token] = _Execution(
                context, clock.now() + rng.randrange(spread), self._outcome(context)
            )

    def _outcome(self, context: RunContext) -> AttemptOutcome:
        rng = self.stage.rng
        if self.is_recovering or rng.random() < 0.65:
            try:
                self.acts(context)
            except StoreError:
                return AttemptOutcome(error_type=ERRORS[0])
            return AttemptOutcome(result=self._listed.get((context.pipeline, context.processor)))
        return AttemptOutcome(error_type=rng.choice(ERRORS))

    def _mark(self) -> None:
        """Mark longer runs as RUNNING, in a batch."""
        before = self.stage.clock.monotonic() - MARK_US / SECOND
        old = [
            e.context
            for e in self._executions.values()
            if not e.context.is_marked and e.context.started_at_s < before
        ]
        unmarked = [context for context in old if context.held.started_at is None]
        if unmarked:
            self.steps.start_many([context.held for context in unmarked])
        for context in old:
            context.is_marked = True

    def _end(self) -> None:
        now = self.stage.clock.now()
        for token, execution in list(self._executions.items()):
            context = execution.context
            if context.signal is not None and self.stage.fault_occurs(Fault.LATE, 0.3):
                continue  # a processor that ignores the signal
            if context.signal is not None:
                self.steps.end(context, INTERRUPTED)
            elif self.stage.clock.monotonic() > context.deadline_s and not self.stage.fault_occurs(
                Fault.LATE, 0.3
            ):
                context.send_signal(Signal.TIMEOUT, self.stage.clock.monotonic())
                self.steps.end(context, INTERRUPTED)
            elif now >= execution.ends_at or self.is_recovering:
                self.steps.end(context, execution.outcome)
            else:
                continue
            self._executions.pop(token)

    def _flush(self) -> None:
        if self._sent and self.stage.fault_occurs(Fault.DUPLICATE, 0.3):
            again = self._sent.pop()
            if again.final_state == RELEASED:
                row = (again.run_id, again.token, again.retry_delay_us or 0)
                self.store.write(lambda tx: run_release_many(tx, [row]))
            else:
                self.store.write(lambda tx: run_end_many(tx, [again]))
        waiting = list(self.steps.ends._queue)
        free = self._slots - len(self._executions) - len(self._waiting)
        self._waiting += self.steps.flush_and_claim(free)
        kept = self.steps.ends.tokens()
        self._sent = (self._sent + [end for end in waiting if end.token not in kept])[-4:]
        if not self._executions and self.stage.rng.random() < 0.02:
            self._leave()

    def _leave(self) -> None:
        """Stop in an orderly way: release, close; the next step opens a new session."""
        self.steps.release_all()
        self._waiting = []
        self.steps.close()
        self.start()


class SimHeartbeat(Actor):
    """The thread of a worker process that renews its session."""

    kind = "worker"

    def __init__(self, worker: SimWorker) -> None:
        super().__init__(worker.stage, f"{worker.name}-beat", HEARTBEAT_US)
        self.worker = worker
        self.store = worker.store
        self.sessions = worker.sessions

    def step(self) -> None:
        """Renew the session; an unknown result changes nothing."""
        if not self.worker.is_open:
            return
        renewal = self.worker.steps.heartbeat_once()
        self.worker.record_session()
        if renewal is Renewal.LOST:
            self.worker.on_session_lost()
