"""End runs with everything that follows from it.

Worker, sweeper and API all end runs through this module. Subjects above it (completions of flows,
health of configs) are connected to `runs.hooks.on_finished`. Everything commits in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.db.store import Tx
from penstock.runs import attempt_result
from penstock.runs.hooks import on_finished
from penstock.runs.rows import FinishedRun, RunEnd
from penstock.runs.states import RunState
from penstock.runs.store.runs import (
    run_cancel_pending,
    run_cancel_request,
    run_finish_many,
    run_held_get,
)


def run_end_many(tx: Tx, finishes: Sequence[RunEnd]) -> list[FinishedRun]:
    """End runs whose token is current. Runs with a stale token are missing from the result."""
    finished = run_finish_many(tx, finishes)
    if finished:
        on_finished(tx, finished)
    return finished


def run_cancel(tx: Tx, run_id: int, who: str, reason: str) -> None:
    """Cancel a pending run, or request cancellation from the holder of a running one."""
    held = run_held_get(tx, run_id)
    if held is None:
        return
    if held.state != RunState.PENDING:
        run_cancel_request(tx, run_id, who, reason or None)
        return
    token = run_cancel_pending(tx, run_id)
    assert token is not None, "the row is locked"
    run_end_many(
        tx, [attempt_result.cancelled(held._replace(token=token), actor=who, why=reason or None)]
    )
