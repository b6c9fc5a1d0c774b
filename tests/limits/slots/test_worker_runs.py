"""Slots in a worker's threads and tasks, which know their current run and its store."""

import threading

import pytest

from penstock import limits
from penstock.audit.telemetry import RunEnded
from penstock.core.current_run import CURRENT_RUN
from penstock.limits.slots.registry import broker_for_store
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.worker.context import RunContext
from tests.conftest import OpenStore
from tests.limits.slots.kit import StoredLimit, until
from tests.worker.kit import Running, run_of, submit


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("executor", ["thread", "loop"])
def test_runs_hold_slots_of_the_workers_store(open_store: OpenStore, executor: str) -> None:
    """Without `limits.use`, the slot is in the worker's store, and the run is its holder."""
    store = open_store(clock=None)
    pipeline = Pipeline("holding")
    holders: list[str] = []

    if executor == "thread":

        @pipeline.processor
        def work(_: RunContext) -> None:
            with limits.slot("x", capacity=1):
                holders.extend(StoredLimit(store, "x").holders)

    else:

        @pipeline.processor
        async def work_async(_: RunContext) -> None:
            async with limits.slot("x", capacity=1):
                holders.extend(StoredLimit(store, "x").holders)

    with Running(store, [pipeline], concurrency=2) as running:
        ids = submit(store, pipeline, 4)
        running.events.until(RunEnded, 4)
    assert {run_of(store, run_id).state for run_id in ids} == {"COMPLETED"}
    assert len(holders) == 4
    assert all(holder.startswith("run_") and holder.endswith("(acme)") for holder in holders)
    until(lambda: StoredLimit(store, "x").holders == [])
    broker_for_store(store).close()


def test_a_thread_started_by_a_processor_has_no_current_run() -> None:
    """Such a thread cannot be snoozed and does not count as the run."""
    found: list[object] = []
    token = CURRENT_RUN.set(object())  # type: ignore[arg-type]
    thread = threading.Thread(target=lambda: found.append(CURRENT_RUN.get()))
    thread.start()
    thread.join()
    CURRENT_RUN.reset(token)
    assert found == [None]
