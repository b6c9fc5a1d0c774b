"""The results of attempts: converts the end of a run to the `RunEnd` record that is stored.

Pure. The worker, the sweeper and the API all use these functions, so that the same failure has the
same consequence from each of them: a retry after a delay, or a dead run. `runs/store/finish.py`
writes the record.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

from penstock.core.clock import DAY, format_duration, iso
from penstock.core.errors import InvalidInput
from penstock.core.redact import redact_json
from penstock.core.retry import ErrorType, NoRetry, RetryConfig, decide_retry
from penstock.runs.rows import HeldRun, RunEnd
from penstock.runs.states import MAX_LAPSES, RunState, RunStatus

FAILURES_ALERT = 3
FAILURES_DISABLE = 5
EXECUTION_MAX = 7 * DAY
"""Upper bound for a maximum duration extended by a timeout multiplier; unbounded, the value would
overflow its column.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailure:
    """A reported failure.

    force_retry: the caller's should_retry; None leaves it to the error type.

    retry_after_us: minimum delay before a retry, None for no minimum.
    """

    error_type: str
    details: str | None = None
    force_retry: bool | None = None
    retry_after_us: int | None = None


def completed_result(
    held: HeldRun,
    *,
    status: RunStatus = RunStatus.SUCCESS,
    result: str | None = None,
    records: int | None = None,
    bytes: int | None = None,
    stages: str | None = None,
    duration_us: int | None = None,
    actor: str = "worker",
) -> RunEnd:
    """Return the result of a run that completed, with full or partial success."""
    assert status in (RunStatus.SUCCESS, RunStatus.PARTIAL_SUCCESS), status
    return RunEnd(
        held.run_id,
        held.token,
        "COMPLETED",
        status.value,
        duration_us=duration_us,
        result=None if result is None else redact_json(result),
        records=records,
        bytes=bytes,
        stages=stages,
        actor=actor,
    )


def failed(
    held: HeldRun,
    failure: AttemptFailure,
    *,
    jitter: float,
    actor: str = "worker",
    duration_us: int | None = None,
) -> RunEnd:
    """Return the result of a run that failed: retried after a delay, or dead."""
    state, status = RunState.FAILED, RunStatus.FAILURE
    return _ended(held, state, status, failure, jitter=jitter, actor=actor, duration_us=duration_us)


def timed_out(
    held: HeldRun, *, jitter: float, actor: str = "worker", duration_us: int | None = None
) -> RunEnd:
    """Return the result of a run that exceeded its maximum duration."""
    details = json.dumps({"message": f"longer than {format_duration(held.max_execution_us)}"})
    failure = AttemptFailure(error_type=ErrorType.TIMEOUT, details=details)
    state, status = RunState.TIMEOUT, RunStatus.TIMEOUT
    return _ended(held, state, status, failure, jitter=jitter, actor=actor, duration_us=duration_us)


def stale(held: HeldRun, *, jitter: float, actor: str = "sweeper") -> RunEnd:
    """Return the result of a RUNNING run without heartbeats: failed. The first time in a chain of
    attempts, it is retried immediately.
    """
    details = json.dumps({"message": f"no heartbeat from {held.claimed_by or 'its worker'}"})
    failure = AttemptFailure(error_type=ErrorType.STALE_EXECUTION, details=details)
    state, status = RunState.FAILED, RunStatus.FAILURE
    finish = _ended(held, state, status, failure, jitter=jitter, actor=actor)
    return finish._replace(is_stale=True)


def claims_exhausted(held: HeldRun, *, actor: str = "sweeper") -> RunEnd:
    """Return the result of a run whose claims lapsed MAX_LAPSES times: failed and dead."""
    assert held.lapses + 1 >= MAX_LAPSES, held.lapses
    details = json.dumps({"message": f"claimed {MAX_LAPSES} times and never started"})
    return RunEnd(
        held.run_id,
        held.token,
        "FAILED",
        "FAILURE",
        error_type=ErrorType.CLAIM_LAPSED.value,
        error_details=details,
        is_dead=True,
        actor=actor,
        why=f"lease lapsed {MAX_LAPSES} times",
    )


def cancelled(held: HeldRun, *, actor: str, why: str | None = None) -> RunEnd:
    """Return the result of a cancelled run: neither retried nor dead."""
    return RunEnd(held.run_id, held.token, "CANCELLED", None, actor=actor, why=why)


def expired(held: HeldRun, *, waited_us: int) -> RunEnd:
    """Return the result of a run that was not started in time: neither retried nor dead.

    waited_us: how long it was allowed to wait after it was due.
    """
    wait = format_duration(waited_us)
    details = json.dumps({"message": f"not started within {wait} of {iso(held.scheduled_time)}"})
    return RunEnd(
        held.run_id,
        held.token,
        RunState.EXPIRED.value,
        None,
        error_type=ErrorType.EXPIRED.value,
        error_details=details,
        actor="sweeper",
        why=f"not started within {wait}",
    )


def forced(held: HeldRun, *, actor: str, reason: str | None = None) -> RunEnd:
    """Return the result of a run that a person ended because it ignored the request to stop: failed
    and dead.
    """
    asked = held.cancel_requested_at
    ignored = "" if asked is None else f" It ignored the stop requested at {iso(asked)}."
    worker = held.claimed_by or "its worker"
    message = f"Ended by {actor} while {worker} was still executing it.{ignored}"
    why = "ended by force: not retried automatically. To run it again: penstock runs retry"
    return RunEnd(
        held.run_id,
        held.token,
        RunState.FAILED.value,
        RunStatus.FAILURE.value,
        error_type=ErrorType.STOP_IGNORED.value,
        error_details=json.dumps({"message": message}),
        is_dead=True,
        actor=actor,
        why=why if not reason else f"{reason} ({why})",
    )


def error_class(details: object) -> str | None:
    """Return the class name of the exception in error details; None if they have none."""
    kind = details.get("type") if isinstance(details, dict) else None
    return kind.rpartition(".")[2][:200] or None if isinstance(kind, str) else None


def _ended(
    held: HeldRun,
    state: RunState,
    status: RunStatus,
    failure: AttemptFailure,
    *,
    jitter: float,
    actor: str,
    duration_us: int | None = None,
) -> RunEnd:
    verdict = decide_retry(
        error_type=failure.error_type,
        attempt=held.attempt,
        retry=retry_settings(held),
        is_declared=held.processor_retry is not None,
        stale_before=held.stales > 0,
        force_retry=failure.force_retry,
        jitter=jitter,
        retry_after_us=failure.retry_after_us,
    )
    base = RunEnd(
        held.run_id,
        held.token,
        state.value,
        status.value,
        duration_us=duration_us,
        error_type=str(failure.error_type),
        error_details=None if failure.details is None else redact_json(failure.details),
        actor=actor,
    )
    if isinstance(verdict, NoRetry):
        return base._replace(is_dead=True, why=verdict.reason)
    longest = max(held.max_execution_us, EXECUTION_MAX)
    longer = min(int(held.max_execution_us * verdict.timeout_multiplier), longest)
    return base._replace(
        retry_delay_us=verdict.delay_us,
        retry_max_execution_us=longer,
        why=f"attempt {held.attempt} of {verdict.max_attempts}",
    )


def retry_settings(held: HeldRun) -> RetryConfig | None:
    """Return the retry settings of a run: those of its config over those of its processor."""
    return _merged(held.retry, held.processor_retry)


@lru_cache(maxsize=512)
def _merged(text: str | None, declared: str | None) -> RetryConfig | None:
    settings, base = _retry_config(text), _retry_config(declared)
    return settings if base is None or text == declared else (settings or base).over(base)


def _retry_config(text: str | None) -> RetryConfig | None:
    try:
        return None if text is None else RetryConfig.parse(json.loads(text))
    except (InvalidInput, ValueError):
        # Validated when it was stored. A run must be able to end even if the row was corrupted.
        return None
