"""Signs that work does not move, read off the overview and the live processes."""

from __future__ import annotations

from penstock.core.clock import SECOND

PATIENCE_US = 15 * SECOND
NOBODY_HAS_THEM = "no live worker seems to have their processors: start one with --pipelines"


def overdue_us(next_at: int | None, now: int) -> int:
    """For how long the next slot has been overdue; 0 while that is nothing to mention."""
    late = 0 if next_at is None else now - next_at
    return late if late > PATIENCE_US else 0


def passed_over_us(
    ready: int, oldest_ready_at: int | None, now: int, *, has_free_worker: bool
) -> int:
    """For how long runs have been ready although live workers have free slots; 0 when not so."""
    if not ready or oldest_ready_at is None or not has_free_worker:
        return 0
    waited = now - oldest_ready_at
    return waited if waited > PATIENCE_US else 0
