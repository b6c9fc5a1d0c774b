"""A worker without threads, for virtual time: the caller invokes `step` once per clock tick.

Claims, executes and ends runs through the real worker's steps; used by the demo and by tests of
pipelines in virtual time. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.audit.telemetry import Events
from penstock.core.clock import SECOND, Clock
from penstock.db.store import StoreView
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.worker.context import RunContext
from penstock.worker.execution.call import call_inline
from penstock.worker.options import WorkerOptions
from penstock.worker.outcome import AttemptOutcome
from penstock.worker.worker_core import WorkerCore


class InlineWorker:
    """A worker that the caller steps.

    A processor runs immediately; its end is delayed by the number of seconds that
    `seconds(context)` returns, so that concurrency stays in use in virtual time.
    """

    def __init__(self, steps: WorkerCore, seconds: Callable[[RunContext], float]) -> None:
        self._steps = steps
        self._seconds = seconds
        self._busy: list[tuple[float, int, RunContext, AttemptOutcome]] = []
        self._heartbeat_at = float("-inf")
        steps.open()

    @property
    def name(self) -> str:
        """Worker name stored with the runs it claims."""
        return self._steps.options.name

    @property
    def held(self) -> int:
        """Number of runs it holds."""
        return len(self._steps.held)

    def step(self) -> int:
        """End finished runs, start runs that fit, renew the session; return the number started."""
        steps, now = self._steps, self._steps.clock.monotonic()
        if now - self._heartbeat_at >= steps.options.heartbeat_us / SECOND:
            steps.heartbeat_once()
            self._heartbeat_at = now
        for entry in [entry for entry in self._busy if entry[0] <= now]:
            self._busy.remove(entry)
            steps.end(entry[2], entry[3])
        while len(steps.ends):
            steps.flush_once()
        claimed = steps.claim_once(steps.options.concurrency - len(self._busy), start=True)
        for held in claimed:
            context = steps.begin(held, now)
            if context is not None:
                outcome = call_inline(context)
                self._busy.append((now + self._seconds(context), held.token, context, outcome))
        steps.fair_clock.raise_once()
        return len(claimed)

    def report(self) -> int:
        """Store the results of all held runs, however late; return how many were rejected."""
        for _, _, context, outcome in self._busy:
            self._steps.end(context, outcome)
        self._busy.clear()
        refused = 0
        while len(self._steps.ends):
            refused += self._steps.flush_once().refused
        return refused

    def stop(self) -> None:
        """Close the session; the worker must hold no runs."""
        assert self._steps.is_idle, "runs are still held"
        self._steps.close()


def inline_worker(
    store: StoreView,
    pipelines: Sequence[Pipeline],
    options: WorkerOptions,
    *,
    clock: Clock,
    jitter: Callable[[], float],
    seconds: Callable[[RunContext], float],
    events: Events,
) -> InlineWorker:
    """Build an inline worker over the real steps."""
    steps = WorkerCore(store, pipelines, options, clock=clock, jitter=jitter, events=events)
    return InlineWorker(steps, seconds)
