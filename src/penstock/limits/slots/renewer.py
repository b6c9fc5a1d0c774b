"""The background thread of a broker: runs while there is work; hints and timers wake it."""

from __future__ import annotations

import threading
from typing import Final, Protocol

from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.db.store import StoreView, Waiter

IDLE_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.2
FAR_OFF_S: Final = float("inf")


class BackgroundWork(Protocol):
    """The work of the thread."""

    def run_once(self, *, is_woken: bool) -> None:
        """Run the due work. is_woken: whether a hint woke the thread."""
        ...

    def next_at(self, now: float) -> float:
        """Return the monotonic time of the next work; infinite if nothing is held or waited for."""
        ...


class BrokerThread:
    """Starts a thread when something is due and ends it after a few idle seconds."""

    def __init__(self, store: StoreView, channel: str, clock: Clock, work: BackgroundWork) -> None:
        self._store = store
        self._channel = channel
        self._clock = clock
        self._work = work
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._hints: Waiter | None = None
        self._wakes_at = FAR_OFF_S
        self._is_closed = False

    def wake(self, seconds: float = 0.0) -> None:
        """Make the thread run within the given time; start it if necessary."""
        at = self._clock.monotonic() + seconds
        with self._lock:
            if self._is_closed:
                return
            if self._thread is None:
                self._hints = self._store.listen([self._channel])
                self._thread = threading.Thread(
                    target=self._run, args=(self._hints,), name="penstock-limits", daemon=True
                )
                self._wakes_at = at
                self._thread.start()
            elif at < self._wakes_at and self._hints is not None:
                self._wakes_at = at
                self._hints.interrupt()

    def close(self) -> None:
        """End the thread; idempotent."""
        with self._lock:
            self._is_closed = True
            thread, hints = self._thread, self._hints
        if hints is not None:
            hints.interrupt()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)

    def _run(self, hints: Waiter) -> None:
        idle_since = FAR_OFF_S
        is_woken = False
        try:
            while True:
                try:
                    self._work.run_once(is_woken=is_woken)
                except PenstockError:
                    # The store is unavailable or busy. The work stays pending and is retried.
                    self._clock.sleep(PAUSE_SECONDS)
                now = self._clock.monotonic()
                with self._lock:
                    # Under the lock, so that a caller that adds work afterwards wakes this thread.
                    next_at = self._work.next_at(now)
                    idle_since = min(idle_since, now) if next_at == FAR_OFF_S else FAR_OFF_S
                    if self._is_closed or now - idle_since >= IDLE_SECONDS:
                        self._thread = self._hints = None
                        return
                    self._wakes_at = min(next_at, now + IDLE_SECONDS)
                    seconds = max(0.0, self._wakes_at - now)
                is_woken = hints.wait(seconds)
        finally:
            hints.close()
