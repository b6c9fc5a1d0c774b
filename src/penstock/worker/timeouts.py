"""The watch over runs in hand: what takes long, what exceeds its time, what waits too long.

One tick: stop what the worker may no longer vouch for (its lease is unsure), end what exceeded its
time, mark RUNNING what is still at it after a moment, put back what waits behind a long run, give
back what was claimed and never began. Ticks are frequent only while something is young; a worker
with nothing in hand is not ticked at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.core.clock import SECOND
from penstock.runs.rows import HeldRun
from penstock.worker.context import RunContext, Signal
from penstock.worker.lanes.async_loop import LoopLane
from penstock.worker.lanes.collector import CollectLane
from penstock.worker.lanes.threads import ThreadLane
from penstock.worker.outcome import Outcome
from penstock.worker.worker_core import WorkerSteps

FAST_SECONDS: Final = 0.05
SLOW_SECONDS: Final = 1.0


class Watch:
    """Looks after the runs of one worker; one thread ticks it."""

    def __init__(
        self,
        steps: WorkerSteps,
        threads: ThreadLane,
        loop: LoopLane,
        collect: CollectLane,
        *,
        on_ends: Callable[[], None],
    ) -> None:
        self._steps = steps
        self._threads = threads
        self._loop = loop
        self._collect = collect
        self._on_ends = on_ends
        self._returns: list[HeldRun] = []
        self._marking = steps.options.mark_us / SECOND
        self._holding = steps.options.hold_us / SECOND
        self._grace = steps.options.grace_us / SECOND

    def tick(self) -> float | None:
        """Look once; returns the seconds until the next look, None when nothing is in hand."""
        steps = self._steps
        now = steps.clock.monotonic()
        if now >= steps.session.safe_until:
            steps.signal_all(Signal.LEASE)
        due, is_young = now + SLOW_SECONDS, False
        marks: list[RunContext] = []
        for context in list(steps.running.values()):
            if context.signal is not None:
                self._press(context, now)
            elif now >= context.due:
                self._time_out(context, now)
            else:
                due = min(due, context.due)
                if not context.is_marked:
                    is_young = True
                    if now - context.began >= self._marking:
                        marks.append(context)
        self._threads.steal(now)
        self._returns.extend(self._threads.buffer.expire(now - self._holding))
        self._returns.extend(self._loop.expire(now - self._holding))
        self._returns.extend(self._collect.expire(self._holding, now))
        gathered = self._collect.tick(now)
        if marks:
            self._mark(marks, now)
        if self._returns:
            self._release()
        if is_young or self._threads.buffer.count or self._loop.waiting:
            return FAST_SECONDS
        if gathered is not None:
            return max(0.001, min(due, gathered, now + FAST_SECONDS) - now)
        return max(0.001, due - now) if steps.running else None

    def give_back(self, runs: list[HeldRun]) -> None:
        """Let the next tick release runs (again, when the store is away)."""
        self._returns.extend(runs)

    def _release(self) -> None:
        """Release what was given back so far; what comes meanwhile stays for the next tick."""
        runs = list(self._returns)
        self._steps.release_many(runs)
        del self._returns[: len(runs)]

    def _mark(self, marks: list[RunContext], now: float) -> None:
        started = self._steps.start_many([context.held for context in marks])
        for context in marks:
            context.is_marked = True
            if context.held.run_id not in started and self._is_running(context):
                context.tell(Signal.LEASE, now)

    def _is_running(self, context: RunContext) -> bool:
        return context.held.token in self._steps.running

    def _time_out(self, context: RunContext, now: float) -> None:
        context.tell(Signal.TIMEOUT, now)
        if context.declared.runs == "thread":
            self._abandon(context)

    def _press(self, context: RunContext, now: float) -> None:
        """A signalled run that does not react: kill its process, or end a timed-out one here."""
        if now - context.told_at < self._grace:
            return
        if context.declared.runs == "process":
            context.tell(Signal.KILL, now)
        elif context.signal is Signal.TIMEOUT:
            self._abandon(context)
        elif now >= context.due:
            # Cancelled, did not stop, and its time is up as well.
            context.signal = Signal.TIMEOUT
            self._abandon(context)

    def _abandon(self, context: RunContext) -> None:
        if self._steps.end(context, Outcome(is_timed_out=True)):
            self._threads.abandon(context)
            self._on_ends()
