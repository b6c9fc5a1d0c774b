"""Workers for driven time: they claim like real ones, and end runs when a test says they end.

The real worker's steps over the store, one session per pool, no threads. A processor's function is
called only where that is asked for; otherwise a run succeeds after its time, or fails as planned.
External processors are done here too, so that a flow gets to its end. `FlowTest` drives this.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.access.store.registry import processor_list
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, Clock, Micros
from penstock.db.store import Store
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.worker.context import Known, RunContext, Signal
from penstock.worker.execution.call import call_inline
from penstock.worker.options import WorkerOptions
from penstock.worker.outcome import Outcome
from penstock.worker.worker_core import WorkerSteps

LEASE_US = 60 * DAY
TIMED_OUT = Outcome(error_type="TIMEOUT", is_interrupted=True)


@dataclass(slots=True, kw_only=True)
class Manners:
    """How a processor behaves: how long it takes, what its first attempts come to, who does it."""

    takes_us: Micros = MINUTE
    failures: list[Outcome] = field(default_factory=list)
    """One per attempt that fails, in order; then it succeeds."""
    status: str = "SUCCESS"
    call: Callable[[RunContext], Outcome] | None = None


@dataclass(slots=True)
class _Busy:
    ends_at: Micros
    steps: WorkerSteps
    context: RunContext
    outcome: Outcome


class Hands:
    """Every pool's worker, driven step by step."""

    def __init__(
        self, store: Store, pipelines: Sequence[Pipeline], clock: Clock, *, is_called: bool
    ) -> None:
        self.done: Callable[[RunContext], None] = lambda _: None
        """Called when a run has succeeded."""
        self.manners: dict[str, Manners] = {}
        self._is_called = is_called
        self._clock = clock
        self._busy: list[_Busy] = []
        self._steps: list[WorkerSteps] = []
        jitter = random.Random(0).random  # noqa: S311 - retries without chance
        for pool in sorted({p.pool for pipeline in pipelines for p in pipeline.processors}):
            options = WorkerOptions(
                pool=pool, name=f"test:{pool}", slots=1_000, lease_us=LEASE_US, beat_us=HOUR
            )
            steps = WorkerSteps(store, pipelines, options, clock=clock, jitter=jitter)
            steps.open()
            self._learn_external(store, pipelines, steps)
            self._steps.append(steps)

    def step(self) -> int:
        """End what is due, start what is ready; returns how many runs that concerned."""
        now, touched = self._clock.now(), 0
        for busy in [busy for busy in self._busy if busy.ends_at <= now]:
            self._busy.remove(busy)
            touched += busy.steps.end(busy.context, busy.outcome)
            while len(busy.steps.ends):
                busy.steps.flush_once()
            if busy.outcome.error_type is None:
                self.done(busy.context)
        for steps in self._steps:
            for held in steps.claim_once(steps.options.slots, start=True):
                context = steps.begin(held, self._clock.monotonic())
                if context is not None:
                    self._busy.append(self._begun(steps, context, now))
                touched += 1
            steps.fair_clock.raise_once()
        return touched

    def next_at(self) -> Micros | None:
        """When the next run ends."""
        return min((busy.ends_at for busy in self._busy), default=None)

    def close(self) -> None:
        """End the sessions."""
        for steps in self._steps:
            steps.close()

    def _begun(self, steps: WorkerSteps, context: RunContext, now: Micros) -> _Busy:
        manners = self.manners.get(context.processor, Manners())
        limit = context.held.max_execution_us
        if manners.takes_us > limit:
            context.tell(Signal.TIMEOUT, self._clock.monotonic() + limit / SECOND)
            return _Busy(now + limit, steps, context, TIMED_OUT)
        if manners.failures:
            outcome = manners.failures.pop(0)
        elif manners.call is not None:
            outcome = manners.call(context)
        elif self._is_called and context.declared.body is not None:
            outcome = call_inline(context)
        else:
            outcome = Outcome(status=manners.status)
        return _Busy(now + manners.takes_us, steps, context, outcome)

    @staticmethod
    def _learn_external(store: Store, pipelines: Sequence[Pipeline], steps: WorkerSteps) -> None:
        """Take on what somebody outside would do in this pool."""
        declared = {
            (p.pipeline, p.phase, p.name): p for pipeline in pipelines for p in pipeline.processors
        }
        for row in store.read(processor_list):
            found = declared.get((row.pipeline, row.phase, row.name))
            if found is not None and found.runs == "external" and row.pool == steps.options.pool:
                steps.known[row.processor] = Known(row.processor, found, {})
