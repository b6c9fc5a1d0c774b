"""Retries: policies by error type, settings of a config, and decisions."""

from __future__ import annotations

import pytest

from penstock.core import retry
from penstock.core.clock import DAY, MINUTE, SECOND
from penstock.core.errors import InvalidInput
from penstock.core.retry import ErrorType, NoRetry, Retry, RetryConfig, backoff, decide_retry


@pytest.mark.parametrize(
    ("error_type", "attempts", "minutes"),
    [
        (ErrorType.RATE_LIMIT_EXCEEDED, 5, [15, 30, 60, 120]),
        (ErrorType.QUOTA_EXCEEDED, 5, [15, 30, 60, 120]),
        (ErrorType.SERVICE_UNAVAILABLE, 3, [10, 20]),
        (ErrorType.TRANSIENT_NETWORK, 3, [5, 10]),
        (ErrorType.TIMEOUT, 3, [5, 10]),
        (ErrorType.STALE_EXECUTION, 3, [0, 0]),
        (ErrorType.CLAIM_LAPSED, 3, [5, 10]),
        (ErrorType.UNKNOWN, 3, [5, 10]),
        ("WAREHOUSE_ASLEEP", 3, [5, 10]),
        (ErrorType.AUTHENTICATION_FAILED, 1, []),
        (ErrorType.AUTHORIZATION_FAILED, 1, []),
        (ErrorType.INVALID_CONFIGURATION, 1, []),
        (ErrorType.RESOURCE_NOT_FOUND, 1, []),
        (ErrorType.VALIDATION_ERROR, 1, []),
        (ErrorType.PERMANENT_ERROR, 1, []),
    ],
)
def test_defaults_by_error_type(error_type: str, attempts: int, minutes: list[int]) -> None:
    """Each error type has the attempts and delays of the specification."""
    delays = []
    for attempt in range(1, 10):
        decision = decide_retry(error_type=error_type, attempt=attempt)
        if isinstance(decision, NoRetry):
            assert attempt == attempts
            break
        delays.append(decision.delay_us)
    assert delays == [m * MINUTE for m in minutes]


def test_the_config_takes_precedence_over_the_error_type() -> None:
    """Attempts, base delay, multiplier and cap come from the config if it sets them."""
    config = RetryConfig(
        max_attempts=4, base_delay_us=SECOND, multiplier=3.0, max_delay_us=5_000_000
    )
    found = [
        decide_retry(error_type=ErrorType.RATE_LIMIT_EXCEEDED, attempt=n, retry=config)
        for n in (1, 2, 3, 4)
    ]
    assert found[:3] == [Retry(SECOND, 4), Retry(3 * SECOND, 4), Retry(5 * SECOND, 4)]
    assert isinstance(found[3], NoRetry)
    assert "all 4 attempts are used up (max_attempts)" in found[3].reason


def test_the_latest_error_type_sets_the_maximum_attempts() -> None:
    """After four rate limit errors, a network error has no attempts left."""
    assert isinstance(decide_retry(error_type=ErrorType.RATE_LIMIT_EXCEEDED, attempt=4), Retry)
    assert isinstance(decide_retry(error_type=ErrorType.TRANSIENT_NETWORK, attempt=4), NoRetry)


def test_a_forced_retry_is_still_bounded() -> None:
    """should_retry=True allows three attempts of a permanent type; False forbids any retry."""
    auth = ErrorType.AUTHENTICATION_FAILED
    assert decide_retry(error_type=auth, attempt=1, force_retry=True) == Retry(5 * MINUTE, 3)
    assert isinstance(decide_retry(error_type=auth, attempt=3, force_retry=True), NoRetry)
    config = RetryConfig(max_attempts=7)
    assert decide_retry(error_type=auth, attempt=6, force_retry=True, retry=config) == Retry(
        160 * MINUTE, 7
    )
    assert isinstance(decide_retry(error_type=auth, attempt=1, retry=config), NoRetry)
    assert isinstance(
        decide_retry(error_type=ErrorType.TIMEOUT, attempt=1, force_retry=False), NoRetry
    )


@pytest.mark.parametrize("error_type", [e for e, p in retry.POLICIES.items() if p.permanent])
def test_a_declared_retry_wins_over_the_error_type(error_type: str) -> None:
    """A processor's own retry= also applies to errors that are permanent by default."""
    declared = RetryConfig(max_attempts=4, base_delay_us=MINUTE)
    again = decide_retry(error_type=error_type, attempt=1, retry=declared, is_declared=True)
    assert again == Retry(MINUTE, 4)
    bare = decide_retry(error_type=error_type, attempt=1, retry=RetryConfig(), is_declared=True)
    assert bare == Retry(5 * MINUTE, 3)
    last = decide_retry(error_type=error_type, attempt=4, retry=declared, is_declared=True)
    assert isinstance(last, NoRetry)
    forbidden = decide_retry(error_type=error_type, attempt=1, is_declared=True, force_retry=False)
    assert isinstance(forbidden, NoRetry)


def test_a_refusal_says_why_and_what_would_change_it() -> None:
    """Every reason names the error type, the rule that applied and the way to change it."""

    def reason(**given: object) -> str:
        decision = decide_retry(**{"error_type": "RESOURCE_NOT_FOUND", "attempt": 1, **given})  # type: ignore[arg-type]
        assert isinstance(decision, NoRetry)
        assert "RESOURCE_NOT_FOUND" in decision.reason
        return decision.reason

    assert "declare retry= on the processor" in reason()
    assert "PermanentError" in reason(force_retry=False)
    assert "omit should_retry" in reason(force_retry=False)
    assert reason().startswith("RESOURCE_NOT_FOUND is not retried: it is permanent by default")
    used_up = reason(attempt=3, is_declared=True)
    assert used_up.startswith(
        "failed with RESOURCE_NOT_FOUND; all 3 attempts are used up "
        "(the default of RESOURCE_NOT_FOUND). To allow more, set max_attempts"
    )
    once = reason(is_declared=True, retry=RetryConfig(max_attempts=1))
    assert "; its only attempt is used up (max_attempts)." in once


def test_settings_over_settings() -> None:
    """Settings that are not set are taken from the others, one by one."""
    config = RetryConfig(max_attempts=2)
    declared = RetryConfig(max_attempts=5, base_delay_us=SECOND)
    assert config.over(declared) == RetryConfig(max_attempts=2, base_delay_us=SECOND)


def test_only_the_first_stale_run_is_retried_at_once() -> None:
    """The first stale execution is retried at once, later ones with backoff."""
    stale = ErrorType.STALE_EXECUTION
    assert decide_retry(error_type=stale, attempt=1, jitter=1.0) == Retry(0, 3)
    assert decide_retry(error_type=stale, attempt=2, stale_before=True) == Retry(10 * MINUTE, 3)
    assert decide_retry(error_type=stale, attempt=2) == Retry(0, 3)


def test_retry_after_is_a_minimum() -> None:
    """A requested delay lengthens the backoff, never shortens it, and is at most 30 days."""
    for asked, delay in ((MINUTE, 15 * MINUTE), (DAY, DAY), (90 * DAY, 30 * DAY)):
        decision = decide_retry(
            error_type=ErrorType.RATE_LIMIT_EXCEEDED, attempt=1, retry_after_us=asked
        )
        assert decision == Retry(delay, 5)


def test_only_a_timeout_extends_the_maximum_duration() -> None:
    """The timeout multiplier only applies to the retry of a timeout."""
    config = RetryConfig(timeout_multiplier=1.5)
    assert decide_retry(error_type="TIMEOUT", attempt=1, retry=config) == Retry(5 * MINUTE, 3, 1.5)
    assert decide_retry(error_type="UNKNOWN", attempt=1, retry=config) == Retry(5 * MINUTE, 3, 1.0)


def test_backoff_jitter_and_huge_attempts() -> None:
    """Jitter adds up to a quarter, and large attempt numbers do not overflow."""
    assert backoff(1, 5 * MINUTE, 2.0, DAY, 1.0) == 375 * SECOND
    assert backoff(3, 5 * MINUTE, 2.0, DAY, 0.0) == 20 * MINUTE
    assert backoff(10**9, 1, 2.0, DAY, 1.0) == DAY
    assert backoff(10**9, 1, 1.0, DAY, 0.0) == 1
    assert backoff(10**9, 0, 10.0, DAY, 1.0) == 0
    assert backoff(5, MINUTE, 2.0, 0, 1.0) == 0


def test_parse_reads_the_json_form() -> None:
    """The keys of the source design and the additional ones are parsed; absent ones are None."""
    parsed = RetryConfig.parse(
        {
            "max_attempts": 5,
            "base_delay_minutes": 0.5,
            "backoff_multiplier": 3,
            "max_delay_minutes": 60,
            "timeout_multiplier": 2,
        }
    )
    assert parsed == RetryConfig(
        max_attempts=5,
        base_delay_us=30 * SECOND,
        multiplier=3.0,
        max_delay_us=60 * MINUTE,
        timeout_multiplier=2.0,
    )
    assert RetryConfig.parse(None) == RetryConfig.parse({}) == RetryConfig()
    assert RetryConfig.parse({"max_attempts": None}) == RetryConfig()


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ([], "retry_config"),
        ("fast", "retry_config"),
        ({"max_attempts": 0}, "retry_config.max_attempts"),
        ({"max_attempts": 101}, "retry_config.max_attempts"),
        ({"max_attempts": 2.5}, "retry_config.max_attempts"),
        ({"max_attempts": "3"}, "retry_config.max_attempts"),
        ({"max_attempts": True}, "retry_config.max_attempts"),
        ({"base_delay_minutes": -1}, "retry_config.base_delay_minutes"),
        ({"base_delay_minutes": float("nan")}, "retry_config.base_delay_minutes"),
        ({"backoff_multiplier": 0.5}, "retry_config.backoff_multiplier"),
        ({"backoff_multiplier": float("inf")}, "retry_config.backoff_multiplier"),
        ({"max_delay_minutes": 10**400}, "retry_config.max_delay_minutes"),
        ({"timeout_multiplier": []}, "retry_config.timeout_multiplier"),
        ({"attempts": 3}, "retry_config.attempts"),
        ({7: 3}, "retry_config.7"),
    ],
)
def test_parse_names_the_key_that_is_wrong(value: object, field: str) -> None:
    """A wrong type, range or key is rejected with its full name."""
    with pytest.raises(InvalidInput) as caught:
        RetryConfig.parse(value)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("RATE_LIMIT_EXCEEDED", "RATE_LIMIT_EXCEEDED"),
        ("rate limit exceeded!", "RATE_LIMIT_EXCEEDED"),
        ("RateLimitExceeded", "RATE_LIMIT_EXCEEDED"),
        ("http-429", "HTTP_429"),
        ("", "UNKNOWN"),
        ("…", "UNKNOWN"),
        ("x" * 1000, "X" * 64),
    ],
)
def test_error_types_are_normalised(text: str, name: str) -> None:
    """Any name becomes upper snake case of at most 64 characters."""
    assert retry.normalise_error_type(text) == name
