"""A timeout for probes: calls an interrupt function repeatedly after the time is up.

The call is repeated because databases lose an interrupt that arrives between two statements. After
the block exits there are no more calls, so a connection that was closed or returned to a pool is
never interrupted. The timeout uses real time, even where services run in virtual time.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from penstock.probes.protocol import ProbeFailed

REPEAT_SECONDS: Final = 0.05


class ProbeTimeout:
    """Timeout of one probe: `with ProbeTimeout(5) as alarm: alarm.on_expired(db.interrupt)`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._cancelled = threading.Event()
        self._expired = threading.Event()
        self._lock = threading.Lock()
        self._interrupt: Callable[[], object] | None = None
        self._thread = threading.Thread(target=self._watch, name="penstock-alarm", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cancel()
        self._thread.join()

    @property
    def is_expired(self) -> bool:
        """Whether the time is up."""
        return self._expired.is_set()

    def on_expired(self, interrupt: Callable[[], object] | None) -> None:
        """Set the function that interrupts work; without it, a timeout only sets `is_expired`."""
        with self._lock:
            self._interrupt = interrupt

    def cancel(self) -> None:
        """Stop interrupting; call this before the connection is closed or returned to a pool."""
        with self._lock:
            self._cancelled.set()

    def pause(self, seconds: float) -> None:
        """Sleep, or return early when the time is up."""
        self._expired.wait(seconds)

    def check(self) -> None:
        """Raise ProbeFailed when the time is up."""
        if self.is_expired:
            raise timeout_error(self._seconds)

    def _watch(self) -> None:
        wait = self._seconds
        while not self._cancelled.wait(wait):
            self._expired.set()
            wait = REPEAT_SECONDS
            with self._lock, contextlib.suppress(Exception):
                # An interrupt that fails, for example on a broken connection, is ignored.
                if self._interrupt is not None and not self._cancelled.is_set():
                    self._interrupt()


def timeout_error(seconds: float) -> ProbeFailed:
    """Return the error of a probe that took too long."""
    return ProbeFailed(f"no response within {seconds:g} s")
