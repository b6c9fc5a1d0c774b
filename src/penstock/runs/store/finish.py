"""End runs with everything that follows from it.

Worker, sweeper and API all end runs through this module. Subjects above it (completions of flows,
health of configs) are connected to `runs.hooks.on_finished`. Everything commits in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.naming import ProcessorKey
from penstock.db.store import Tx
from penstock.runs.hooks import on_finished
from penstock.runs.rows import FinishedRun, RunEnd
from penstock.runs.states import RunState
from penstock.runs.store.runs import (
    run_cancel_pending_flow,
    run_cancel_request_flow,
    run_finish_many,
)


def run_end_many(tx: Tx, finishes: Sequence[RunEnd]) -> list[FinishedRun]:
    """End runs whose token is current. Runs with a stale token are missing from the result."""
    finished = run_finish_many(tx, finishes)
    if finished:
        on_finished(tx, finished)
    return finished


def run_cancel_flow(
    tx: Tx, flow_id: int, who: str, reason: str, *, stops_running: bool = True
) -> int:
    """Cancel the pending runs of a flow, and request that the others stop. Return how many.

    stops_running: also ask runs in progress to stop. The caller holds the flow's lock.
    """
    # Pending runs first: a run that is claimed meanwhile is held, and is asked to stop.
    cancelled = run_cancel_waiting(tx, flow_id, who, reason)
    asked = run_cancel_request_flow(tx, flow_id, who, reason or None) if stops_running else 0
    return cancelled + asked


def run_cancel_waiting(
    tx: Tx, flow_id: int, who: str, reason: str, processor_key: ProcessorKey | None = None
) -> int:
    """Cancel the pending runs of a flow, of one processor or all. Return how many."""
    pending = run_cancel_pending_flow(tx, flow_id, processor_key)
    if pending:
        run_end_many(
            tx,
            [
                RunEnd(run_id, token, RunState.CANCELLED.value, None, actor=who, why=reason or None)
                for run_id, token in pending
            ],
        )
    return len(pending)
