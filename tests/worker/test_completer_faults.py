"""Ends of runs when the store fails with unexpected errors: finished work is never lost."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from penstock.core.clock import SECOND
from penstock.core.errors import SchemaMismatch, StoreError, StoreUnavailable
from penstock.db.store import Store, Tx
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.testing.clock import VirtualClock
from penstock.testing.memory import memory_store
from penstock.worker.worker_core import WorkerCore
from tests.worker.kit import run_of, steps_of, submit

T = TypeVar("T")


class Failing:
    """A store whose next writes fail with the given errors, or all of them with one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.errors: list[Exception | None] = []
        self.outage: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, body: Callable[[Tx], T]) -> T:
        error = self.errors.pop(0) if self.errors else self.outage
        if error is not None:
            raise error
        return self._store.write(body)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(1_750_000_000 * SECOND)


@pytest.fixture
def store(clock: VirtualClock) -> Iterator[Failing]:
    made = memory_store(clock)
    yield Failing(made)
    made.close()


def finished(store: Any, clock: VirtualClock, n: int) -> tuple[WorkerCore, list[int]]:
    """Return a worker with `n` completed runs that are not stored yet, and their ids."""
    pipeline = Pipeline("p")
    pipeline.processor("work")(lambda _: None)
    ids = submit(store, pipeline, n)
    steps = steps_of(store, pipeline, clock)
    for held in steps.claim_once(n):
        finish = steps.execute(held)
        assert finish is not None
        steps.ends.add([finish])
    return steps, ids


def states(store: Any, ids: list[int]) -> set[str]:
    return {run_of(store, run_id).state for run_id in ids}


@pytest.mark.parametrize("error", [RuntimeError("read-only"), SchemaMismatch("old")])
def test_a_store_that_accepts_no_ends_loses_none(
    store: Failing, clock: VirtualClock, error: Exception
) -> None:
    """After any number of attempts and any kind of error, all ends are stored in the end."""
    steps, ids = finished(store, clock, 3)
    store.outage = error
    for _ in range(5):
        with pytest.raises(StoreError):
            steps.flush_once()
        assert len(steps.ends) == 3
    store.outage = None
    assert steps.flush_once().ended == 3
    assert states(store, ids) == {"COMPLETED"}


def test_an_outage_between_single_ends(store: Failing, clock: VirtualClock) -> None:
    """Ends not stored yet are kept, including the one being written."""
    steps, ids = finished(store, clock, 3)
    store.errors = [ValueError("x"), None, None, StoreUnavailable("away")]
    with pytest.raises(StoreUnavailable):
        steps.flush_once()
    assert len(steps.ends) == 2
    assert steps.flush_once().ended == 2
    assert states(store, ids) == {"COMPLETED"}


def test_an_end_whose_replacement_fails_too_is_kept(store: Failing, clock: VirtualClock) -> None:
    """Neither the end nor its replacement is accepted: others are stored, this one is retried."""
    steps, ids = finished(store, clock, 2)
    bad = RuntimeError("no")
    store.errors = [bad, None, bad, bad, None]
    with pytest.raises(StoreUnavailable, match="1 run results are kept for a retry: no"):
        steps.flush_once()
    assert (len(steps.ends), len(steps.held)) == (1, 1)
    assert run_of(store, ids[1]).state == "COMPLETED"
    assert steps.flush_once().ended == 1
    assert (states(store, ids), steps.is_idle) == ({"COMPLETED"}, True)
