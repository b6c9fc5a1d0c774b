"""Recorders of usage and service levels against each other and late commits, by statement."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from penstock.core.clock import DAY, HOUR, MINUTE, SECOND, Micros
from penstock.db.store import Store, Tx
from penstock.runs import attempt_result
from penstock.runs.store.finish import run_end_many
from penstock.slos.store import committed_until, position_set, runs_fold
from penstock.usage.store import usage_fold
from tests.harness.interleaving import Outcome, explore
from tests.interleaving.stage import Stage, finish_act
from tests.interleaving.test_seeded_bugs import patched

pytestmark = pytest.mark.postgres

SUMS = {
    "usage": "SELECT coalesce(sum(runs), 0) FROM usage_days WHERE pipeline > 0 AND customer = 0",
    "slos": "SELECT coalesce(sum(good), 0) FROM slo_hours "
    "WHERE measure = 'failures' AND customer = 0",
}


def slo_fold(tx: Tx) -> bool:
    """Fold as the recorder does."""
    return runs_fold(tx, "slo_runs_to", lag_us=30 * SECOND, window_us=28 * DAY)


FOLDS: dict[str, Callable[[Tx], bool]] = {"usage": usage_fold, "slos": slo_fold}


def folded(fold: Callable[[Tx], bool]) -> Callable[[Store], object]:
    """Return an act that folds everything."""

    def act(store: Store) -> None:
        while store.write(fold):
            pass

    return act


def meanwhile(call: Callable[[], object]) -> None:
    """Run a call in another thread, whose transactions are others, and wait for it."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def empty(stage: Stage) -> None:
    """Forget all runs, sums and positions."""
    stage.empty()
    for table in ("usage_days", "pool_minutes", "slo_hours", "slo_results", "counters"):
        stage.sql(f"DELETE FROM {table}")


@pytest.mark.parametrize("about", sorted(FOLDS))
def test_two_processes_that_catch_up(stage: Stage, about: str) -> None:
    """Each run is counted once, also if no position is stored yet."""

    def scene():  # type: ignore[no-untyped-def]
        empty(stage)
        for _ in range(2):
            stage.submit(1)
            finish_act(stage.claim(stage.session(), start=True))(stage.store)
            stage.clock.advance(2 * HOUR)

        def check(outcomes: list[Outcome]) -> None:
            assert [one.error for one in outcomes] == [None, None]
            assert stage.value(SUMS[about]) == 2

        return [folded(FOLDS[about])] * 2, check

    assert explore(stage.arena, scene, range(20)) > 5


@pytest.mark.parametrize("about", sorted(FOLDS))
def test_a_commit_that_is_later_than_the_lag(stage: Stage, about: str) -> None:
    """A run whose transaction is still open when its time is folded is counted afterwards."""
    empty(stage)
    stage.submit(1)
    ends = [attempt_result.completed_result(run)
            for run in stage.claim(stage.session(), start=True)]  # fmt: skip
    fold = folded(FOLDS[about])

    def late(tx: Tx) -> None:
        run_end_many(tx, ends)
        stage.clock.advance(MINUTE)
        meanwhile(lambda: fold(stage.store))
        assert stage.value(SUMS[about]) == 0

    age = ("clock_timestamp() - a.xact_start", "interval '60 seconds'")  # of the virtual clock
    with patched("slo_oldest_writer", age):
        stage.store.write(late)
        stage.clock.advance(MINUTE)
        fold(stage.store)
    assert stage.value(SUMS[about]) == 1


def test_the_age_of_the_oldest_writer(stage: Stage) -> None:
    """An open transaction that writes moves the end of what is committed; a reader does not."""
    empty(stage)
    late: list[Micros] = []

    def end(tx: Tx) -> Micros:
        return tx.now() - committed_until(tx, SECOND)

    def behind(tx: Tx, *, writes: bool) -> None:
        if writes:
            position_set(tx, "x", 1)
        assert tx.now()
        meanwhile(lambda: late.append(stage.store.write(end)))

    stage.store.read(lambda tx: behind(tx, writes=False))
    stage.store.write(lambda tx: behind(tx, writes=True))
    assert late[0] == SECOND < late[1] < 10 * MINUTE
