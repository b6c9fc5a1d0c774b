"""A clock that moves only when a test advances it, for stores, services and simulations.

`sleep` and `wait` advance virtual time instead of waiting, so that a service under test can run
through a day in a moment. Safe to share between threads. Time never moves backwards.
"""

from __future__ import annotations

import threading

from penstock.core.clock import SECOND, Micros

__all__ = ["VirtualClock"]


class VirtualClock:
    """A `Clock` whose time the test controls; it starts at `start_us`."""

    def __init__(self, start_us: Micros) -> None:
        self._start = start_us
        self._now = start_us
        self._lock = threading.Lock()

    def now(self) -> Micros:
        """Return the virtual time of day."""
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        """Return the seconds since the clock was created."""
        return (self.now() - self._start) / SECOND

    def advance(self, us: Micros = 0, *, seconds: float = 0.0) -> Micros:
        """Advance by microseconds and seconds; return the new time."""
        step = us + round(seconds * SECOND)
        assert step >= 0, "time never moves backwards"
        with self._lock:
            self._now += step
            return self._now

    def advance_to(self, us: Micros) -> Micros:
        """Advance to a time unless it has passed already; return the current time."""
        with self._lock:
            self._now = max(self._now, us)
            return self._now

    def sleep(self, seconds: float) -> None:
        """Advance by the given seconds immediately."""
        self.advance(seconds=max(0.0, seconds))

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Return whether the event is set; if not, advance by the timeout and check again.

        Without a timeout there is nothing to advance by, so it waits for the event in real time.
        """
        if timeout is None:
            return event.wait()
        if event.is_set():
            return True
        self.sleep(timeout)
        return event.is_set()
