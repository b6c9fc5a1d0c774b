"""Earlier durations of a run's processor."""

from __future__ import annotations

import json

from penstock.core.clock import Micros
from penstock.db.store import Tx
from penstock.runs.durations import remaining
from penstock.runs.rows import RunRow


def durations_before(tx: Tx, run_id: int) -> list[int]:
    """Return durations of the processor's newest completed executions for the run's customer."""
    rows = tx.rows("run_durations", {"run_id": run_id, "n": 100})
    return [duration for (text,) in rows for duration in json.loads(text) if duration > 0]


def eta_of(tx: Tx, row: RunRow) -> tuple[Micros | None, Micros | None]:
    """Return the P50 and P90 of a live run's estimated end; None if it has ended or too few
    durations are known.
    """
    if row.finished_at is not None:
        return None, None
    now, known = tx.now(), durations_before(tx, row.run_id)
    begins = max(now, row.scheduled_time) if row.started_at is None else row.started_at
    left = [remaining(known, max(0, now - begins), share) for share in (0.5, 0.9)]
    p50, p90 = (None if one is None else max(now, begins) + one for one in left)
    return p50, p90
