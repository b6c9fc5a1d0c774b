"""The thread executor: up to `concurrency` threads, started on demand, each taking chunks of runs.

Each thread has its current run and the rest of its chunk. Other threads can reach the rest:
`steal` returns it to the buffer if the current run is slow. `RunWatch` ends a run as soon as it
exceeds its time limit. The run's thread is then a zombie: it no longer counts toward the
concurrency, is replaced, and exits when the processor returns. Only the code that removes a run
from `steps.running` may end it, so each end is reported once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.audit.telemetry import ServiceError
from penstock.core.current_run import CURRENT_RUN
from penstock.runs.rows import HeldRun, RunEnd
from penstock.worker.buffer import RunBuffer
from penstock.worker.claim_size import ClaimSizer
from penstock.worker.context import RunContext
from penstock.worker.outcome import AttemptOutcome, outcome_of_error
from penstock.worker.worker_core import WorkerCore

PUSH_SECONDS: Final = 0.005
STUCK_SECONDS: Final = 0.050


class _ThreadState:
    """One thread: the run it executes, and the rest of the chunk it took."""

    __slots__ = ("context", "local")

    def __init__(self) -> None:
        self.context: RunContext | None = None
        self.local: deque[HeldRun] = deque()


class ThreadExecutor:
    """Executor of sync processors. A processor that runs in a child process also uses one of its
    threads, which waits for the child.
    """

    def __init__(
        self,
        steps: WorkerCore,
        pace: ClaimSizer,
        *,
        call_process: Callable[[RunContext], AttemptOutcome],
        on_ends: Callable[[], None],
    ) -> None:
        self._steps = steps
        self._pace = pace
        self._call_process = call_process
        self._on_ends = on_ends
        self._active: dict[int, _ThreadState] = {}
        self._threads: set[threading.Thread] = set()
        self._zombies: set[int] = set()
        self._started_count = 0
        self._is_stopping = False
        self.buffer = RunBuffer(self._grow)

    @property
    def zombies(self) -> int:
        """Number of threads whose run was ended while its processor kept running."""
        return len(self._zombies)

    def steal(self, now: float) -> None:
        """Return runs that wait behind a long run to the buffer."""
        for state in list(self._active.values()):
            context = state.context
            if context is None or not state.local or now - context.started_at_s < STUCK_SECONDS:
                continue
            rest = _drain(state.local)
            if rest:
                self.buffer.put(rest, now, first=True)

    def abandon(self, context: RunContext) -> None:
        """Count the thread of an ended run as a zombie and allow another thread to replace it."""
        for number, state in list(self._active.items()):
            if state.context is context:
                rest = _drain(state.local)
                self._zombies.add(number)
                self._active.pop(number, None)
                if rest:
                    self.buffer.put(rest, self._steps.clock.monotonic(), first=True)

    def clear(self) -> list[HeldRun]:
        """Remove and return all runs that have not started."""
        rest = self.buffer.clear()
        for state in list(self._active.values()):
            rest.extend(_drain(state.local))
        return rest

    def stop(self) -> None:
        """Start no more runs; runs a thread had taken go back to the buffer."""
        self._is_stopping = True
        self.buffer.close()

    def close(self, seconds: float) -> bool:
        """Stop, and wait up to `seconds` for the threads; return True when all have exited."""
        self.stop()
        until = self._steps.clock.monotonic() + seconds
        for thread in list(self._threads):
            thread.join(max(0.0, until - self._steps.clock.monotonic()))
        return not any(thread.is_alive() for thread in list(self._threads))

    def _grow(self) -> None:
        """Start a thread; called under the buffer's lock when runs wait and no thread is idle."""
        if len(self._active) >= self._steps.options.concurrency or self._is_stopping:
            return
        self._started_count += 1
        number, state = self._started_count, _ThreadState()
        self._active[number] = state
        thread = threading.Thread(
            target=self._work, args=(number, state), name=f"penstock-run-{number}", daemon=True
        )
        self._threads.add(thread)
        thread.start()

    def _work(self, number: int, state: _ThreadState) -> None:
        try:
            while (local := self.buffer.take(self._pace.chunk_size)) is not None:
                state.local = local
                self._execute(state, local)
                if number not in self._active:
                    break
        finally:
            self._active.pop(number, None)
            self._zombies.discard(number)
            self._on_ends()
            self._threads.discard(threading.current_thread())

    def _execute(self, state: _ThreadState, local: deque[HeldRun]) -> None:
        """Execute a chunk; results are queued at its end, or every few milliseconds."""
        steps, running, session = self._steps, self._steps.running, self._steps.session
        monotonic = steps.clock.monotonic
        began = pushed = now = monotonic()
        out: list[RunEnd] = []
        count = 0
        while True:
            try:
                held = local.popleft()
            except IndexError:
                break
            if now >= session.safe_until or self._is_stopping:
                local.appendleft(held)
                self._pause(now, local)
                break
            try:
                context = steps.begin(held, now)
            except Exception as error:
                local.appendleft(held)
                steps.events.emit(ServiceError("worker.executor", str(error), 0.1))
                self._pause(now, local)
                break
            if context is None:
                continue
            state.context = context
            finish = self._call(context)
            now = monotonic()
            state.context = None
            if running.pop(held.token, None) is None:
                break  # the watch ended the run, and this thread has been replaced
            out.append(finish)
            count += 1
            if now - pushed > PUSH_SECONDS:
                pushed = now
                steps.ends.add(out)
                out = []
                self._on_ends()
        steps.ends.add(out)
        self._pace.observe(count, now - began)
        self._on_ends()

    def _call(self, context: RunContext) -> RunEnd:
        steps, declared = self._steps, context.declared
        if declared.runs == "process":
            return steps.finish_of(context, self._call_process(context))
        body = declared.body
        assert body is not None, declared.path
        CURRENT_RUN.set(context)
        try:
            value = body(context)
        except BaseException as error:
            return steps.finish_of(context, outcome_of_error(error))
        finally:
            CURRENT_RUN.set(None)
        return steps.conclude_value(context, value, steps.clock.monotonic())

    def _pause(self, now: float, local: deque[HeldRun]) -> None:
        """Return the rest to the buffer and wait briefly: the lease is uncertain or the store
        unavailable.
        """
        rest = _drain(local)
        if self._is_stopping:
            self.buffer.put(rest, now, first=True)
            return
        self._steps.clock.sleep(0.05)
        self.buffer.put(rest, now, first=True)


def _drain(local: deque[HeldRun]) -> list[HeldRun]:
    """Empty a deque that its owner may be popping from at the same time."""
    out: list[HeldRun] = []
    while True:
        try:
            out.append(local.pop())
        except IndexError:
            out.reverse()
            return out
