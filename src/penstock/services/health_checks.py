"""Health checks of consumers in the background: bounded, and one at a time for each customer.

A check may take seconds. It runs on its own thread, so that slow consumers of one customer delay
neither the calling service nor the checks of another customer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TypeAlias

HealthCheck: TypeAlias = Callable[[str, str], bool]
"""(URL, customer) → whether the consumer is healthy."""


class HealthChecks:
    """Checks in progress and their results; used from one thread."""

    def __init__(self, check: HealthCheck, threads: int) -> None:
        """With 0 `threads` a check runs in the calling thread."""
        self._check = check
        self._threads = threads
        self._lock = threading.Lock()
        self._running: set[str] = set()
        self._results: dict[Hashable, bool] = {}

    def result(self, subject: Hashable, owner: str, url: str) -> bool | None:
        """Return the result of a finished check, once; otherwise start one and return None.

        No check is started while another one of the same owner runs or all threads are busy.
        """
        if not self._threads:
            return self._is_healthy(url, owner)
        with self._lock:
            if subject in self._results:
                return self._results.pop(subject)
            if owner in self._running or len(self._running) >= self._threads:
                return None
            self._running.add(owner)
        threading.Thread(
            target=self._run, args=(subject, owner, url), name="penstock-health", daemon=True
        ).start()
        return None

    def _run(self, subject: Hashable, owner: str, url: str) -> None:
        found = self._is_healthy(url, owner)
        with self._lock:
            self._results[subject] = found
            self._running.discard(owner)

    def _is_healthy(self, url: str, owner: str) -> bool:
        try:
            return self._check(url, owner)
        except Exception:  # if the check raises any error, the consumer does not count as healthy
            return False
