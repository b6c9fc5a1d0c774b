"""The built-in worker: threads around `WorkerCore`.

    claimer    claims runs when there is capacity; woken by hints, by free capacity, or by a timer
    executors  threads and an event loop that execute (see `worker/executors`)
    completer  stores ends in batches: ends that arrive during one flush form the next batch
    heartbeat  renews the session over its own connection, writes progress, receives cancels
    watch      timeouts, marks, releases (see `RunWatch`)

Every loop survives an exception from a step: it reports, backs off with jitter and continues; only
`stop` ends it. `stop` drains: it claims no more, releases runs that have not started, and waits for
running ones.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from penstock.audit.telemetry import Events, ServiceError, ServiceStarted, ServiceStopped
from penstock.core.clock import SECOND, Clock
from penstock.core.errors import StoreError
from penstock.core.naming import runs_channel
from penstock.db.hooks import connect_pending
from penstock.db.store import StoreView
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.rows import HeldRun
from penstock.worker.claim_size import ClaimSizer
from penstock.worker.claimer import Claimer
from penstock.worker.context import Signal
from penstock.worker.execution.processes import ChildPool
from penstock.worker.executors.async_loop import AsyncExecutor
from penstock.worker.executors.collector import BatchExecutor
from penstock.worker.executors.threads import ThreadExecutor
from penstock.worker.options import WorkerOptions
from penstock.worker.session import Renewal
from penstock.worker.timeouts import FAST_SECONDS, SLOW_SECONDS, RunWatch
from penstock.worker.worker_core import WorkerCore

__all__ = ["Worker", "WorkerCore", "WorkerOptions"]

T = TypeVar("T")
D = TypeVar("D")

PAUSE_MAX_SECONDS: Final = 2.0


class Worker:
    """One worker and its threads. `start` and `stop` are idempotent; it cannot be restarted."""

    def __init__(
        self,
        store: StoreView,
        pipelines: Sequence[Pipeline],
        options: WorkerOptions,
        *,
        clock: Clock,
        jitter: Callable[[], float],
        events: Events | None = None,
        on_saturated: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_saturated` is called when the worker suspends claiming, because too many executions
        cannot be stopped; a process that can replace itself then does so.
        """
        self.steps = WorkerCore(
            store, pipelines, options, clock=clock, jitter=jitter, events=events
        )
        self._store = store
        self._options = options
        self._clock = clock
        self._jitter = jitter
        self._events = self.steps.events
        self._children = ChildPool()
        self._pace = ClaimSizer(options.concurrency, options.batch_max)
        self._threads = ThreadExecutor(
            self.steps, self._pace, call_process=self._children.call, on_ends=self._on_ends
        )
        self._loop = AsyncExecutor(self.steps, self._pace, on_ends=self._on_ends)
        self._collect = BatchExecutor(self.steps, on_ends=self._on_ends)
        executors = (self._threads, self._loop, self._collect)
        self._watch = RunWatch(self.steps, *executors, on_ends=self._on_ends)
        self._claimer = Claimer(
            self.steps,
            self._pace,
            *executors,
            waiter=store.listen([runs_channel(options.pool)]),
            give_back=self._watch.release_later,
            on_saturated=on_saturated,
        )
        self._cancels = store.listen(["cancel"])
        self._has_ends = threading.Event()
        self._idle = threading.Event()
        self._started = threading.Event()
        self._opened = threading.Event()
        self._draining = threading.Event()
        self._stop_now = threading.Event()
        self._ended = threading.Event()
        self._stopped = threading.Event()
        self._stopping = threading.Lock()
        self._services: list[threading.Thread] = []
        self._failures: dict[str, int] = {}

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "worker"

    @property
    def started(self) -> threading.Event:
        """Set once the session is open and runs are being claimed."""
        return self._started

    @property
    def stopped(self) -> threading.Event:
        """Set once everything has ended."""
        return self._stopped

    @property
    def leaked(self) -> int:
        """Number of executions that were ended while their code keeps running."""
        return self._watch.leaked

    def start(self) -> None:
        """Start the threads and return; the session opens as soon as the store responds.

        Raises DeclarationError when a pipeline is inconsistent or cannot be executed here.
        """
        if self._services or self._draining.is_set():
            return
        self.steps.check()
        connect_pending()
        loops = {
            "beat": self._heartbeat_loop,
            "claimer": self._claim_loop,
            "completer": self._flush_loop,
            "watch": self._watch_loop,
        }
        for name, target in loops.items():
            thread = threading.Thread(target=target, name=f"penstock-{name}", daemon=True)
            self._services.append(thread)
        for thread in self._services:
            thread.start()
        self._events.emit(ServiceStarted(self.name))

    def stop(self, *, now: bool = False) -> None:
        """Drain and end; with `now`, do not wait for runs.

        Another thread may call `stop(now=True)` to cut a drain short.
        """
        if now:
            self._stop_now.set()
            self._idle.set()
        self._draining.set()
        self.steps.session.is_draining = True
        self._claimer.stop()
        self._cancels.interrupt()
        self._claimer.has_held.set()
        # A signal handler may interrupt the thread that drains, which must not wait for itself.
        if not self._stopping.acquire(blocking=not now):
            return
        try:
            if not self._stopped.is_set():
                self._drain()
                self._stopped.set()
                self._events.emit(ServiceStopped(self.name))
        finally:
            self._stopping.release()

    def _drain(self) -> None:
        self._threads.stop()
        for thread in self._services:
            if thread.name == "penstock-claimer":
                thread.join(2.0)  # its last claim may be in progress
        self._watch.release_later(self._unstarted())
        self._claimer.has_held.set()
        # A supervisor may kill the process soon after `drain_us`: release runs before.
        grace_us = min(self._options.grace_us, self._options.drain_us)
        self._wait_idle((self._options.drain_us - grace_us) / SECOND)
        if self.steps.running:
            self.steps.signal_all(Signal.DRAIN)
            self._wait_idle(grace_us / SECOND)
        self._ended.set()
        for event in (self._opened, self._has_ends, self._claimer.has_held):
            event.set()
        self._claimer.stop()
        self._cancels.interrupt()
        self._children.close()
        if any(c.declared.runs == "process" for c in list(self.steps.running.values())):
            self._wait_idle(1.0)  # their threads notice that the children ended
        self._threads.close(0.0 if self.steps.running else 1.0)
        self._collect.close(0.0 if self.steps.running else 1.0)
        self._loop.close(2.0)
        for thread in self._services:
            thread.join(10.0)
        for step in (self._flush_all, self.steps.release_all, self.steps.close):
            with contextlib.suppress(StoreError):  # the sweeper handles the remaining runs
                step()
        self._claimer.close()
        self._cancels.close()

    def _unstarted(self) -> list[HeldRun]:
        return self._threads.clear() + self._loop.clear() + self._collect.clear()

    def _wait_idle(self, seconds: float) -> None:
        """Wait until nothing runs, at most `seconds`, or until `stop(now=True)`."""
        until = self._clock.monotonic() + seconds
        while self.steps.running and not self._stop_now.is_set():
            left = until - self._clock.monotonic()
            if left <= 0:
                return
            self._idle.clear()
            if self.steps.running and not self._stop_now.is_set():
                self._clock.wait(self._idle, left)

    def _flush_all(self) -> None:
        while len(self.steps.ends):
            self.steps.flush_once()

    def _on_ends(self) -> None:
        """Handle ends queued by an executor, or a thread that became free."""
        self._has_ends.set()
        self._claimer.capacity_freed()
        if self._draining.is_set() and not self.steps.running:
            self._idle.set()

    def _claim_loop(self) -> None:
        while not self._draining.is_set() and not self._started.is_set():
            self._guarded("claimer", self._open_once, None)
        while not self._draining.is_set():
            self._guarded("claimer", self._claimer.claim_once, None)

    def _open_once(self) -> None:
        self.steps.open()
        self._started.set()
        self._opened.set()

    def _flush_loop(self) -> None:
        while not self._ended.is_set():
            self._has_ends.wait()
            self._has_ends.clear()
            while len(self.steps.ends) and not self._ended.is_set():
                self._linger()
                self._guarded("completer", self._claimer.flush_once, None)
                self._claimer.capacity_freed()

    def _linger(self) -> None:
        """Wait for the ends of runs that are about to end: one transaction stores them all."""
        until = self._clock.monotonic() + self._claimer.linger_seconds()
        while (left := until - self._clock.monotonic()) > 0 and self._claimer.linger_seconds():
            self._has_ends.clear()
            self._clock.wait(self._has_ends, left)

    def _heartbeat_loop(self) -> None:
        self._opened.wait()
        interval, progress = self._options.heartbeat_us / SECOND, self._options.progress_us / SECOND
        next_heartbeat = self._clock.monotonic() + interval
        while not self._ended.is_set():
            left = min(next_heartbeat - self._clock.monotonic(), progress)
            is_woken = self._cancels.wait(max(0.0, left))
            is_dirty = any(context.is_dirty for context in list(self.steps.running.values()))
            if is_woken or is_dirty or self._clock.monotonic() >= next_heartbeat:
                self.steps.session.leaked = self.leaked
                renewal = self._guarded("beat", self.steps.heartbeat_once, Renewal.UNKNOWN)
                pause = interval if renewal is Renewal.RENEWED else min(interval, PAUSE_MAX_SECONDS)
                if renewal is Renewal.LOST:
                    self._watch.release_later(self._unstarted())
                    pause = 0.0
                next_heartbeat = self._clock.monotonic() + pause
                self._claimer.has_held.set()

    def _watch_loop(self) -> None:
        seconds: float | None = None
        while not self._ended.is_set():
            if self._claimer.has_held.wait(seconds):
                self._claimer.has_held.clear()
                self._clock.wait(self._ended, FAST_SECONDS)
            seconds = self._guarded("watch", self._watch.tick, SLOW_SECONDS)

    def _guarded(self, service: str, step: Callable[[], T], otherwise: D) -> T | D:
        """Run one step of a loop; a failure is reported and followed by a growing pause."""
        try:
            value = step()
        except Exception as error:
            failures = self._failures[service] = self._failures.get(service, 0) + 1
            pause = min(0.05 * 2 ** min(failures, 10), PAUSE_MAX_SECONDS)
            pause *= 0.5 + 0.5 * self._jitter()
            text = f"{type(error).__name__}: {error}"
            self._events.emit(ServiceError(f"worker.{service}", text, pause))
            self._clock.wait(self._ended, pause)
            return otherwise
        self._failures[service] = 0
        return value
