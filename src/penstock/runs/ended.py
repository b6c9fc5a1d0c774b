"""The event of a run that ended, from what its holder knew and what was stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from penstock.audit.telemetry import RunEnded
from penstock.runs.attempt_result import error_class
from penstock.runs.rows import FinishedRun, HeldRun, RunEnd


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


def ended_events(
    ends: Iterable[RunEnd], stored: Iterable[FinishedRun], held: Mapping[int, HeldRun]
) -> Iterator[RunEnded]:
    """Yield the events of the ends that were stored; `held` has the runs by id."""
    found = {one.run_id: one for one in stored}
    for end in ends:
        if end.run_id in found:
            yield ended_event(end, found[end.run_id], held.get(end.run_id))
