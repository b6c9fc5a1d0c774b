"""Setting an event from a signal handler."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from penstock.core.clock import set_from_handler


def test_a_signal_while_the_event_is_locked() -> None:
    """A handler that interrupts `wait` while it holds the event's lock does not deadlock."""
    event = threading.Event()

    def handle(_: int, __: FrameType | None) -> None:
        set_from_handler(event)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with event._cond:  # type: ignore[attr-defined]  # what `wait` does for a moment
            signal.raise_signal(signal.SIGUSR1)
            assert not event.is_set()
        assert event.wait(60)
    finally:
        signal.signal(signal.SIGUSR1, before)
