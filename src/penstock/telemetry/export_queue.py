"""A bounded queue between the instrumented code and the exporting thread.

Putting an item never waits: if the queue is full, the item is dropped and counted. The thread
exports at most a batch in each interval, so that exporting takes a bounded share of a busy process;
items that cannot be exported are dropped and counted too.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from penstock.core.clock import Clock

T = TypeVar("T")

log = logging.getLogger(__name__)

CAPACITY: Final = 2_048
REPORT_SECONDS: Final = 60.0
"""Minimum time between two log lines about a failing receiver."""


class ExportQueue(Generic[T]):
    """Items that wait for their export. Thread-safe."""

    def __init__(
        self,
        signal: str,
        export: Callable[[list[T]], int],
        count: Callable[[str, str, int], None],
        *,
        clock: Clock,
        batch: int = 500,
        interval_s: float = 1.0,
    ) -> None:
        """Export with `export`, which returns how many items arrived.

        count: called with `exported` or `dropped`, the signal and a number.
        """
        self.signal = signal
        self._export = export
        self._count = count
        self._clock = clock
        self._batch = batch
        self._interval_s = interval_s
        self._items: deque[T] = deque()
        self._capacity = max(CAPACITY, 4 * batch)
        self._half = self._capacity // 2
        self._dropped = 0
        self._stopping = threading.Event()
        self._reported_at = float("-inf")
        self._thread = threading.Thread(
            target=self._run, name=f"penstock-export-{signal}", daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, item: T) -> None:
        """Queue an item."""
        if len(self._items) >= self._capacity:
            self._dropped += 1
            return
        self._items.append(item)

    def admit_ordinary(self, n: int) -> int:
        """Return how many of `n` low-priority items fit; the rest counts as dropped.

        They may fill half of the queue.
        """
        admitted = min(n, max(0, self._half - len(self._items)))
        self._dropped += n - admitted
        return admitted

    def close(self, seconds: float = 5.0) -> None:
        """Export queued items, for at most `seconds`, and end the thread."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def step(self) -> int:
        """Export a batch; return the number of items taken."""
        batch: list[T] = []
        while self._items and len(batch) < self._batch:
            batch.append(self._items.popleft())
        dropped, self._dropped = self._dropped, 0
        if batch:
            arrived = self._arrived(batch)
            dropped += len(batch) - arrived
            if arrived:
                self._count("exported", self.signal, arrived)
        if dropped:
            self._count("dropped", self.signal, dropped)
        return len(batch)

    def _arrived(self, batch: list[T]) -> int:
        try:
            return self._export(batch)
        except Exception as error:
            now = self._clock.monotonic()
            if now - self._reported_at >= REPORT_SECONDS:
                self._reported_at = now
                text = "exporting %s failed (%s: %s); they are dropped until exporting works again"
                log.warning(text, self.signal, type(error).__name__, error)
            return 0

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            self.step()
        while self.step():
            pass
