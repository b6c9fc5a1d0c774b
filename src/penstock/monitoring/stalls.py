"""Detect stalls: overdue occurrences and ready runs that no worker claims."""

from __future__ import annotations

from penstock.core.clock import SECOND

GRACE_US = 15 * SECOND
NO_CAPABLE_WORKER = "no live worker seems to have their processors: start one with --pipelines"
"""Explanation for ready runs that are not claimed although a worker has capacity."""


def overdue_us(next_at: int | None, now: int) -> int:
    """Return how long the next occurrence is overdue, in micros; 0 up to `GRACE_US`."""
    late = 0 if next_at is None else now - next_at
    return late if late > GRACE_US else 0


def unclaimed_us(
    ready: int, oldest_ready_at: int | None, now: int, *, has_free_worker: bool
) -> int:
    """Return how long ready runs have waited while a worker has capacity, in micros.

    0 if no run is ready, no worker has capacity, or the wait is up to `GRACE_US`.
    """
    if not ready or oldest_ready_at is None or not has_free_worker:
        return 0
    waited = now - oldest_ready_at
    return waited if waited > GRACE_US else 0
