"""Events of stored and rejected ends, and the end of a run whose result cannot be stored."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import msgspec

from penstock.audit.telemetry import Events, RunRefused
from penstock.core.errors import PenstockError
from penstock.core.retry import ErrorType
from penstock.runs import attempt_result
from penstock.runs.ended import emit_ends
from penstock.runs.rows import FinishedRun, HeldRun, RunEnd


def not_stored(held: HeldRun, error: Exception, *, jitter: float, actor: str) -> RunEnd:
    """Return the failure that replaces an end that the store rejects."""
    cause = error.message if isinstance(error, PenstockError) else type(error).__name__
    message = f"the run's result could not be stored: {cause}"
    details = msgspec.json.encode({"message": message}).decode()
    failure = attempt_result.AttemptFailure(error_type=ErrorType.VALIDATION_ERROR, details=details)
    return attempt_result.failed(held, failure, jitter=jitter, actor=actor)


def emit_results(
    events: Events,
    batch: Sequence[RunEnd],
    runs: Sequence[HeldRun | None],
    finished: Sequence[FinishedRun],
) -> None:
    """Emit the outcome of ends, stored or rejected."""
    stored = {end.run_id: end for end in finished}
    if len(stored) < len(batch):
        is_stored = [finish.run_id in stored for finish in batch]
        for finish in batch:
            if finish.run_id not in stored:
                events.emit(RunRefused(finish.run_id, finish.token))
        batch, runs = list(compress(batch, is_stored)), list(compress(runs, is_stored))
    emit_ends(events, batch, [stored[finish.run_id] for finish in batch], runs)
