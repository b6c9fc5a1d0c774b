"""The async executor: an event loop on its own thread, one task per run, at most `concurrency`.

The first async run starts the loop. A signal cancels the task; how the processor handles the
cancellation determines its outcome. Nothing here may block the loop: suspects are marked before
they are put here, and ends are only queued.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence

from penstock.core.current_run import CURRENT_RUN
from penstock.runs.rows import HeldRun
from penstock.worker.claim_size import ClaimSizer
from penstock.worker.context import RunContext, Signal
from penstock.worker.outcome import outcome_of_error, outcome_of_value
from penstock.worker.worker_core import WorkerCore


class AsyncExecutor:
    """Executor of async processors."""

    def __init__(self, steps: WorkerCore, pace: ClaimSizer, *, on_ends: Callable[[], None]) -> None:
        self._steps = steps
        self._pace = pace
        self._on_ends = on_ends
        self._pending: deque[tuple[float, HeldRun]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._task_of: dict[int, asyncio.Task[None]] = {}
        self._zombies: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """Number of runs that have not started."""
        return len(self._pending)

    @property
    def zombies(self) -> int:
        """Number of tasks whose run was ended while its processor kept running."""
        return len(self._zombies)

    def abandon(self, context: RunContext) -> None:
        """Count the task of an ended run as a zombie and allow another one to replace it."""
        task, loop = self._task_of.get(context.held.token), self._loop
        if task is None or loop is None:
            return
        self._zombies.add(task)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._replace, task)

    def put(self, runs: Sequence[HeldRun], now: float) -> None:
        """Queue runs for execution."""
        self._pending.extend((now, run) for run in runs)
        self._started().call_soon_threadsafe(self._fill)

    def expire(self, before: float) -> list[HeldRun]:
        """Remove runs that were put before the given monotonic time and have not started."""
        out: list[HeldRun] = []
        with contextlib.suppress(IndexError):
            while self._pending[0][0] < before:
                out.append(self._pending.popleft()[1])
        return out

    def clear(self) -> list[HeldRun]:
        """Remove and return all runs that have not started."""
        return self.expire(float("inf"))

    def close(self, seconds: float) -> bool:
        """Cancel running tasks and end the loop; return True when its thread ended in time."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return True
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(loop.stop)
        thread.join(seconds)
        return not thread.is_alive()

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._run_loop, args=(self._loop,), name="penstock-loop", daemon=True
            )
            self._thread.start()
        return self._loop

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            tasks = asyncio.all_tasks(loop)
            for task in tasks:
                task.cancel()
            if tasks:
                loop.run_until_complete(asyncio.wait(tasks, timeout=1.0))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    def _fill(self) -> None:
        """Start tasks for waiting runs; call on the loop's thread only."""
        steps = self._steps
        while self._pending and len(self._tasks) < steps.options.concurrency:
            now = steps.clock.monotonic()
            if now >= steps.session.safe_until:
                asyncio.get_running_loop().call_later(0.05, self._fill)
                return
            try:
                _, held = self._pending.popleft()
            except IndexError:
                return
            context = steps.begin(held, now)
            if context is None:
                self._on_ends()
                continue
            task = asyncio.get_running_loop().create_task(self._run(context))
            self._tasks.add(task)
            self._task_of[context.held.token] = task
            context.interrupt = self._canceller(task)
            if context.signal is not None:
                task.cancel()
            task.add_done_callback(self._done)

    def _canceller(self, task: asyncio.Task[None]) -> Callable[[Signal], None]:
        loop = asyncio.get_running_loop()

        def cancel(_: Signal) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so the task has ended
                loop.call_soon_threadsafe(task.cancel)

        return cancel

    async def _run(self, context: RunContext) -> None:
        body = context.declared.body
        assert body is not None, context.declared.path
        CURRENT_RUN.set(context)  # context variables are local to this task
        try:
            outcome = outcome_of_value(context, await body(context))
        except BaseException as error:
            outcome = outcome_of_error(error)
        context.interrupt = None
        self._task_of.pop(context.held.token, None)
        self._steps.end(context, outcome)
        self._pace.observe(1, self._steps.clock.monotonic() - context.started_at_s)

    def _replace(self, task: asyncio.Task[None]) -> None:
        """Start another task to replace a zombie; call on the loop's thread only."""
        if task.done():
            self._zombies.discard(task)
        self._tasks.discard(task)
        self._fill()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._zombies.discard(task)
        self._on_ends()
        self._fill()
