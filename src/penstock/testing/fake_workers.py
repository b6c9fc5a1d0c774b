"""Fake workers on virtual time: they claim like real workers, and runs end when the test ends them.

Uses the real worker's steps over the store, with one session per pool and no threads. Processor
functions are called only on request; otherwise a run succeeds after its duration, or fails as
planned. External processors are executed here too, so that a flow reaches its end. Used by
`FlowTest`.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.access.store.registry import processor_list
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, Clock, Micros
from penstock.db.store import Store
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.worker.context import LoadedProcessor, RunContext, Signal
from penstock.worker.execution.call import call_inline
from penstock.worker.options import WorkerOptions
from penstock.worker.outcome import AttemptOutcome
from penstock.worker.worker_core import WorkerCore

_log = logging.getLogger(__name__)

LEASE_US = 60 * DAY
TIMED_OUT = AttemptOutcome(error_type="TIMEOUT", is_interrupted=True)


@dataclass(slots=True, kw_only=True)
class ProcessorBehavior:
    """How a processor behaves: duration, failures of its first attempts, function."""

    takes_us: Micros = MINUTE
    failures: list[AttemptOutcome] = field(default_factory=list)
    """One outcome per failing attempt, in order; later attempts succeed."""
    item_failures: dict[str, list[AttemptOutcome]] = field(default_factory=dict)
    """Failures of the next attempts of single items, by key."""
    status: str = "SUCCESS"
    call: Callable[[RunContext], AttemptOutcome] | None = None


@dataclass(slots=True)
class _Busy:
    ends_at: Micros
    steps: WorkerCore
    context: RunContext
    outcome: AttemptOutcome


class FakeWorkers:
    """One worker per pool, driven step by step."""

    def __init__(
        self, store: Store, pipelines: Sequence[Pipeline], clock: Clock, *, is_called: bool
    ) -> None:
        self.on_completed: Callable[[RunContext], None] = lambda _: None
        """Called after a run succeeded."""
        self.behaviors: dict[str, ProcessorBehavior] = {}
        self.errors: list[str] = []
        """Exceptions that functions raised, with tracebacks, in order."""
        self._is_called = is_called
        self._clock = clock
        self._busy: list[_Busy] = []
        self._steps: list[WorkerCore] = []
        jitter = random.Random(0).random  # noqa: S311 - deterministic retries
        for pool in sorted({p.pool for pipeline in pipelines for p in pipeline.processors}):
            options = WorkerOptions(
                pool=pool,
                name=f"test:{pool}",
                concurrency=1_000,
                lease_us=LEASE_US,
                heartbeat_us=HOUR,
            )
            steps = WorkerCore(store, pipelines, options, clock=clock, jitter=jitter)
            steps.open()
            self._add_external(store, pipelines, steps)
            self._steps.append(steps)

    def step(self) -> int:
        """End due runs and start ready ones; return how many runs were affected."""
        now, touched = self._clock.now(), 0
        for busy in [busy for busy in self._busy if busy.ends_at <= now]:
            self._busy.remove(busy)
            touched += busy.steps.end(busy.context, busy.outcome)
            while len(busy.steps.ends):
                busy.steps.flush_once()
            if busy.outcome.error_type is None:
                self.on_completed(busy.context)
        for steps in self._steps:
            for held in steps.claim_once(steps.options.concurrency, start=True):
                context = steps.begin(held, self._clock.monotonic())
                if context is not None:
                    self._busy.append(self._begun(steps, context, now))
                touched += 1
            steps.fair_clock.raise_once()
        return touched

    def next_at(self) -> Micros | None:
        """Return when the next run ends; None when nothing runs."""
        return min((busy.ends_at for busy in self._busy), default=None)

    def close(self) -> None:
        """End the sessions."""
        for steps in self._steps:
            steps.close()

    def _noted(self, context: RunContext, outcome: AttemptOutcome) -> AttemptOutcome:
        """Record and log an exception of a function, so that a failing test shows it."""
        if outcome.error_type is not None and outcome.details is not None:
            found = json.loads(outcome.details)
            text = found.get("traceback") or found.get("message") or outcome.error_type
            where = f"{context.processor}, attempt {context.attempt}"
            self.errors.append(f"{where}: {text.strip()}")
            _log.error("%s raised: %s", where, text.strip())
        return outcome

    def _begun(self, steps: WorkerCore, context: RunContext, now: Micros) -> _Busy:
        behavior = self.behaviors.get(context.processor, ProcessorBehavior())
        limit = context.held.max_execution_us
        if behavior.takes_us > limit:
            context.send_signal(Signal.TIMEOUT, self._clock.monotonic() + limit / SECOND)
            return _Busy(now + limit, steps, context, TIMED_OUT)
        of_item = behavior.item_failures.get(context.item_key or "")
        if of_item:
            outcome = of_item.pop(0)
        elif behavior.failures:
            outcome = behavior.failures.pop(0)
        elif behavior.call is not None:
            outcome = self._noted(context, behavior.call(context))
        elif self._is_called and context.declared.body is not None:
            outcome = self._noted(context, call_inline(context))
        else:
            outcome = AttemptOutcome(status=behavior.status)
        return _Busy(now + behavior.takes_us, steps, context, outcome)

    @staticmethod
    def _add_external(store: Store, pipelines: Sequence[Pipeline], steps: WorkerCore) -> None:
        """Let this pool's worker execute the pool's external processors as well."""
        declared = {
            (p.pipeline, p.phase, p.name): p for pipeline in pipelines for p in pipeline.processors
        }
        for row in store.read(processor_list):
            found = declared.get((row.pipeline, row.phase, row.name))
            is_ours = found is not None and row.pool == steps.options.pool
            if found is not None and is_ours and found.runs in ("external", "http"):
                steps.known[row.processor_key] = LoadedProcessor(row.processor_key, found, {})
