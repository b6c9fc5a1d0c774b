"""The events of runs that ended, from the state of their holders and the stored rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import cast

import msgspec

from penstock.audit.telemetry import CompletedRuns, Events, RunEnded, RunsEnded
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
    """Return whether events of ended runs have subscribers, singly or in batches."""
    return events.wants(RunsEnded) or events.wants(RunEnded)


def emit_ends(
    events: Events,
    ends: Sequence[RunEnd],
    stored: Sequence[FinishedRun],
    runs: Sequence[HeldRun | None],
) -> None:
    """Emit events of the stored ends: as a batch, and singly if single events have subscribers.

    The arguments have the same order: ends, stored results, runs as claimed.
    """
    if events.wants(RunEnded):
        for one in map(ended_event, ends, stored, runs):
            events.emit(one)
    others: list[RunEnded] = []
    is_plain = [
        run is not None and end.error_type is None and one.final_state == COMPLETED
        for end, one, run in zip(ends, stored, runs, strict=True)
    ]
    if not all(is_plain):
        others = [
            ended_event(end, one, run)
            for end, one, run, is_counted in zip(ends, stored, runs, is_plain, strict=True)
            if not is_counted
        ]
        ends, stored = list(compress(ends, is_plain)), list(compress(stored, is_plain))
        runs = list(compress(runs, is_plain))
    if ends or others:
        events.emit(
            RunsEnded(
                _completed(ends, stored, cast("Sequence[HeldRun]", runs)),
                others,
                lambda n: ended_event(ends[n], stored[n], runs[n]),
            )
        )


def _completed(
    ends: Sequence[RunEnd], stored: Sequence[FinishedRun], runs: Sequence[HeldRun]
) -> CompletedRuns:
    """Return the data of completed runs in columns, which is cheaper than one object each."""
    waited = [(run.claimed_at or 0) - run.scheduled_time for run in runs]
    if waited and min(waited) < 0:
        waited = [max(0, one) for one in waited]
    return CompletedRuns(
        [one.processor_key for one in stored],
        [run.customer_id for run in runs],
        waited,
        [end.duration_us for end in ends],
        [end.records for end in ends],
    )
