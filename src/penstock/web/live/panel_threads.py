"""Panels of a page that are read at the same time.

Most of the time of a page passes in the database, so a second thread shortens it. The threads are
few and shared by all pages of the process. A page never waits for a free one: its own thread reads
every panel that no other thread has started.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Final, TypeVar

T = TypeVar("T")
THREADS: Final = 2


class PanelThreads:
    """Threads that help pages to read their panels; they start with the first page."""

    def __init__(self, threads: int = THREADS) -> None:
        self._pool = ThreadPoolExecutor(threads, "penstock-panel")

    def read(self, reads: Sequence[Callable[[], T]]) -> list[T]:
        """Return the results of independent reads, in their order; raise the error of the first
        that failed, after all have ended.

        Each read has the caller's context: time limit, request.
        """
        # Helping threads take reads from the front, the caller takes them from the back.
        started = [self._pool.submit(copy_context().run, one) for one in reads[:-1]]
        made: dict[int, T] = {}
        errors: dict[int, Exception] = {}
        for place in reversed(range(len(reads))):
            try:
                if place == len(started) or started[place].cancel():
                    made[place] = reads[place]()
                else:
                    made[place] = started[place].result()
            except Exception as error:
                errors[place] = error
        if errors:
            raise errors[min(errors)]
        return [made[place] for place in range(len(reads))]
