"""The supervisor: runs services in loops, each on its own thread, until it is stopped.

A loop runs a step, then waits for a hint, for the step's own next time, or for its interval. A
failed step is reported and retried after a growing, jittered pause; only `stop` ends a loop. Start
and stop are idempotent; stopping waits for the step in progress.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from penstock.audit.telemetry import Events, ServiceError, ServiceStarted, ServiceStopped
from penstock.core.clock import SECOND
from penstock.db.store import StoreView, Waiter

PAUSE_MAX_SECONDS = 5.0
DRAIN_SECONDS_MAX = 25.0
STEP_SECONDS = 5.0
"""Time that a step in progress has to end before a drain begins."""


class Service(Protocol):
    """Object with a name and a bounded step."""

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        ...

    def run_once(self) -> Any:
        """Run one step; the result may have `next_at` and `now` to request the next call."""
        ...


@runtime_checkable
class Draining(Protocol):
    """Service with work in progress on other threads."""

    def drain(self, seconds: float = DRAIN_SECONDS_MAX) -> bool:
        """Stop starting work and wait for what is in progress; return True when none is left."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSchedule:
    """When a service runs: at least every `interval_us`, and on a hint on its channels."""

    interval_us: int
    channels: tuple[str, ...] = ()


class Loop:
    """One service on one thread."""

    def __init__(
        self,
        service: Service,
        schedule: LoopSchedule,
        store: StoreView,
        *,
        events: Events,
        jitter: Callable[[], float],
        drain_seconds: float = DRAIN_SECONDS_MAX,
    ) -> None:
        """drain_seconds: how long `stop` lets the service finish its work on other threads."""
        self._service = service
        self._schedule = schedule
        self._store = store
        self._events = events
        self._jitter = jitter
        self._drain_seconds = min(drain_seconds, DRAIN_SECONDS_MAX)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._waiter: Waiter | None = None
        self.steps = 0

    @property
    def name(self) -> str:
        """Name of the service."""
        return self._service.name

    @property
    def interval_us(self) -> int:
        """Longest time between two steps."""
        return self._schedule.interval_us

    def start(self) -> None:
        """Start looping; a second call does nothing."""
        if self._thread is None:
            self._waiter = self._store.listen(self._schedule.channels or ("-",))
            name = f"penstock-{self._service.name}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def stop(self, seconds: float | None = None) -> bool:
        """End the loop; return True when it ended within `seconds` (default: drain and a step)."""
        self.request_stop()
        if self._thread is None or self._waiter is None:
            return True
        self._thread.join(self._drain_seconds + STEP_SECONDS if seconds is None else seconds)
        self._waiter.close()
        return not self._thread.is_alive()

    def request_stop(self) -> None:
        """Make the loop end after the step in progress; return immediately."""
        self._stopping.set()
        if self._waiter is not None:
            self._waiter.interrupt()

    def _run(self) -> None:
        assert self._waiter is not None
        self._events.emit(ServiceStarted(self._service.name))
        failures = 0
        while not self._stopping.is_set():
            try:
                result = self._service.run_once()
                failures = 0
                pause = self._pause(result)
            except Exception as error:
                failures += 1
                pause = min(0.1 * 2 ** min(failures, 10), PAUSE_MAX_SECONDS)
                pause *= 0.5 + 0.5 * self._jitter()
                text = f"{type(error).__name__}: {error}"
                self._events.emit(ServiceError(self._service.name, text, pause))
                self._stopping.wait(pause)
                continue
            self.steps += 1
            if pause > 0:
                self._waiter.wait(pause)
        self._drain()
        self._events.emit(ServiceStopped(self._service.name))

    def _drain(self) -> None:
        """Let a service finish the work it has in progress on other threads."""
        if not isinstance(self._service, Draining):
            return
        try:
            self._service.drain(self._drain_seconds)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            self._events.emit(ServiceError(self._service.name, text, 0.0, error))

    def _pause(self, result: Any) -> float:
        """Return the seconds until the next step: the interval, or less if work is due earlier."""
        seconds = self._schedule.interval_us / SECOND
        next_at = getattr(result, "next_at", None)
        if next_at is not None:
            seconds = min(seconds, max(0.001, (next_at - result.now) / SECOND))
        return seconds


class Supervisor:
    """Set of loops that are started and stopped together."""

    def __init__(self, loops: Sequence[Loop]) -> None:
        self._loops = list(loops)

    def start(self) -> None:
        """Start every loop."""
        for loop in self._loops:
            loop.start()

    def stop(self) -> None:
        """Stop every loop: signal all of them first, then wait for each."""
        for loop in self._loops:
            loop.request_stop()
        for loop in reversed(self._loops):
            with contextlib.suppress(Exception):
                loop.stop()
