"""Detect stalls: overdue occurrences and ready runs that no worker claims."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from penstock.monitoring.records import Overview, Session

GRACE = timedelta(seconds=15)
NO_CAPABLE_WORKER = "no live worker seems to have their processors: start one with --pipelines"
"""Explanation for ready runs that are not claimed although a worker has capacity."""


def live_workers(sessions: Iterable[Session], overview: Overview) -> list[Session]:
    """Return the workers whose lease has not expired."""
    return [s for s in sessions if s.kind == "worker" and s.lease_until >= overview.as_of]


def overdue(overview: Overview) -> timedelta:
    """Return how long the next occurrence is overdue; 0 up to `GRACE`."""
    if overview.next_occurrence_at is None:
        return timedelta(0)
    late = overview.as_of - overview.next_occurrence_at
    return late if late > GRACE else timedelta(0)


def unclaimed(overview: Overview, workers: Iterable[Session]) -> timedelta:
    """Return how long ready runs have waited while a worker has capacity.

    0 if no run is ready, no worker has capacity, or the wait is up to `GRACE`.
    """
    is_free = any(not s.is_draining and s.held < s.concurrency for s in workers)
    if not overview.ready_runs or overview.oldest_ready_at is None or not is_free:
        return timedelta(0)
    waited = overview.as_of - overview.oldest_ready_at
    return waited if waited > GRACE else timedelta(0)
