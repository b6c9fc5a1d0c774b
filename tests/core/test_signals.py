"""Setting an event from a signal handler, and waiting for it."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from penstock.core.clock import set_from_handler, wait_for_handler


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


def test_a_signal_that_another_thread_receives() -> None:
    """The handler runs although the signal did not interrupt the main thread."""
    event, is_waiting = threading.Event(), threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: set_from_handler(event))

    def receive() -> None:
        assert is_waiting.wait(60)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    other = threading.Thread(target=receive)
    other.start()
    try:
        is_waiting.set()
        wait_for_handler(event)
        assert event.is_set()
    finally:
        other.join(60)
        signal.signal(signal.SIGUSR1, before)
