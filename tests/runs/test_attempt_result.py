"""Results of attempts: completion, failure, timeout, loss and cancellation."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.clock import DAY, MINUTE, SECOND
from penstock.core.retry import ATTEMPTS_MAX, DELAY_CAP_MAX
from penstock.runs import attempt_result
from penstock.runs.rows import HeldRun, RunEnd
from penstock.runs.states import MAX_LAPSES, RunState, RunStatus
from tests.kits.run_states import status_fits


def held(**fields: Any) -> HeldRun:
    """Return a claimed run on its first attempt."""
    values: dict[str, Any] = dict.fromkeys(HeldRun._fields)
    values |= {
        "run_id": 7, "token": 3, "state": "RUNNING", "attempt": 1, "lapses": 0, "stales": 0,
        "max_execution_us": 60 * MINUTE, "claimed_by": "w1", **fields,
    }  # fmt: skip
    return HeldRun(**values)


def failed(run: HeldRun, error_type: str, jitter: float = 0.0, **failure: Any) -> RunEnd:
    return attempt_result.failed(
        run, attempt_result.AttemptFailure(error_type=error_type, **failure), jitter=jitter
    )


class TestCompleted:
    """Runs that completed."""

    @pytest.mark.parametrize("status", [RunStatus.SUCCESS, RunStatus.PARTIAL_SUCCESS])
    def test_completed(self, status: RunStatus) -> None:
        """A completed run has its counts and is neither retried nor dead."""
        finish = attempt_result.completed_result(
            held(), status=status, result="{}", records=5, bytes=9
        )
        assert (finish.run_id, finish.token) == (7, 3)
        assert (finish.final_state, finish.status) == ("COMPLETED", status.value)
        assert (finish.records, finish.bytes, finish.result) == (5, 9, "{}")
        assert finish.retry_delay_us is None
        assert not finish.is_dead

    def test_a_failure_status_cannot_complete_a_run(self) -> None:
        """`completed_result` does not accept a failure status."""
        with pytest.raises(AssertionError):
            attempt_result.completed_result(held(), status=RunStatus.FAILURE)


class TestFailed:
    """Runs that failed."""

    @pytest.mark.parametrize(("attempt", "minutes"), [(1, 5), (2, 10)])
    def test_retryable(self, attempt: int, minutes: int) -> None:
        """A transient failure is retried after base × 2^(attempt − 1)."""
        finish = failed(held(attempt=attempt), "TRANSIENT_NETWORK")
        assert finish.retry_delay_us == minutes * MINUTE
        assert (finish.final_state, finish.status) == ("FAILED", "FAILURE")
        assert not finish.is_dead
        assert finish.why == f"attempt {attempt} of 3"
        assert finish.retry_max_execution_us == 60 * MINUTE

    def test_the_last_attempt_is_dead(self) -> None:
        """After the last attempt the run is dead, with a reason."""
        finish = failed(held(attempt=3), "TRANSIENT_NETWORK")
        assert finish.is_dead
        assert finish.retry_delay_us is None
        assert "all 3 attempts" in (finish.why or "")

    def test_permanent(self) -> None:
        """A permanent error is dead at once."""
        finish = failed(held(), "AUTHENTICATION_FAILED")
        assert finish.is_dead
        assert "permanent" in (finish.why or "")

    def test_forced_and_forbidden_retries(self) -> None:
        """The caller may force a retry of a permanent error, and forbid any retry."""
        assert failed(held(), "AUTHENTICATION_FAILED", force_retry=True).retry_delay_us is not None
        assert failed(held(), "TRANSIENT_NETWORK", force_retry=False).is_dead
        assert failed(held(attempt=3), "AUTHENTICATION_FAILED", force_retry=True).is_dead

    def test_the_retry_settings_of_the_config_take_precedence(self) -> None:
        """Attempts and delays of the config replace those of the error type."""
        run = held(attempt=1, retry=json.dumps({"max_attempts": 2, "base_delay_minutes": 1}))
        assert failed(run, "RATE_LIMIT_EXCEEDED").retry_delay_us == MINUTE
        assert failed(run._replace(attempt=2), "RATE_LIMIT_EXCEEDED").is_dead

    def test_the_processors_own_retry(self) -> None:
        """A declared retry= retries a permanent error; the config overrides single settings."""
        declared = json.dumps({"max_attempts": 4, "base_delay_minutes": 2})
        run = held(retry=declared, processor_retry=declared)
        finish = failed(run, "RESOURCE_NOT_FOUND")
        assert (finish.retry_delay_us, finish.why) == (2 * MINUTE, "attempt 1 of 4")
        config = json.dumps({"max_attempts": 2})
        run = held(retry=config, processor_retry=declared)
        finish = failed(run, "RESOURCE_NOT_FOUND")
        assert (finish.retry_delay_us, finish.why) == (2 * MINUTE, "attempt 1 of 2")
        alone = failed(held(retry=config), "RESOURCE_NOT_FOUND")
        assert alone.is_dead
        assert "declare retry= on the processor" in str(alone.why)

    def test_retry_after(self) -> None:
        """A Retry-After longer than the backoff is honoured, up to 30 days."""
        wish = 3 * DAY
        assert failed(held(), "RATE_LIMIT_EXCEEDED", retry_after_us=wish).retry_delay_us == wish
        far = failed(held(), "RATE_LIMIT_EXCEEDED", retry_after_us=400 * DAY)
        assert far.retry_delay_us == DELAY_CAP_MAX

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"max_attempts": 0}', '{"nonsense": 1}'])
    def test_unreadable_retry_settings(self, text: str) -> None:
        """If the stored retry settings are unreadable, the defaults of the error type apply."""
        assert failed(held(retry=text), "TRANSIENT_NETWORK").retry_delay_us == 5 * MINUTE


class TestTimedOut:
    """Runs that exceeded their maximum duration."""

    def test_timeout(self) -> None:
        """A timed-out run is TIMEOUT with status TIMEOUT and is retried."""
        finish = attempt_result.timed_out(held(max_execution_us=90 * SECOND), jitter=0.0)
        assert (finish.final_state, finish.status) == ("TIMEOUT", "TIMEOUT")
        assert finish.retry_delay_us == 5 * MINUTE
        assert finish.retry_max_execution_us == 90 * SECOND
        assert "1m30s" in (finish.error_details or "")

    def test_the_multiplier_extends_the_maximum_duration(self) -> None:
        """A timeout multiplier gives the next attempt more time; other failures do not."""
        run = held(retry=json.dumps({"timeout_multiplier": 1.5}))
        assert attempt_result.timed_out(run, jitter=0.0).retry_max_execution_us == 90 * MINUTE
        assert failed(run, "SERVICE_UNAVAILABLE").retry_max_execution_us == 60 * MINUTE

    def test_the_multiplier_is_bounded(self) -> None:
        """Repeated multiplication is bounded by a week, or by a longer configured value."""
        retry = json.dumps({"timeout_multiplier": 10, "max_attempts": 100})
        run = held(retry=retry)
        for attempt in range(1, ATTEMPTS_MAX):
            finish = attempt_result.timed_out(run._replace(attempt=attempt), jitter=1.0)
            assert finish.retry_max_execution_us is not None
            run = run._replace(max_execution_us=finish.retry_max_execution_us)
        assert run.max_execution_us == 7 * DAY
        longer = held(retry=retry, max_execution_us=30 * DAY)
        assert attempt_result.timed_out(longer, jitter=0.0).retry_max_execution_us == 30 * DAY


class TestLost:
    """Runs that lost their worker, and runs that were cancelled."""

    def test_stale_first_and_again(self) -> None:
        """A stale run is retried at once the first time, with backoff the second."""
        first = attempt_result.stale(held(), jitter=0.5)
        assert first.is_stale
        assert (first.retry_delay_us, first.error_type) == (0, "STALE_EXECUTION")
        assert "w1" in (first.error_details or "")
        second = attempt_result.stale(held(attempt=2, stales=1), jitter=0.0)
        assert second.retry_delay_us == 10 * MINUTE
        assert attempt_result.stale(held(attempt=3, stales=2), jitter=0.0).is_dead

    def test_stale_without_a_name(self) -> None:
        """The message also works if the worker has no name."""
        assert "its worker" in (
            attempt_result.stale(held(claimed_by=None), jitter=0.0).error_details or ""
        )

    def test_lapsed_out(self) -> None:
        """A run whose claims lapsed too often is dead, not retried."""
        finish = attempt_result.claims_exhausted(held(state="CLAIMED", lapses=MAX_LAPSES - 1))
        assert finish.is_dead
        assert finish.retry_delay_us is None
        assert finish.error_type == "CLAIM_LAPSED"
        with pytest.raises(AssertionError):
            attempt_result.claims_exhausted(held(state="CLAIMED", lapses=MAX_LAPSES - 2))

    def test_cancelled(self) -> None:
        """A cancelled run has an actor and a reason, but no status; it is not retried or dead."""
        finish = attempt_result.cancelled(held(), actor="ann", why="wrong day")
        assert (finish.final_state, finish.status) == ("CANCELLED", None)
        assert (finish.actor, finish.why) == ("ann", "wrong day")
        assert not finish.is_dead
        assert finish.retry_delay_us is None


@given(
    error_type=st.text(min_size=1, max_size=20) | st.sampled_from(["TIMEOUT", "STALE_EXECUTION"]),
    attempt=st.integers(1, 200),
    stales=st.integers(0, 5),
    force_retry=st.none() | st.booleans(),
    jitter=st.floats(0, 1),
    retry_after=st.none() | st.integers(0, 10**18),
    retry=st.none()
    | st.fixed_dictionaries({"max_attempts": st.integers(1, 100)}).map(json.dumps)
    | st.fixed_dictionaries(
        {"backoff_multiplier": st.floats(1, 10), "timeout_multiplier": st.floats(1, 10)}
    ).map(json.dumps),
    how=st.sampled_from(["failed", "timed_out", "stale"]),
)
def test_every_failure_is_retried_or_dead(
    error_type: str,
    attempt: int,
    stales: int,
    force_retry: bool | None,
    jitter: float,
    retry_after: int | None,
    retry: str | None,
    how: str,
) -> None:
    """Each failure is either retried within bounds or dead, and attempts are never exceeded."""
    run = held(attempt=attempt, stales=stales, retry=retry)
    if how == "failed":
        failure = attempt_result.AttemptFailure(
            error_type=error_type, force_retry=force_retry, retry_after_us=retry_after
        )
        finish = attempt_result.failed(run, failure, jitter=jitter)
    elif how == "timed_out":
        finish = attempt_result.timed_out(run, jitter=jitter)
    else:
        finish = attempt_result.stale(run, jitter=jitter)
    assert finish.is_dead == (finish.retry_delay_us is None)
    assert status_fits(RunState(finish.final_state), RunStatus(finish.status or ""))
    assert finish.why
    if finish.retry_delay_us is not None:
        assert 0 <= finish.retry_delay_us <= DELAY_CAP_MAX
        assert 0 < (finish.retry_max_execution_us or 0) <= 7 * DAY
        assert attempt < ATTEMPTS_MAX
    if attempt >= ATTEMPTS_MAX:
        assert finish.is_dead
