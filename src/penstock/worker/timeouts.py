"""The watch over held runs: timeouts, marking as RUNNING, and releasing runs that wait too long.

One tick: signal runs if the worker's lease is uncertain, end runs that exceeded their time limit,
mark runs that have been executing for a short time as RUNNING, return runs that wait behind a long
one, release runs that were claimed and never started. Ticks are frequent only while a run is not
marked yet; a worker that holds no runs is not ticked at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.core.clock import SECOND
from penstock.runs.rows import HeldRun
from penstock.worker.context import RunContext, Signal
from penstock.worker.executors.async_loop import AsyncExecutor
from penstock.worker.executors.collector import BatchExecutor
from penstock.worker.executors.threads import ThreadExecutor
from penstock.worker.outcome import AttemptOutcome
from penstock.worker.worker_core import WorkerCore

FAST_SECONDS: Final = 0.05
SLOW_SECONDS: Final = 1.0


class RunWatch:
    """Monitor of one worker's runs; one thread ticks it."""

    def __init__(
        self,
        steps: WorkerCore,
        threads: ThreadExecutor,
        loop: AsyncExecutor,
        collect: BatchExecutor,
        *,
        on_ends: Callable[[], None],
    ) -> None:
        self._steps = steps
        self._threads = threads
        self._loop = loop
        self._collect = collect
        self._on_ends = on_ends
        self._returns: list[HeldRun] = []
        self._mark_after_s = steps.options.mark_running_after_us / SECOND
        self._hold_s = steps.options.hold_us / SECOND
        self._grace_s = steps.options.grace_us / SECOND
        # A process that ignores the end of the lease is killed while the lease still holds.
        self._fence_grace_s = min(self._grace_s, steps.options.margin_us / 2 / SECOND)

    def tick(self) -> float | None:
        """Check all held runs; return the seconds until the next tick, None if no runs are held."""
        steps = self._steps
        now = steps.clock.monotonic()
        if now >= steps.session.safe_until:
            steps.signal_all(Signal.LEASE)
        due, is_young = now + SLOW_SECONDS, False
        marks: list[RunContext] = []
        for context in list(steps.running.values()):
            if context.is_gone:
                self._leave(context, now)
            elif context.signal is not None:
                self._escalate(context, now)
            elif now >= context.deadline_s:
                self._time_out(context, now)
            else:
                due = min(due, context.deadline_s)
                if not context.is_marked:
                    is_young = True
                    if now - context.started_at_s >= self._mark_after_s:
                        marks.append(context)
        self._threads.steal(now)
        self._returns.extend(self._threads.buffer.expire(now - self._hold_s))
        self._returns.extend(self._loop.expire(now - self._hold_s))
        self._returns.extend(self._collect.expire(self._hold_s, now))
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

    @property
    def leaked(self) -> int:
        """Number of executions that were ended while their code keeps running."""
        return self._threads.zombies + self._loop.zombies

    def release_later(self, runs: list[HeldRun]) -> None:
        """Queue runs for release by the next tick; retried while the store is unavailable."""
        self._returns.extend(runs)

    def _release(self) -> None:
        """Release the runs queued so far; those added meanwhile wait for the next tick."""
        runs = list(self._returns)
        self._steps.release_many(runs)
        del self._returns[: len(runs)]

    def _mark(self, marks: list[RunContext], now: float) -> None:
        started = self._steps.start_many([context.held for context in marks])
        for context in marks:
            context.is_marked = True
            if context.held.run_id not in started and self._is_running(context):
                context.send_signal(Signal.LEASE, now)

    def _is_running(self, context: RunContext) -> bool:
        return context.held.token in self._steps.running

    def _time_out(self, context: RunContext, now: float) -> None:
        context.send_signal(Signal.TIMEOUT, now)
        if context.declared.runs == "thread":
            self._abandon(context)

    def _escalate(self, context: RunContext, now: float) -> None:
        """Escalate a signal that was ignored: kill the process, or end a timed-out run here."""
        grace = self._fence_grace_s if context.signal is Signal.LEASE else self._grace_s
        if now - context.signalled_at < grace:
            return
        if context.declared.runs == "process":
            context.send_signal(Signal.KILL, now)
        elif context.signal is Signal.TIMEOUT:
            self._abandon(context)
        elif now >= context.deadline_s:
            # It was cancelled, has not stopped, and its time is up.
            context.signal = Signal.TIMEOUT
            self._abandon(context)

    def _abandon(self, context: RunContext) -> None:
        if self._steps.end(context, AttemptOutcome(is_timed_out=True)):
            self._count_leaked(context)
            self._on_ends()

    def _leave(self, context: RunContext, now: float) -> None:
        """Release the concurrency of a run that another process ended."""
        if self._steps.running.pop(context.held.token, None) is None:
            return
        self._steps.forget([context.held])
        if context.declared.runs == "process":
            context.send_signal(Signal.KILL, now)
        else:
            self._count_leaked(context)
        self._on_ends()

    def _count_leaked(self, context: RunContext) -> None:
        """Count an execution that cannot be stopped, until its code returns."""
        self._threads.abandon(context)
        self._loop.abandon(context)
