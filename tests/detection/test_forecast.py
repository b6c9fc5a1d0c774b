"""Forecasts on recorded synthetic histories: calibrated, and a warning comes before a miss."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import pytest

from penstock import Pipeline
from penstock.core.clock import DAY, MINUTE
from penstock.flows.forecast.forecast import (
    RISK_AT,
    FlowSample,
    Frontier,
    History,
    PhaseTime,
    forecast,
    frontier_of,
    is_safe,
)
from penstock.runs.durations import quantile, remaining
from tests.kits.flows import work

SLO = 110 * MINUTE


def diamond() -> Pipeline:
    """`raw`, then `left` and `right`, then `last`."""
    made = Pipeline("diamond")
    raw = made.phase("raw")
    raw.processor("a")(work)
    left, right = made.phase("left", after=raw), made.phase("right", after=raw)
    left.processor("b")(work)
    right.processor("c")(work)
    made.phase("last", after=[left, right]).processor("d")(work)
    return made


PLAN = diamond().plan("daily")


def past(rng: random.Random, day: int) -> dict[str, PhaseTime]:
    """A flow whose phases are slow together, and slower at weekends."""
    load = rng.lognormvariate(0, 0.25) * (1.5 if day % 7 >= 5 else 1.0)

    def took(minutes: int, spread: float) -> int:
        return int(minutes * MINUTE * load * rng.lognormvariate(0, spread))

    start = day * DAY
    raw = start + took(20, 0.2)
    left, right = raw + took(30, 0.3), raw + took(25, 0.4)
    both = max(left, right)
    return {
        "raw": PhaseTime(start, raw), "left": PhaseTime(raw, left), "right": PhaseTime(raw, right),
        "last": PhaseTime(both, both + took(15, 0.3)),
    }  # fmt: skip


def open_phases(flow: Mapping[str, PhaseTime], now: int, opened_at: int) -> list[Frontier]:
    """What is next or in progress in a flow at a time."""
    ended = {name: own.ended_at for name, own in flow.items() if own.ended_at <= now}
    states = {name: ("COMPLETE" if name in ended else "PENDING", ended.get(name)) for name in flow}
    return frontier_of(PLAN, states, opened_at)


def test_calibration_and_warnings() -> None:
    """P90 covers 85 to 95 % of actual ends from any point; 90 % of misses are warned of before."""
    rng = random.Random(20251116)
    days = [past(rng, day) for day in range(400)]
    covered: Counter[int] = Counter()
    total: Counter[int] = Counter()
    misses = warned = 0
    for day in range(120, 400):
        flow, start = days[day], day * DAY
        samples = [FlowSample(weekday=d % 7, phases=days[d]) for d in range(day - 90, day)]
        history, end = History(PLAN, samples), flow["last"].ended_at
        warned_at = None
        for minute in range(0, 400, 5):
            now = start + minute * MINUTE
            if now >= end:
                break
            phases = open_phases(flow, now, start)
            about = {"now": now, "weekday": day % 7, "target_at": start + SLO}
            seen = forecast(history, phases, **about)
            assert seen is not None
            assert seen.miss is not None
            assert seen.p50_at <= seen.p90_at
            if len(phases) == 1 and is_safe(history, phases, **about):
                assert seen.miss == 0
            if minute in (0, 30, 60):
                total[minute] += 1
                covered[minute] += end <= seen.p90_at
            if seen.miss >= RISK_AT and warned_at is None:
                warned_at = now
        if end > start + SLO:
            misses += 1
            warned += warned_at is not None and warned_at < start + SLO
    shares = {minute: covered[minute] / total[minute] for minute in total}
    assert all(0.85 <= share <= 0.95 for share in shares.values()), shares
    assert misses >= 40
    assert warned >= 0.9 * misses, (warned, misses)


def test_weekdays() -> None:
    """Enough samples of the same weekday are used alone; otherwise all are."""
    fast = [FlowSample(weekday=0, phases=_uniform(10)) for _ in range(20)]
    slow = [FlowSample(weekday=6, phases=_uniform(30)) for _ in range(8)]
    start = [Frontier("raw", 0)]
    about = {"now": 0, "target_at": 60 * MINUTE}
    sunday = forecast(History(PLAN, [*fast, *slow]), start, weekday=6, **about)
    assert sunday is not None
    assert (sunday.is_weekday, sunday.p50_at, sunday.miss) == (True, 90 * MINUTE, 1.0)
    few = forecast(History(PLAN, [*fast, *slow[:4]]), start, weekday=6, **about)
    assert few is not None
    assert (few.is_weekday, few.samples, few.p50_at) == (False, 24, 30 * MINUTE)
    assert forecast(History(PLAN, fast[:4]), start, weekday=0, **about) is None, "too few"
    assert forecast(History(PLAN, fast), [], weekday=0, **about) is None, "nothing is left"


def test_slower_than_ever() -> None:
    """A phase that takes longer than in every sample is expected to take a quarter more."""
    history = History(PLAN, [FlowSample(weekday=0, phases=_uniform(10)) for _ in range(10)])
    now = 40 * MINUTE
    seen = forecast(history, [Frontier("raw", 0)], now=now, weekday=0, target_at=now + MINUTE)
    assert seen is not None
    assert (seen.p50_at, seen.miss) == (now + 30 * MINUTE, 1.0)
    assert not is_safe(history, [Frontier("raw", 0)], now=now, weekday=0, target_at=now * 9)


@pytest.mark.parametrize(
    ("durations", "elapsed", "share", "expected"),
    [
        ([10] * 4, 0, 0.5, None),
        (list(range(1, 11)), 0, 0.5, 6),
        (list(range(1, 11)), 5, 0.5, 3),
        (list(range(1, 11)), 0, 0.9, 10),
        ([10] * 5, 100, 0.9, 25),
    ],
)
def test_remaining(durations: list[int], elapsed: int, share: float, expected: int | None) -> None:
    """What is left of a run, given that it has taken some time already."""
    assert remaining(durations, elapsed, share) == expected


def test_quantile() -> None:
    """The value that a further one stays below with a probability, also of few values."""
    assert [quantile([1, 2, 3], share) for share in (0.0, 0.5, 0.9)] == [1, 2, 3]


def _uniform(minutes: int) -> dict[str, PhaseTime]:
    one = minutes * MINUTE
    return {
        "raw": PhaseTime(0, one), "left": PhaseTime(one, 2 * one), "right": PhaseTime(one, 2 * one),
        "last": PhaseTime(2 * one, 3 * one),
    }  # fmt: skip
