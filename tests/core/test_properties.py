"""Properties of small rules: states, retries, ids, durations and service levels."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core import clock, ids, retry
from penstock.core.clock import DAY
from penstock.core.errors import InvalidInput
from penstock.core.retry import ATTEMPTS_MAX, ErrorType, NoRetry, Retry, RetryConfig
from penstock.runs import states
from penstock.runs.states import RunState
from tests.kits.run_states import path_is_legal

JITTERS = st.floats(0, 1)
DELAYS = st.integers(0, 30 * DAY)
CONFIGS = st.none() | st.builds(
    RetryConfig,
    max_attempts=st.none() | st.integers(1, ATTEMPTS_MAX),
    base_delay_us=st.none() | DELAYS,
    multiplier=st.none() | st.floats(1, 10),
    max_delay_us=st.none() | DELAYS,
    timeout_multiplier=st.none() | st.floats(1, 10),
)
ERROR_TYPES = st.sampled_from(list(ErrorType)) | st.text(max_size=20)


@given(st.lists(st.sampled_from(list(RunState)), max_size=12))
def test_every_path_uses_legal_transitions_only(targets: list[RunState]) -> None:
    """Any sequence of legal transitions is a legal path, and no path leaves a final state."""
    path = [RunState.PENDING]
    for target in targets:
        if target in states.TRANSITIONS[path[-1]]:
            assert path[-1] not in states.TERMINAL
            states.check(path[-1], target, 1)
            path.append(target)
    assert path_is_legal(path)
    assert all(state in states.LIVE for state in path[:-1])


@given(st.integers(1, 10**9), DELAYS, st.floats(1, 10), DELAYS, JITTERS)
@example(1025, 1, 2.0, 30 * DAY, 1.0)
def test_backoff_is_bounded_and_grows(
    attempt: int, base: int, multiplier: float, cap: int, jitter: float
) -> None:
    """A delay is between 0 and the cap, and grows with the attempt and the jitter."""
    delay = retry.backoff(attempt, base, multiplier, cap, jitter)
    assert 0 <= delay <= cap
    assert delay >= min(base, cap)
    assert delay <= retry.backoff(attempt + 1, base, multiplier, cap, jitter)
    plain = retry.backoff(attempt, base, multiplier, cap, 0.0)
    assert plain <= delay <= math.ceil(plain * 1.25) + 1 or delay == cap


@given(
    st.lists(st.tuples(ERROR_TYPES, st.sampled_from([None, True, False]), JITTERS), min_size=101,
             max_size=101),
    CONFIGS,
    st.none() | st.integers(0, 365 * DAY),
)  # fmt: skip
def test_a_chain_of_failures_ends(
    failures: list[tuple[str, bool | None, float]],
    config: RetryConfig | None,
    requested: int | None,
) -> None:
    """No chain exceeds its attempts; delays honour retry_after and stay within 30 days."""
    stale_before = False
    for attempt, (error_type, force_retry, jitter) in enumerate(failures, start=1):
        decision = retry.decide_retry(
            error_type=error_type,
            attempt=attempt,
            retry=config,
            stale_before=stale_before,
            force_retry=force_retry,
            jitter=jitter,
            retry_after_us=requested,
        )
        if isinstance(decision, NoRetry):
            assert decision.reason
            return
        assert isinstance(decision, Retry)
        assert attempt < decision.max_attempts <= ATTEMPTS_MAX
        if config is not None and config.max_attempts is not None:
            assert decision.max_attempts == config.max_attempts
        assert min(requested or 0, 30 * DAY) <= decision.delay_us <= 30 * DAY
        assert decision.timeout_multiplier >= 1
        stale_before = stale_before or error_type == ErrorType.STALE_EXECUTION
    raise AssertionError("the chain of failures did not end")


@given(st.text())
def test_error_types_are_stable_under_normalisation(text: str) -> None:
    """Normalising twice changes nothing, and the result is always valid."""
    name = retry.normalise_error_type(text)
    assert 1 <= len(name) <= 64
    assert retry.normalise_error_type(name) == name


KINDS = st.sampled_from(sorted(ids.KINDS))
NUMBERS = st.integers(0, ids.ID_MAX) | st.integers(0, 2**40 + 10) | st.integers(0, 1000)


@given(KINDS, NUMBERS)
@example("run", 2**40 - 1)
@example("run", 2**40)
def test_ids_are_bijective(kind: str, n: int) -> None:
    """Decoding reverses encoding, in lower and upper case."""
    text = ids.encode(kind, n)
    assert len(text) == len(kind) + 1 + (8 if n < 2**40 else 13)
    assert ids.decode(kind, text) == ids.decode(kind, text.upper()) == n


@given(KINDS, NUMBERS, NUMBERS)
def test_different_numbers_have_different_ids(kind: str, one: int, other: int) -> None:
    """No two numbers share an id."""
    assert (ids.encode(kind, one) == ids.encode(kind, other)) is (one == other)


@given(KINDS, st.text("0123456789abcdefghjkmnpqrstvwxyz", min_size=7, max_size=14))
def test_every_accepted_id_is_canonical(kind: str, body: str) -> None:
    """Each number has exactly one accepted id."""
    text = f"{kind}_{body}"
    try:
        n = ids.decode(kind, text)
    except InvalidInput:
        assert len(body) != 8
    else:
        assert ids.encode(kind, n) == text


@given(st.text() | st.integers() | st.none())
def test_any_text_is_decoded_or_rejected(text: object) -> None:
    """Anything but an id is rejected with InvalidInput."""
    try:
        ids.decode("run", text)
    except InvalidInput as error:
        if error.field != "run_id":
            raise


@given(st.integers() | st.text())
def test_stable_fraction_is_a_fraction(key: int | str) -> None:
    """Any key yields the same number in [0, 1) each time."""
    if isinstance(key, str):
        key = key.encode(errors="replace").decode()
    assert 0 <= ids.stable_fraction(key) < 1
    assert ids.stable_fraction(key) == ids.stable_fraction(key)


@given(st.integers(0, clock.DURATION_MAX))
def test_durations_round_trip(micros: int) -> None:
    """A formatted duration parses to the same value."""
    assert clock.parse_duration(clock.format_duration(micros)) == micros


@given(st.integers(-(10**15), 10**17))
def test_times_round_trip(micros: int) -> None:
    """ISO text and datetimes lose nothing."""
    assert clock.parse_iso(clock.iso(micros)) == micros
    assert clock.from_datetime(clock.to_datetime(micros)) == micros


@given(st.text(max_size=80))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    """Text is parsed as a time or duration, or rejected with InvalidInput."""
    for reader in (clock.parse_iso, clock.parse_duration):
        try:
            reader(text)
        except InvalidInput as error:
            if error.field not in ("time", "duration"):
                raise
