"""Writes log lines from a separate thread, so that a blocked log reader does not block work.

Standard output may be a pipe whose reader has stopped. Lines then wait, up to `LINES_MAX`; further
ones are dropped and counted, and one line reports the count as soon as lines are read again.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

LINES_MAX: Final = 10_000
CLOSE_SECONDS: Final = 2.0
"""Maximum wait at exit for lines that are not written yet."""


class LogWriter:
    """A bounded queue of lines, and the thread that writes them; a context manager."""

    def __init__(
        self, write: Callable[[str], None], dropped: Callable[[int], str], most: int = LINES_MAX
    ) -> None:
        """`dropped` returns the line that reports a number of dropped lines."""
        self._write = write
        self._dropped_line = dropped
        self._lines: queue.Queue[str | None] = queue.Queue(most)
        self._lock = threading.Lock()
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="penstock-log", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Write the remaining lines, unless the reader is blocked."""
        try:
            self._lines.put(None, timeout=CLOSE_SECONDS)
        except queue.Full:
            return
        self._thread.join(CLOSE_SECONDS)

    def put(self, line: str) -> None:
        """Queue a line; never blocks."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            with self._lock:
                self._dropped += 1

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            self._write(line)
            with self._lock:
                dropped, self._dropped = self._dropped, 0
            if dropped:
                self._write(self._dropped_line(dropped))
