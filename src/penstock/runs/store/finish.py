"""End runs, with all consequences.

Worker, sweeper and API all end runs through this module. Subjects above it (completions of flows,
health of configs) are connected to `runs.hooks.on_finished`. Everything commits in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.core.naming import ProcessorKey
from penstock.db.store import Row, Tx
from penstock.entities.report import NOT_REPORTED, EntityReport, split_result
from penstock.entities.rows import ChangeReport
from penstock.entities.store import reports_put_many
from penstock.limits.store.run_queue import queue_leave
from penstock.pipelines.declare.incremental import MUST_REPORT
from penstock.runs.hooks import complete_flows, on_finished
from penstock.runs.rows import CompletionEvent, FinishedRun, RunEnd
from penstock.runs.states import RunState
from penstock.runs.store.end_events import emit_ends_after_commit
from penstock.runs.store.runs import (
    run_cancel_pending,
    run_cancel_pending_flow,
    run_finish_many,
    run_stop_flow,
)


def run_end_many(
    tx: Tx, finishes: Sequence[RunEnd], events: list[CompletionEvent] | None = None
) -> list[FinishedRun]:
    """End runs whose token is current. Runs with a stale token are missing from the result.

    events: receives the flow events instead of the store; the caller evaluates the flows, or stores
    the events.
    """
    reports: dict[int, EntityReport] = {}
    kept = [end if end.result is None else _without_report(end, reports) for end in finishes]
    finished = run_finish_many(tx, kept)
    if finished:
        _record_reports(tx, finished, reports)
        complete_flows(tx, finished, events)
        on_finished(tx, finished)
    return finished


def _without_report(end: RunEnd, reports: dict[int, EntityReport]) -> RunEnd:
    """Remove the report of changed entities from a result, which keeps its counts."""
    result, report = split_result(end.result)
    if report is None:
        return end
    reports.setdefault(end.run_id, report)
    return end._replace(result=result)


def _record_reports(
    tx: Tx, finished: Sequence[FinishedRun], reports: dict[int, EntityReport]
) -> None:
    """Record the changes of ended runs, and which runs failed to report theirs."""
    found = []
    for end in finished:
        report = reports.get(end.run_id) if end.final_state == RunState.COMPLETED else None
        if report is not None:
            found.append(ChangeReport(end.run_id, report))
        elif end.entity_role >= MUST_REPORT and end.retry_run_id is None:
            lack = f"ended {end.final_state} and may have changed anything"
            lack = NOT_REPORTED if end.final_state == RunState.COMPLETED else lack
            found.append(ChangeReport(end.run_id, EntityReport(unknown=lack), is_reported=False))
    if found:
        reports_put_many(tx, found)


def run_release_many(tx: Tx, held: Iterable[tuple[int, int, int]]) -> set[int]:
    """Take (run, token, delay) from their holder, back into the queue without counting an attempt.

    Runs that were asked to stop, or whose flow was closed, are cancelled instead.
    """
    rows = list(held)
    note = {"action": "released", "actor": "worker"}
    tx.run("journal_interrupt_many", note, batch=[row[:2] for row in rows])
    released = tx.rows("run_release_many", batch=rows)
    if released:
        tx.run("progress_drop_many", {"ids": sorted(row[0] for row in released)})
    return _requeued(tx, released)


def run_lapse_many(tx: Tx, held: Iterable[tuple[int, int]]) -> set[int]:
    """Put CLAIMED runs with an expired lease back into the queue, counting the lapse; those that
    were asked to stop, or whose flow was closed, are cancelled instead.
    """
    rows = list(held)
    tx.run("journal_interrupt_many", {"action": "lapsed", "actor": "sweeper"}, batch=rows)
    return _requeued(tx, tx.rows("run_lapse_many", batch=rows))


def _requeued(tx: Tx, rows: Sequence[Row]) -> set[int]:
    queue_leave(tx, [run_id for run_id, limits, _ in rows if limits])
    ends = []
    for run_id, _, is_stopped in rows:
        token = run_cancel_pending(tx, run_id) if is_stopped else None
        if token is not None:
            why = "returned by its worker after a request to stop"
            ends.append(RunEnd(run_id, token, RunState.CANCELLED.value, None, why=why))
    if ends:
        emit_ends_after_commit(tx, ends, run_end_many(tx, ends), {})
    return {row[0] for row in rows}


def run_cancel_flow(
    tx: Tx, flow_id: int, who: str, reason: str, *, stops_running: bool = True
) -> int:
    """Cancel the pending runs of a flow; the others are not retried. Return how many.

    stops_running: also ask runs in progress to stop. The caller holds the flow's lock.
    """
    held = run_stop_flow(tx, flow_id, who, reason or None, asks=stops_running)
    cancelled = run_cancel_waiting(tx, flow_id, who, reason)
    return cancelled + (len(held) if stops_running else 0)


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
