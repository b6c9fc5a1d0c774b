"""Conversion of a processor's return value or exception to the end of its run.

`outcome_of_value` and `outcome_of_error` reduce a return value or an exception to plain text and
numbers, in the process where the processor ran; `finish_of` turns that into the run's end, in the
worker. Sizes are bounded here: a result of 64 KB, or 1 MB with a list, a message of 4 KB, a
traceback's last 8 KB.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from penstock.core.clock import SECOND
from penstock.core.error_classification import retry_hint
from penstock.core.errors import RunInterrupted, RunSnoozed, RunSuspended, RunTimedOut
from penstock.core.redact import redact_json, redact_text
from penstock.core.retry import ErrorType
from penstock.entities.report import without_entities
from penstock.pipelines.declare.each import ITEMS_FIELD
from penstock.runs import attempt_result
from penstock.runs.attempt_result import AttemptFailure
from penstock.runs.rows import HeldRun, RunEnd
from penstock.runs.states import RunState, RunStatus
from penstock.worker.context import RunContext, Signal
from penstock.worker.result import Result

RESULT_BYTES_MAX: Final = 64 * 1024
ITEMS_BYTES_MAX: Final = 1024 * 1024
"""Maximum size of a result with a list, which may hold the items of a later processor."""
MESSAGE_MAX: Final = 4 * 1024
TRACEBACK_MAX: Final = 8 * 1024
COUNT_MAX: Final = 2**63 - 1
SUSPENDED: Final = "SUSPENDED"
"""Pseudo-state in a RunEnd: the run waits for a flow instead of ending."""
PROCESS_DIED: Final = "PROCESS_DIED"
"""Error type of a run whose child process ended without a result (crash, out of memory, os._exit).
Retried like an unknown error, three attempts in all: the cause may be the machine or the data."""


class AttemptOutcome(NamedTuple):
    """A processor's return value or exception, as plain values that processes can exchange."""

    status: str = RunStatus.SUCCESS.value
    result: str | None = None
    records: int | None = None
    bytes: int | None = None
    stages: str | None = None
    error_type: str | None = None
    details: str | None = None
    force_retry: bool | None = None
    retry_after_us: int | None = None
    is_interrupted: bool = False
    is_timed_out: bool = False
    snooze_us: int | None = None
    is_suspended: bool = False


def outcome_of_value(context: RunContext, value: object) -> AttemptOutcome:
    """Reduce a processor's return value; one that cannot be stored is a VALIDATION_ERROR."""
    result = value if isinstance(value, Result) else None
    summary = result.summary if result is not None else value
    if isinstance(summary, list | tuple):
        # A list contains the items of a later processor (`each=upstream(...)`).
        summary = {ITEMS_FIELD: summary}
    if summary is not None and not isinstance(summary, Mapping):
        kind = type(value).__name__
        return _invalid(
            f"expected a processor to return None, a mapping, a list or a Result, got {kind}"
        )
    status = RunStatus.SUCCESS.value if result is None else str(result.status)
    if status not in (RunStatus.SUCCESS, RunStatus.PARTIAL_SUCCESS):
        return _invalid(f"expected Result.status SUCCESS or PARTIAL_SUCCESS, got {status!r:.80}; "
                        "raise an exception to fail a run")  # fmt: skip
    summary, entities = without_entities(context.merge_reported(summary))
    entities |= context.reported_entities()
    try:
        text = None if summary is None else msgspec.json.encode(summary)
        whole = msgspec.json.encode({**(summary or {}), **entities}) if entities else text
    except Exception as error:
        return _invalid(f"the result cannot be encoded as JSON: {error}")
    lists = summary is not None and any(isinstance(v, list | tuple) for v in summary.values())
    most = ITEMS_BYTES_MAX if lists else RESULT_BYTES_MAX
    if text is not None and len(text) > most:
        return _invalid(
            f"expected a result of at most {most:,} bytes as JSON, got {len(text):,}: "
            "store the data elsewhere and return a reference to it"
        )
    stages = context.stage_durations()
    try:
        return AttemptOutcome(
            status=status,
            # Redact here too: only this process knows which secrets it resolved.
            result=None if whole is None else redact_json(whole.decode()),
            records=_count(context.records, None if result is None else result.records),
            bytes=_count(context.bytes, None if result is None else result.bytes),
            stages=None if stages is None else msgspec.json.encode(stages).decode(),
        )
    except (TypeError, ValueError) as error:
        return _invalid(f"expected records and bytes to be integers of at least 0: {error}")


def outcome_of_error(error: BaseException) -> AttemptOutcome:
    """Reduce an exception to its error type and bounded details."""
    if isinstance(error, RunTimedOut):
        return AttemptOutcome(is_timed_out=True)
    if isinstance(error, RunSuspended):
        return AttemptOutcome(error_type=SUSPENDED, is_suspended=True)
    if isinstance(error, RunSnoozed):
        return AttemptOutcome(
            error_type=ErrorType.RATE_LIMIT_EXCEEDED.value, snooze_us=error.delay_us
        )
    found = retry_hint(error)
    return AttemptOutcome(
        error_type=found.error_type,
        details=error_details(error),
        force_retry=found.force_retry,
        retry_after_us=found.retry_after_us,
        is_interrupted=isinstance(error, RunInterrupted | asyncio.CancelledError),
    )


def outcome_of_death(exit_code: int | None) -> AttemptOutcome:
    """Return the outcome of a child process that ended without reporting."""
    if exit_code is not None and exit_code < 0:
        how = f"was killed by signal {-exit_code}" + (" (out of memory?)" * (exit_code == -9))
    else:
        how = f"ended with exit code {exit_code}"
    details = {"message": f"the run's process {how} before the processor returned"}
    return AttemptOutcome(error_type=PROCESS_DIED, details=msgspec.json.encode(details).decode())


def error_details(error: BaseException) -> str:
    """Encode an exception as bounded JSON: message, type, the end of the traceback."""
    try:
        message = str(error)
    except Exception:
        message = "(the exception cannot be shown)"
    try:
        trace = "".join(traceback.format_exception(error))
    except Exception:
        trace = ""
    kind = type(error)
    return msgspec.json.encode(
        {
            "message": _clean(redact_text(message))[:MESSAGE_MAX],
            "type": f"{kind.__module__}.{kind.__qualname__}",
            "traceback": _clean(redact_text(trace))[-TRACEBACK_MAX:],
        }
    ).decode()


RELEASED: Final = "RETURNED"
"""Pseudo-state in a Finish: the run returns to the queue instead of ending."""


CAUGHT: Final = (
    "the processor returned although run.trigger(wait=True) suspended it: do not catch RunSuspended"
)


def finish_of(
    context: RunContext,
    outcome: AttemptOutcome,
    *,
    jitter: Callable[[], float],
    actor: str,
    now: float,
) -> RunEnd:
    """Return the end of a run, from its outcome and the signal that it received."""
    held = context.held
    spent = max(0, int((now - context.started_at_s) * SECOND))
    signal = context.signal
    if signal is Signal.TIMEOUT or outcome.is_timed_out:
        return attempt_result.timed_out(held, jitter=jitter(), actor=actor, duration_us=spent)
    if outcome.error_type is None and context.wait is not None:
        outcome = _invalid(CAUGHT)
    if outcome.error_type is None:
        return attempt_result.completed_result(
            held,
            status=RunStatus(outcome.status),
            result=outcome.result,
            records=outcome.records,
            bytes=outcome.bytes,
            stages=outcome.stages,
            duration_us=spent,
            actor=actor,
        )
    if signal is Signal.CANCEL:
        # A cancelled run is never retried, whatever its processor raised.
        why = "cancelled while running"
        return attempt_result.cancelled(held, actor=actor, why=why)._replace(duration_us=spent)
    if outcome.is_suspended and context.wait is not None:
        # It waits for a flow, without a worker; the attempt does not count.
        return RunEnd(held.run_id, held.token, SUSPENDED, None, actor=actor)
    if outcome.snooze_us is not None:
        # It waits for a limit: release it for that long; the attempt does not count.
        delay = outcome.snooze_us
        return RunEnd(held.run_id, held.token, RELEASED, None, retry_delay_us=delay, actor=actor)
    if (signal is Signal.DRAIN or context.was_fenced) and outcome.is_interrupted:
        # Neither a planned stop nor an unreachable database is a failure of the run: release it
        # without counting the attempt. If another process took it over, the token is refused.
        return RunEnd(held.run_id, held.token, RELEASED, None, actor=actor)
    if signal is not None and outcome.is_interrupted:
        return attempt_result.stale(held, jitter=jitter(), actor=actor)._replace(duration_us=spent)
    failure = AttemptFailure(
        error_type=outcome.error_type,
        details=outcome.details,
        force_retry=outcome.force_retry,
        retry_after_us=outcome.retry_after_us,
    )
    return attempt_result.failed(held, failure, jitter=jitter(), actor=actor, duration_us=spent)


def invalid_settings_finish(held: HeldRun, error: Exception, actor: str) -> RunEnd:
    """Return the end of a run whose settings (its retry settings, for example) are unreadable."""
    return RunEnd(
        held.run_id,
        held.token,
        RunState.FAILED.value,
        RunStatus.FAILURE.value,
        error_type=ErrorType.INVALID_CONFIGURATION.value,
        error_details=error_details(error),
        is_dead=True,
        actor=actor,
    )


def _invalid(message: str) -> AttemptOutcome:
    details = msgspec.json.encode({"message": _clean(redact_text(message))[:MESSAGE_MAX]}).decode()
    return AttemptOutcome(error_type=ErrorType.VALIDATION_ERROR.value, details=details)


def _count(counted: Any, stated: Any) -> int | None:
    """Return the count that a Result specifies, or else the context's count; None for zero."""
    number = int(counted if stated is None else stated)
    if not 0 <= number <= COUNT_MAX:
        raise ValueError(f"got {number!r:.40}")
    return None if number == 0 and stated is None else number


def _clean(text: str) -> str:
    # Lone surrogates cannot be encoded and NUL cannot be stored by PostgreSQL.
    return text.encode("utf-8", "replace").decode().replace("\0", "\\0")
