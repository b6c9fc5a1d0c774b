"""Signs that work does not move, read off the overview and the live processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.core.clock import SECOND

if TYPE_CHECKING:
    from penstock.assembly import Overview, Session

PATIENCE_US = 15 * SECOND
NOBODY_HAS_THEM = "no live worker seems to have their processors: start one with --pipelines"


def overdue_us(next_at: int | None, now: int) -> int:
    """For how long the next slot has been overdue; 0 while that is nothing to mention."""
    late = 0 if next_at is None else now - next_at
    return late if late > PATIENCE_US else 0


def passed_over_us(overview: Overview, sessions: Sequence[Session], now: int) -> int:
    """For how long runs have been ready although live workers have free slots; 0 when not so."""
    if not overview.ready or overview.oldest_ready_at is None:
        return 0
    is_free = any(
        s.kind == "worker" and s.until_at >= now and not s.is_draining and s.held < s.slots
        for s in sessions
    )
    waited = now - overview.oldest_ready_at
    return waited if is_free and waited > PATIENCE_US else 0
