"""Concurrent work for customers, so that one customer's work does not delay another's.

Each customer has one thread at a time, for the items of one call; a bounded number of them run at
once, the others follow in the order in which they were started.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)


class CustomerThreads(Generic[T]):
    """Threads that serve customers; started from one thread."""

    def __init__(
        self,
        serve: Callable[[T], object],
        owner: Callable[[T], Hashable],
        *,
        threads: int,
        on_end: Callable[[], None],
    ) -> None:
        """`serve` handles one item; its error is logged. `on_end` is called when a thread ends."""
        self._serve = serve
        self._owner = owner
        self._on_end = on_end
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="penstock-customer")
        self._ended = threading.Condition()
        self._running: set[Hashable] = set()
        self._is_closing = False

    def start(self, items: Sequence[T]) -> int:
        """Start a thread for every owner that has none; return how many."""
        own: dict[Hashable, list[T]] = {}
        for item in items:
            own.setdefault(self._owner(item), []).append(item)
        with self._ended:
            if self._is_closing:
                return 0
            free = [owner for owner in own if owner not in self._running]
            self._running.update(free)
        for owner in free:
            self._threads.submit(self._run, owner, own[owner])
        return len(free)

    def drain(self, seconds: float) -> bool:
        """Stop starting work and wait for the items in progress; True when none is left."""
        with self._ended:
            self._is_closing = True
            is_done = self._ended.wait_for(lambda: not self._running, timeout=seconds)
        self._threads.shutdown(wait=False, cancel_futures=True)
        return is_done

    def _run(self, owner: Hashable, items: Sequence[T]) -> None:
        try:
            for item in items:
                if self._is_closing:
                    break
                self._serve(item)
        except Exception as error:  # leased messages are delivered again
            log.warning("serving a customer failed: %s: %s", type(error).__name__, error)
        finally:
            with self._ended:
                self._running.discard(owner)
                self._ended.notify_all()
            self._on_end()
