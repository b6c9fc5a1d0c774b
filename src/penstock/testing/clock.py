"""A clock that stands still until a test moves it, for stores, services and simulations.

`sleep` and `wait` let virtual time pass instead of real time, so that a service under test runs
through a day in a moment. Safe to share between threads; time never goes back.
"""

from __future__ import annotations

import threading

from penstock.core.clock import SECOND, Micros

__all__ = ["VirtualClock"]


class VirtualClock:
    """A `Clock` whose time is set by the test; starts at `start_us`."""

    def __init__(self, start_us: Micros) -> None:
        self._start = start_us
        self._now = start_us
        self._lock = threading.Lock()

    def now(self) -> Micros:
        """Return the virtual time of day."""
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        """Return the seconds that passed since the clock was made."""
        return (self.now() - self._start) / SECOND

    def advance(self, us: Micros = 0, *, seconds: float = 0.0) -> Micros:
        """Let micros and seconds pass; return the new time."""
        step = us + round(seconds * SECOND)
        assert step >= 0, "time never goes back"
        with self._lock:
            self._now += step
            return self._now

    def advance_to(self, us: Micros) -> Micros:
        """Move to a time unless it is past already; return the time it is now."""
        with self._lock:
            self._now = max(self._now, us)
            return self._now

    def sleep(self, seconds: float) -> None:
        """Let the given seconds pass at once."""
        self.advance(seconds=max(0.0, seconds))

    def wait(self, event: threading.Event, timeout: float | None) -> bool:
        """Tell whether the event is set; if not, let the timeout pass at once and look again.

        Without a timeout there is nothing to advance by: it waits for the event in real time.
        """
        if timeout is None:
            return event.wait()
        if event.is_set():
            return True
        self.sleep(timeout)
        return event.is_set()
