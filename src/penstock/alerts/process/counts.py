"""Counts of one process by minute, and percentiles of times that are counted in buckets."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from typing import Final

HTTP: Final = "http"
REJECTED: Final = "rejected"
"""Rejected requests by status and route."""
GATE_CHECK: Final = "gate_check"
BOUNDS_MS: Final = (
    100, 250, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000,
)  # fmt: skip
LOGIN: Final = "/login"
ORDINARY: Final = frozenset({404, 409, 410, 412, 423, 429})
"""Statuses below 500 that occur in ordinary use: not found, conflict, too many requests."""


class ProcessCounts:
    """Counts by metric and bucket since they were last taken."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add_request(self, method: str, route: str, status: int) -> None:
        """Count a request by the class of its status; a rejected one also by its route."""
        bucket = request_bucket(route, status)
        with self._lock:
            self._counts[HTTP, bucket] += 1
            if bucket == "4xx":
                where = f"{method} {route}" if route else "an unknown path"
                self._counts[REJECTED, f"{status} for {where}"] += 1

    def add_gate_check(self, seconds: float) -> None:
        """Count a gate check by its duration."""
        position = bisect_left(BOUNDS_MS, seconds * 1_000)
        bound = BOUNDS_MS[min(position, len(BOUNDS_MS) - 1)]
        with self._lock:
            self._counts[GATE_CHECK, str(bound)] += 1

    def take(self) -> dict[tuple[str, str], int]:
        """Return the counts and reset them."""
        with self._lock:
            taken, self._counts = self._counts, Counter()
        return dict(taken)

    def put_back(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Add counts that could not be stored."""
        with self._lock:
            self._counts.update(counts)


def request_bucket(route: str, status: int) -> str:
    """Return the class of a request: 5xx, 4xx if it was rejected, or ok.

    A wrong key in the form of the login is a person's mistake, as ordinary as a 404.
    """
    if status >= 500:
        return "5xx"
    if status == 401 and route == LOGIN:
        return "ok"
    return "4xx" if status >= 400 and status not in ORDINARY else "ok"


def percentile_ms(buckets: Mapping[int, int], share: float) -> int | None:
    """Return the bound below which a share of the counted times lies; None without times."""
    total = sum(buckets.values())
    seen = 0
    for bound in sorted(buckets):
        seen += buckets[bound]
        if seen >= share * total:
            return bound
    return None
