"""A bound on how long a look may take: rings when the seconds have passed and goes on ringing.

It rings again and again because an interrupt that arrives between two statements is lost in the
databases that have one. After the block is left nothing rings, so that a connection that was closed
or handed on is never touched. Real time is meant, also where services run in virtual time.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from penstock.probes.protocol import ProbeFailed

AGAIN_SECONDS: Final = 0.05


class Alarm:
    """`with Alarm(seconds) as alarm:` then `alarm.on_ring(connection.interrupt)`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._left = threading.Event()
        self._rang = threading.Event()
        self._lock = threading.Lock()
        self._ring: Callable[[], object] | None = None
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
        self.off()
        self._thread.join()

    @property
    def rang(self) -> bool:
        """Whether the time is over."""
        return self._rang.is_set()

    def on_ring(self, ring: Callable[[], object] | None) -> None:
        """Say what ends the work; until then the alarm rings in vain."""
        with self._lock:
            self._ring = ring

    def off(self) -> None:
        """Ring no more; call it before what would be interrupted is closed or handed on."""
        with self._lock:
            self._left.set()

    def pause(self, seconds: float) -> None:
        """Let a moment pass, less when the time is over."""
        self._rang.wait(seconds)

    def check(self) -> None:
        """Raise ProbeFailed when the time is over."""
        if self.rang:
            raise timed_out(self._seconds)

    def _watch(self) -> None:
        wait = self._seconds
        while not self._left.wait(wait):
            self._rang.set()
            wait = AGAIN_SECONDS
            with self._lock, contextlib.suppress(Exception):
                # A ring that fails, for example on a broken connection, has nobody to tell.
                if self._ring is not None and not self._left.is_set():
                    self._ring()


def timed_out(seconds: float) -> ProbeFailed:
    """The error of a look that took too long."""
    return ProbeFailed(f"no answer within {seconds:g} s")
