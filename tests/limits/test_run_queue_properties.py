"""Queues of limits: never above capacity, all or none, no run overtaken, no run starved."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.limits.run_queue_rules import (
    ESCALATED,
    AdmissionDecision,
    FreeCapacity,
    WaitingRun,
    decide_admission,
)

LIMITS = (1, 2, 3)
NEEDS = st.dictionaries(st.sampled_from(LIMITS), st.integers(1, 4), min_size=1).map(
    lambda found: tuple(sorted(found.items()))
)


@st.composite
def halls(
    draw: st.DrawFn,
) -> tuple[dict[int, int], dict[int, int], list[WaitingRun], dict[int, int]]:
    """Capacities, what is held, the runs, and the queue each of them waits in."""
    capacities = {limit: draw(st.integers(1, 6)) for limit in LIMITS}
    held = {limit: draw(st.integers(0, capacities[limit])) for limit in LIMITS}
    needs = draw(st.lists(NEEDS, max_size=12))
    levels = [draw(st.sampled_from((5, 5, 5, ESCALATED))) for _ in needs]
    runs = [WaitingRun(n, levels[n], given) for n, given in enumerate(needs)]
    stands = {run.run_id: draw(st.sampled_from([limit for limit, _ in run.needs])) for run in runs}
    return capacities, held, runs, stands


def queues_of(runs: list[WaitingRun], stands: dict[int, int]) -> dict[int, list[WaitingRun]]:
    """The queues: escalated runs at the head of all of theirs, other runs in one queue each."""
    queues: dict[int, list[WaitingRun]] = {}
    for run in sorted(runs, key=lambda w: (-w.level, w.run_id)):
        limits = [k for k, _ in run.needs] if run.level >= ESCALATED else [stands[run.run_id]]
        for limit in limits:
            queues.setdefault(limit, []).append(run)
    return queues


def judged(
    capacities: dict[int, int], held: dict[int, int], runs: list[WaitingRun], stands: dict[int, int]
) -> AdmissionDecision:
    """Decide with the free capacity that the holders leave."""
    free = {k: FreeCapacity(free=capacities[k] - held[k], held=held[k]) for k in LIMITS}
    return decide_admission(free, queues_of(runs, stands))


@given(halls())
@settings(max_examples=300)
def test_never_more_than_fits(hall: tuple) -> None:  # type: ignore[type-arg]
    """What is let through fits beside what is held, or goes alone; each run at most once."""
    capacities, held, runs, _ = hall
    found = judged(*hall)
    ids = [w.run_id for w in found.admitted]
    assert len(ids) == len(set(ids))
    assert not set(ids) & {run_id for run_id, _, _ in found.moved}
    for limit in LIMITS:
        taken = [dict(w.needs)[limit] for w in found.admitted if limit in dict(w.needs)]
        if held[limit] + sum(taken) > capacities[limit]:
            assert held[limit] == 0
            assert len(taken) == 1
    for run_id, source, target in found.moved:
        run = next(w for w in runs if w.run_id == run_id)
        assert source != target
        assert target in dict(run.needs)


@given(halls())
@settings(max_examples=300)
def test_no_run_is_overtaken_in_a_queue(hall: tuple) -> None:  # type: ignore[type-arg]
    """All runs before an admitted one were admitted, moved, or have capacity kept for them."""
    found = judged(*hall)
    queues = queues_of(hall[2], hall[3])
    gone = {w.run_id for w in found.admitted} | {run_id for run_id, _, _ in found.moved}
    kept = {w.run_id for w in found.escalated}
    for limit, queue in queues.items():
        ordinary = [w for w in queue if w.level < ESCALATED and hall[3][w.run_id] == limit]
        goes = [w.run_id in gone for w in ordinary]
        assert goes == sorted(goes, reverse=True)
    for w in hall[2]:
        assert w.level < ESCALATED or w.run_id in gone | kept


@given(st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_an_escalated_run_is_admitted(seed: int) -> None:
    """It is admitted once the earlier holders have ended, whatever else arrives."""
    rng = random.Random(seed)
    capacities = {limit: rng.randint(1, 3) for limit in LIMITS}
    holders: list[tuple[int, tuple[tuple[int, int], ...]]] = []
    waiting = [WaitingRun(0, ESCALATED, tuple((limit, 1) for limit in LIMITS))]
    stands = {0: 1}
    for now in range(60):
        holders = [(end, needs) for end, needs in holders if end > now]
        for _ in range(3):
            limit, number = rng.choice(LIMITS), max(stands) + 1
            stands[number] = limit
            waiting.append(WaitingRun(number, 5, ((limit, 1),)))
        held = {k: sum(dict(needs).get(k, 0) for _, needs in holders) for k in LIMITS}
        found = judged(capacities, held, waiting, stands)
        for w in found.admitted:
            waiting.remove(w)
            holders.append((now + rng.randint(1, 10), w.needs))
        if not any(w.run_id == 0 for w in waiting):
            return
    raise AssertionError("it starved")
