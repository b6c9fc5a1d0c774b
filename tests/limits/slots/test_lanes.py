"""Slots in a worker's lanes: threads and tasks know the run they execute, and its store."""

import threading

import pytest

from penstock import limits
from penstock.audit.telemetry import RunEnded
from penstock.core.current_run import PRESENT
from penstock.limits.slots.registry import broker_of
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.worker.context import RunContext
from tests.conftest import OpenStore
from tests.limits.slots.kit import Sight, until
from tests.worker.kit import Running, run_of, submit


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("lane", ["thread", "loop"])
def test_runs_hold_slots_of_the_workers_store(open_store: OpenStore, lane: str) -> None:
    """Without `limits.use`, the slot is in the worker's store, and the run is named as holder."""
    store = open_store(clock=None)
    pipeline = Pipeline("laned")
    holders: list[str] = []

    if lane == "thread":

        @pipeline.processor
        def work(_: RunContext) -> None:
            with limits.slot("x", capacity=1):
                holders.extend(Sight(store, "x").holders)

    else:

        @pipeline.processor
        async def work_async(_: RunContext) -> None:
            async with limits.slot("x", capacity=1):
                holders.extend(Sight(store, "x").holders)

    with Running(store, [pipeline], slots=2) as running:
        ids = submit(store, pipeline, 4)
        running.heard.until(RunEnded, 4)
    assert {run_of(store, run_id).state for run_id in ids} == {"COMPLETED"}
    assert len(holders) == 4
    assert all(holder.startswith("run_") and holder.endswith("(acme)") for holder in holders)
    until(lambda: Sight(store, "x").holders == [])
    broker_of(store).close()


def test_a_thread_of_a_processor_is_in_no_run() -> None:
    """What a processor starts by itself cannot be snoozed, and is not taken for the run."""
    found: list[object] = []
    token = PRESENT.set(object())  # type: ignore[arg-type]
    thread = threading.Thread(target=lambda: found.append(PRESENT.get()))
    thread.start()
    thread.join()
    PRESENT.reset(token)
    assert found == [None]
