"""Running a worker in the main thread until SIGTERM or SIGINT."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Final

from penstock.core.clock import set_from_handler, wait_for_handler
from penstock.worker.worker import Worker

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def run_until_signal(worker: Worker) -> None:
    """Run until SIGTERM or SIGINT, then drain; a second signal stops without waiting for runs."""
    asked = threading.Event()

    received: list[int] = []

    def handle(number: int, _: FrameType | None) -> None:
        if received:
            worker.stop(now=True)
        received.append(number)
        set_from_handler(asked)

    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        worker.start()
        wait_for_handler(asked)
        worker.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
