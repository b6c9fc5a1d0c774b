"""Rules of limits: grants, adaptive capacity, rates, and validation of settings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.clock import MINUTE, SECOND
from penstock.core.errors import InvalidInput
from penstock.limits.rules import (
    LimitSettings,
    check_limit_name,
    check_weight,
    effective_capacity,
    grantable_count,
    is_new_quota_error,
    lowered_capacity,
    parse_limit_settings,
    raised_capacity,
)
from penstock.limits.token_bucket import LATENESS_MAX, PARTS_PER_TOKEN, Bucket, load_bucket, take


@pytest.mark.parametrize(
    ("queue", "held", "now", "capacity", "expected"),
    [
        ([1, 1, 1], 0, 2, 2, 2),
        ([1, 1, 1], 2, 2, 2, 0),
        ([2, 1], 1, 2, 2, 0),  # the heavy head is not overtaken
        ([1, 2, 1], 0, 2, 2, 1),
        ([2, 2], 0, 4, 4, 2),
        ([1], 3, 2, 2, 0),  # after a decrease
        ([5], 0, 2, 10, 1),  # heavier than the learned capacity: granted alone
        ([5, 1], 0, 2, 10, 1),
        ([5], 1, 2, 10, 0),
        ([1], 0, 0, 0, 0),  # closed
        ([7, 9], 99, None, None, 2),  # no bound on holders
    ],
)
def test_granted(
    queue: list[int], held: int, now: int | None, capacity: int | None, expected: int
) -> None:
    """Tickets are granted in order while they fit; the first that does not fit stops the grant."""
    assert grantable_count(queue, held=held, effective=now, capacity=capacity) == expected


@given(
    st.lists(st.integers(1, 10), max_size=30),
    st.integers(0, 40),
    st.integers(1, 20),
    st.integers(1, 20),
)
def test_grants_keep_the_capacity_without_starvation(
    queue: list[int], held: int, learned: int, capacity: int
) -> None:
    """Grants never exceed the capacity, and a free limit always grants the first ticket."""
    lowered_to = min(learned, capacity)
    queue = [min(weight, capacity) for weight in queue]
    count = grantable_count(queue, held=held, effective=lowered_to, capacity=capacity)
    if count:
        assert held + sum(queue[:count]) <= capacity
        assert count == 1 or held + sum(queue[:count]) <= max(lowered_to, queue[0])
    if queue and held == 0:
        assert count >= 1


@pytest.mark.parametrize(
    ("capacity", "learned", "floor", "adaptive", "expected"),
    [
        (10, None, 1, True, 10),
        (10, 4.9, 1, True, 4),
        (10, 4.9, 1, False, 10),
        (10, 0.3, 2, True, 2),
        (3, 7.0, 1, True, 3),
        (1, 0.5, 5, True, 1),
        (None, 4.0, 1, True, None),
    ],
)
def test_effective_capacity(
    capacity: int | None, learned: float | None, floor: int, adaptive: bool, expected: int | None
) -> None:
    """The effective capacity is within bounds; only adaptive limits use the learned one."""
    assert effective_capacity(capacity, learned, floor, is_adaptive=adaptive) == expected


def test_quota_errors_of_one_overload_count_once() -> None:
    """Errors of holders granted before the capacity was lowered are ignored."""
    assert is_new_quota_error(100, since_at=50, lowered_at=None)
    assert not is_new_quota_error(100, since_at=50, lowered_at=60)
    assert is_new_quota_error(100, since_at=60, lowered_at=60)
    assert not is_new_quota_error(SECOND, since_at=None, lowered_at=1)
    assert is_new_quota_error(SECOND + 1, since_at=None, lowered_at=1)


@given(
    st.integers(1, 100),
    st.integers(1, 20),
    st.lists(st.one_of(st.none(), st.integers(1, 40)), max_size=60),
)
def test_learned_capacity_stays_between_floor_and_capacity(
    capacity: int, floor: int, history: list[int | None]
) -> None:
    """After any history, the learned capacity is between the floor and the capacity."""
    learned: float | None = None
    for event in history:
        before = learned
        if event is None:
            learned = lowered_capacity(capacity, learned, floor)
            assert before is None or learned <= max(before, min(floor, capacity))
        elif learned is not None:
            learned = raised_capacity(capacity, learned, floor, event)
            assert learned is None or before is None or learned >= before
        if learned is not None:
            assert min(floor, capacity) <= learned <= capacity


def test_a_full_epoch_of_successes_adds_one() -> None:
    """Additive increase: one full epoch of successes adds one; None at the configured capacity."""
    assert raised_capacity(10, 4.0, 1, 4) == 5.0
    assert raised_capacity(10, 4.0, 1, 2) == 4.5
    assert raised_capacity(10, 9.0, 1, 9) is None
    assert lowered_capacity(10, None, 1) == 5.0
    assert lowered_capacity(10, 5.0, 4) == 4.0


def _check_windows(used: list[tuple[int, int]], burst: int, rate_micro: int) -> None:
    for first in range(len(used)):
        total = 0
        for last in range(first, len(used)):
            total += used[last][1]
            # Times are in whole microseconds, so a window may be short by less than one.
            window = used[last][0] - used[first][0] + 1
            assert total * PARTS_PER_TOKEN <= burst * PARTS_PER_TOKEN + rate_micro * window


class TestBucket:
    """Token buckets with integer arithmetic."""

    @given(
        st.floats(0.01, 10_000, allow_nan=False),
        st.integers(1, 50),
        st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(1, 5)), max_size=60),
        st.data(),
    )
    def test_no_window_has_more_than_burst_and_rate(
        self, rate: float, burst: int, asks: list[tuple[int, int]], chance: st.DataObject
    ) -> None:
        """A window of length t never has more than burst + rate × t tokens; the order is kept.

        If the tokens that accrue during the permitted lateness are a whole number, this holds even
        if some tokens are used late.
        """
        bucket = load_bucket(rate, burst, None, None, 0)
        now, used = 0, []
        lateness = chance.draw(st.lists(st.integers(0, LATENESS_MAX), min_size=60, max_size=60))
        for gap, n in asks:
            now += gap
            count = min(n, burst)
            taken = take(bucket, count, now)
            assert taken is not None
            bucket, wait = taken
            used.append((now + wait, count))
        assert [at for at, _ in used] == sorted(at for at, _ in used)
        _check_windows(used, burst, bucket.parts_per_us)
        if rate * LATENESS_MAX % SECOND == 0 and rate * LATENESS_MAX / SECOND < burst:
            late = [(at + more, n) for (at, n), more in zip(used, lateness, strict=False)]
            _check_windows(sorted(late), burst, bucket.parts_per_us)

    def test_late_use_keeps_to_the_burst(self) -> None:
        """A rate of 100 per second, used up to 50 ms late, stays within the burst of 20."""
        bucket = load_bucket(100.0, 20, None, None, 0)
        used = []
        for number in range(200):
            taken = take(bucket, 1, 0)
            assert taken is not None
            bucket, wait = taken
            used.append((wait + (LATENESS_MAX if number % 3 == 0 else 0), 1))
        _check_windows(sorted(used), 20, bucket.parts_per_us)
        on_time = sum(1 for at, _ in used if at == 0)
        assert on_time + sum(1 for at, _ in used if at == LATENESS_MAX) >= 15

    def test_nothing_is_lost_by_rounding(self) -> None:
        """A rate of 3 per second grants exactly 3,000 tokens in 1,000 seconds."""
        bucket = Bucket(3_000_000, 1, 0, 0)
        for second in range(1, 1_001):
            for _ in range(3):
                taken = take(bucket, 1, second * SECOND)
                assert taken is not None
                bucket, wait = taken
        assert wait == 666_667  # the third token of a second waits two thirds of it
        assert bucket.level == -2 * PARTS_PER_TOKEN

    def test_a_clock_set_back_adds_no_tokens(self) -> None:
        """A clock that is set back neither adds tokens nor shortens a wait."""
        bucket = Bucket(1_000_000, 1, 0, 10 * SECOND)
        taken = take(bucket, 1, 4 * SECOND)
        assert taken is not None
        assert taken[1] == 7 * SECOND
        assert taken[0].at == 10 * SECOND

    def test_a_wait_that_is_too_long_takes_nothing(self) -> None:
        """If the wait would exceed the maximum, the bucket is not changed."""
        bucket = Bucket(1_000_000, 2, 0, 0)
        assert take(bucket, 2, 0, SECOND) is None
        taken = take(bucket, 2, 0, 2 * SECOND)
        assert taken is not None
        assert taken[1] == 2 * SECOND


class TestSettings:
    """Validation of settings."""

    @pytest.mark.parametrize("name", ["bq:nba_raw.br_rosters", "a", "crm/eu", "9", "x" * 200])
    def test_names(self, name: str) -> None:
        assert check_limit_name(name) == name

    @pytest.mark.parametrize("name", ["", " a", "a b", "-a", "x" * 201, "é", "a\n", None, 7])
    def test_invalid_names(self, name: object) -> None:
        with pytest.raises(InvalidInput, match="limit: expected"):
            check_limit_name(name)

    @pytest.mark.parametrize(
        ("given_terms", "field"),
        [
            ({"capacity": -1}, "capacity"),
            ({"capacity": True}, "capacity"),
            ({"capacity": 1.5}, "capacity"),
            ({"capacity": None}, "capacity"),
            ({"floor": 0}, "floor"),
            ({"lease": "0.5s"}, "lease"),
            ({"lease": "2d"}, "lease"),
            ({"grace": "2d"}, "grace"),
            ({"rate": 0}, "rate"),
            ({"rate": float("nan")}, "rate"),
            ({"burst": 5}, "burst"),
            ({"rate": 5, "burst": 0}, "burst"),
            ({"capacity": None, "rate": 5, "adaptive": True}, "adaptive"),
            ({"adaptive": "yes"}, "adaptive"),
            ({"capasity": 5}, "capasity"),
        ],
    )
    def test_invalid_terms(self, given_terms: dict[str, object], field: str) -> None:
        with pytest.raises(InvalidInput) as caught:
            parse_limit_settings(given_terms)
        assert caught.value.field == field

    def test_terms(self) -> None:
        """Settings as users write them are applied over existing ones."""
        terms = parse_limit_settings({"capacity": 3, "lease": "5m", "adaptive": True, "rate": 2.5})
        assert terms == LimitSettings(capacity=3, lease_us=5 * MINUTE, is_adaptive=True, rate=2.5)
        assert terms.burst_now == 2
        assert parse_limit_settings({"capacity": 4}, terms).lease_us == 5 * MINUTE

    def test_weights(self) -> None:
        assert check_weight(3, 3, "x") == 3
        assert check_weight(3, 0, "x") == 3
        for weight in (0, -1, True, 1.0, 4):
            with pytest.raises(InvalidInput, match="weight"):
                check_weight(weight, 3, "x")
