"""Completions, and the flow events that ask the orchestrator to evaluate a flow again.

A completion is one row per flow and processor; a later report may only improve it. The transaction
that records one also appends a flow event, if and only if something changed. The orchestrator
deletes flow events in the transaction that acts on them, so that no work is lost in a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.core.clock import Micros
from penstock.core.naming import CustomerKey, PipelineKey
from penstock.db.store import Tx
from penstock.entities.store import watermarks_move
from penstock.flows.cascade import CompletionStatus
from penstock.flows.items.store.expansions import item_put_many
from penstock.flows.rows import CompletionRow, FlowEvent, NewCompletion, SingleRunCompletion
from penstock.pipelines.declare.incremental import RECEIVES
from penstock.runs.rows import CompletionEvent, FinishedRun
from penstock.runs.states import RunState


def completion_from_runs(
    tx: Tx, finished: Sequence[FinishedRun], events: list[CompletionEvent] | None = None
) -> int:
    """Record the completions of ended flow runs, with their log rows. Return how many are new.

    A run that will be retried completes nothing. A cancelled run does not count as a failure for
    breakers.
    """
    tx.later("execution_log_from_runs", batch=[(end.run_id,) for end in finished])
    over = [end for end in finished if end.retry_run_id is None]
    if not over:
        return 0
    named = phases_of_later(tx, {end.processor_key for end in over})
    news = tx.rows("completion_from_runs", batch=[(end.run_id,) for end in over])
    dead = {end.run_id for end in finished if end.is_dead}
    found = _events_of(tx, news, named() if news else {}, lambda row: row[4] in dead)
    if events is None:
        completion_event_put_many(tx, found)
    else:
        events += found
    return len(news)


def completion_put_many(
    tx: Tx, reports: Sequence[NewCompletion], *, emit_events: bool = True
) -> int:
    """Record reports. Return how many are new; only those create flow events."""
    news = tx.rows("completion_put_many", batch=reports)
    if emit_events and news:
        named = phases_of_later(tx, {row[2] for row in news})()
        found = _events_of(tx, news, named, lambda row: row[3] == CompletionStatus.FAILED)
        completion_event_put_many(tx, found)
    return len(news)


def completion_recorded_in(tx: Tx, params: dict[str, object]) -> int | None:
    """Return the flow that already recorded a report of this execution, or None.

    params: customer, pipeline, partition, mode, processor, execution_id.
    """
    rows = tx.rows("completion_recorded_in", params)
    return None if not rows else int(rows[0][0])


def run_completions(
    tx: Tx, run_ids: Iterable[int], ended_since: Micros
) -> dict[int, SingleRunCompletion]:
    """Return the completions of runs without a flow, by run."""
    params = {"ids": sorted(run_ids), "since": ended_since}
    rows = [SingleRunCompletion._make(row) for row in tx.rows("run_completion_list", params)]
    return {row.run_id: row for row in rows}


def completions_of(tx: Tx, ids: Sequence[int]) -> dict[int, list[CompletionRow]]:
    """Return the completions of flows, by flow."""
    return completions_later(tx, ids)()


def completions_later(tx: Tx, ids: Sequence[int]) -> Callable[[], dict[int, list[CompletionRow]]]:
    """Send the query of `completions_of`; the returned function waits for the result."""
    result = tx.later("completion_rows_for_flows", {"ids": list(ids)})

    def read() -> dict[int, list[CompletionRow]]:
        found: dict[int, list[CompletionRow]] = {flow_id: [] for flow_id in ids}
        for row in result.rows():
            found[row[0]].append(CompletionRow._make(row))
        return found

    return read


def completions_named_later(
    tx: Tx, flow_id: int, pipeline_key: PipelineKey, names: Sequence[str]
) -> Callable[[], list[CompletionRow]]:
    """Send the query for the completions of some phases of a long flow."""
    params = {"flow_id": flow_id, "pipeline": pipeline_key, "names": list(names)}
    result = tx.later("completion_rows_named", params)
    return lambda: [CompletionRow._make(row) for row in result.rows()]


def flow_event_put_many(tx: Tx, rows: Sequence[tuple[int, int, str | None, bool]]) -> None:
    """Insert flow events: (flow, customer, phase that reported or None for all, is_failure)."""
    tx.later("flow_event_put_many", batch=rows)


def flow_event_put_for_partition(
    tx: Tx, customer_key: CustomerKey, pipeline_key: PipelineKey, partition: str
) -> list[int]:
    """Insert flow events for all open flows of a partition. Return the flows."""
    params = {"customer": customer_key, "pipeline": pipeline_key, "partition": partition}
    return [row[0] for row in tx.rows("flow_event_put_for_partition", params)]


def flow_event_put_for_next(tx: Tx, configs: Iterable[int]) -> None:
    """Insert a flow event for the next queued flow of each config, after one of its flows ended."""
    ids = sorted({config_id for config_id in configs if config_id})
    if ids:
        tx.run("flow_event_put_for_next", {"ids": ids})


def flow_event_take(tx: Tx, n: int, aside: Iterable[int] = ()) -> list[FlowEvent]:
    """Delete and return flow events, to be handled in this transaction.

    Events of skipped flows stay.
    """
    if left := sorted(aside):
        rows = tx.rows("flow_event_take_others", {"n": n, "ids": left})
    else:
        rows = tx.rows("flow_event_take", {"n": n})
    return [FlowEvent(row[0], row[1], bool(row[2]), row[3]) for row in rows]


def completion_event_put_many(tx: Tx, events: Sequence[CompletionEvent]) -> None:
    """Insert the flow events of processors that completed."""
    tx.later("completion_event_put_many", batch=events)


def phases_of_later(
    tx: Tx, numbers: Iterable[int]
) -> Callable[[], dict[int, tuple[str, str, int]]]:
    """Send the query for (phase, name, role in incremental cascades) of processors."""
    result = tx.later("phase_of_list", {"ids": sorted(set(numbers))})
    return lambda: {number: (phase, name, role) for number, phase, name, role in result.rows()}


def _events_of(
    tx: Tx,
    news: Sequence[tuple[Any, ...]],
    named: Mapping[int, tuple[str, str, int]],
    is_failure: Callable[[tuple[Any, ...]], bool],
) -> list[CompletionEvent]:
    """Return the flow events of new completions; successes move the watermarks of incremental
    processors.
    """
    receiving = {number for number, (_, _, role) in named.items() if role & RECEIVES}
    watermarks_move(
        tx,
        [
            (row[0], row[2])
            for row in news
            if row[2] in receiving and row[3] == CompletionStatus.SUCCESS
        ],
    )
    return [
        CompletionEvent(row[0], row[1], named[row[2]][0], is_failure(row), named[row[2]][1])
        for row in news
    ]


def completion_from_finished(
    tx: Tx, finished: Sequence[FinishedRun], events: list[CompletionEvent] | None = None
) -> None:
    """Record the completions of ended runs that belong to flows.

    events: receives the flow events; without it they are stored for the orchestrator.

    Ended items are only counted; the orchestrator completes their processor. Those that succeeded
    are in history and need no log row.
    """
    of_flows = [end for end in finished if end.flow_id is not None]
    plain = [end for end in of_flows if not end.item_key]
    if plain:
        completion_from_runs(tx, plain, events)
    items = [end for end in of_flows if end.item_key]
    if items:
        failed = [(end.run_id,) for end in items if end.final_state != RunState.COMPLETED]
        if failed:
            tx.later("execution_log_from_runs", batch=failed)
        if over := [end for end in items if end.retry_run_id is None]:
            item_put_many(tx, over)
