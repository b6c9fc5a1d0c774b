"""The events of runs that ended, from what their holders knew and what was stored."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.audit.telemetry import CompletedRun, Events, RunEnded, RunsEnded
from penstock.runs.attempt_result import error_class
from penstock.runs.rows import FinishedRun, HeldRun, RunEnd
from penstock.runs.states import RunState

COMPLETED = RunState.COMPLETED.value


def ended_event(end: RunEnd, stored: FinishedRun, held: HeldRun | None) -> RunEnded:
    """Return the event of a run whose end was stored; `held` is the run as it was claimed."""
    known = {}
    if end.error_details:
        details = msgspec.json.decode(end.error_details)
        known = details if isinstance(details, dict) else {}
    return RunEnded(
        end.run_id,
        "" if held is None else held.customer_id,
        stored.processor_key,
        stored.final_state,
        end.error_type,
        stored.retry_run_id is not None,
        bool(stored.is_dead),
        error_class(known) if known else None,
        known.get("message"),
        known.get("traceback"),
        end.why,
        1 if held is None else held.attempt,
        stored.flow_id,
        None if held is None else held.correlation_id,
        end.run_id if held is None else held.root_run_id or held.run_id,
        None if held is None else held.partition,
        stored.item_key,
        0 if held is None else max(0, (held.claimed_at or 0) - held.scheduled_time),
        end.duration_us,
        None if held is None else held.started_at,
        end.records,
    )


def wants_ends(events: Events) -> bool:
    """Return whether ended runs have subscribers, each or as batches."""
    return events.wants(RunsEnded) or events.wants(RunEnded)


def emit_ends(events: Events, ended: Iterable[tuple[RunEnd, FinishedRun, HeldRun | None]]) -> None:
    """Emit that ends were stored: as a batch, and each if that has subscribers."""
    has_each = events.wants(RunEnded)
    completed: list[CompletedRun] = []
    sources: list[tuple[RunEnd, FinishedRun, HeldRun | None]] = []
    others: list[RunEnded] = []
    for source in ended:
        end, stored, held = source
        if has_each:
            events.emit(ended_event(end, stored, held))
        if held is None or end.error_type is not None or stored.final_state != COMPLETED:
            others.append(ended_event(end, stored, held))
            continue
        waited = (held.claimed_at or 0) - held.scheduled_time
        sources.append(source)
        completed.append(
            CompletedRun(
                stored.processor_key,
                held.customer_id,
                waited if waited > 0 else 0,
                end.duration_us,
                end.records,
            )
        )
    if completed or others:
        events.emit(RunsEnded(completed, others, lambda n: ended_event(*sources[n])))
