"""The breaker of a phase: consecutive failures of any kind open it; one probe closes it."""

from __future__ import annotations

import pytest

from penstock.core.clock import HOUR, MINUTE
from penstock.db.store import Store
from penstock.runs.states import RunStatus
from penstock.testing.clock import VirtualClock
from tests.kits.flows import Stage, chain


@pytest.fixture
def stage(store: Store, clock: VirtualClock) -> Stage:
    """A pipeline whose first phase failed in five consecutive generations."""
    made = Stage(store, clock, chain("raw", "analytics"))
    for _ in range(5):
        made.open(force=True)
        assert made.kill("raw_job") == 1
        made.step()
    return made


def failures(stage: Stage) -> list[tuple[int, bool]]:
    """Return (consecutive failures, whether it is open) of the breakers."""
    rows = stage.sql("SELECT failures, opened_at FROM breakers WHERE phase = 'raw'")
    return [(row[0], row[1] is not None) for row in rows]


def test_dead_runs_open_it(stage: Stage) -> None:
    """A gate that proceeds is not a success: the outcome of the runs counts."""
    assert failures(stage) == [(5, True)]
    blocked = stage.open(force=True, keep_older=True)
    assert (blocked.run_ids, stage.states(blocked)["raw"]) == ((), "BLOCKED")


def test_the_probe_fails(stage: Stage, clock: VirtualClock) -> None:
    """After an hour one waiting flow is tried; if it fails, another hour begins."""
    waiting = [stage.open(force=True, keep_older=True) for _ in range(2)]
    clock.advance(HOUR + MINUTE)
    assert stage.step().triggers == 1, "a single probe"
    stage.kill("raw_job")
    stage.step()
    assert failures(stage) == [(6, True)]
    clock.advance(59 * MINUTE)
    assert stage.step().triggers == 0
    assert [stage.states(flow)["raw"] for flow in waiting].count("BLOCKED") == 1


@pytest.mark.parametrize("status", [RunStatus.SUCCESS, RunStatus.PARTIAL_SUCCESS])
def test_the_probe_completes(stage: Stage, clock: VirtualClock, status: RunStatus) -> None:
    """When the probe completes, the breaker closes and the waiting flows start."""
    waiting = [stage.open(force=True, keep_older=True) for _ in range(2)]
    clock.advance(HOUR + MINUTE)
    stage.step()
    assert stage.complete("raw_job", status=status) == 1
    stage.step()
    assert failures(stage) == [(0, False)]
    assert "BLOCKED" not in {stage.states(flow)["raw"] for flow in waiting}


def test_a_success_resets_the_failures(store: Store, clock: VirtualClock) -> None:
    """Only consecutive failures count: a phase that completes resets them."""
    stage = Stage(store, clock, chain("raw", "analytics"))
    for _ in range(4):
        stage.open(force=True, keep_older=True)
        stage.kill("raw_job")
    stage.step()
    assert failures(stage) == [(4, False)], "all failures of one step are counted"
    stage.open(force=True, keep_older=True)
    stage.complete("raw_job")
    stage.step()
    assert failures(stage) == [(0, False)]
