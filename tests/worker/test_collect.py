"""Collecting: many runs in one call, each with its own end; with the worker's threads."""

import threading
from typing import Any, cast

import pytest

from penstock.audit.telemetry import RunEnded, RunStarted
from penstock.core.errors import DeclarationError
from penstock.core.stored_json import dumps, loads
from penstock.db.sqlite.store import SqliteStore
from penstock.pipelines.declare.collect import Collect, item_outcomes
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.store.runs import run_cancel_request
from penstock.testing.clock import VirtualClock
from penstock.worker.context import RunContext
from tests.worker.kit import Running, file_store, run_of, steps_of, submit, wait_set

__all__ = ["file_store"]


class Batches:
    """A collecting processor that records the sizes of its calls."""

    def __init__(self, *, runs: str = "auto", returns: Any = None, **collect: Any) -> None:
        self.sizes: list[int] = []
        self.returns = returns
        self.pipeline = Pipeline("batches")
        options: Any = {"collect": Collect(**collect), "runs": runs}
        self.pipeline.processor("load", **options)(self.load)

    def load(self, runs: list[RunContext]) -> Any:
        self.sizes.append(len(runs))
        return self.returns(runs) if callable(self.returns) else self.returns


class TestWorker:
    """With a real worker on a file."""

    def test_full_groups_start_at_once(self, store: SqliteStore) -> None:
        """Sixty runs with a concurrency of five make two calls of thirty, despite a long wait."""
        batches = Batches(max=30, wait="60s")
        ids = submit(store, batches.pipeline, 60)
        with Running(store, [batches.pipeline]) as running:
            running.events.until(RunEnded, 60)
        assert sorted(batches.sizes) == [30, 30]
        assert {run_of(store, run_id).state for run_id in ids} == {"COMPLETED"}

    def test_a_partial_group_starts_after_the_wait(self, store: SqliteStore) -> None:
        """Fewer than `max` runs start once the first has waited long enough."""
        batches = Batches(max=30, wait="200ms")
        submit(store, batches.pipeline, 7)
        with Running(store, [batches.pipeline]) as running:
            running.events.until(RunEnded, 7)
        assert sum(batches.sizes) == 7
        assert len(batches.sizes) <= 2

    def test_each_has_its_own_outcome(self, store: SqliteStore) -> None:
        """One entry per run: its result, or the exception it failed with."""
        values = [{"n": 0}, ValueError("no such table"), None]
        batches = Batches(max=3, wait="60s", returns=values)
        ids = submit(store, batches.pipeline, 3)
        with Running(store, [batches.pipeline]) as running:
            running.events.until(RunEnded, 3)
        runs = [run_of(store, run_id) for run_id in ids]
        assert [run.state for run in runs] == ["COMPLETED", "FAILED", "COMPLETED"]
        assert runs[0].result == '{"n":0}'
        assert "no such table" in (runs[1].error_details or "")

    def test_a_call_that_raises_fails_all_its_runs(self, store: SqliteStore) -> None:
        def fails(_: list[RunContext]) -> Any:
            raise OSError("disk")

        batches = Batches(max=2, wait="60s", returns=fails)
        ids = submit(store, batches.pipeline, 2)
        with Running(store, [batches.pipeline]) as running:
            running.events.until(RunEnded, 2)
        assert {run_of(store, run_id).state for run_id in ids} == {"FAILED"}

    def test_a_return_value_of_the_wrong_length(self, store: SqliteStore) -> None:
        """Entries cannot be matched to runs: all fail, and the error says why."""
        batches = Batches(max=2, wait="60s", returns=[None])
        ids = submit(store, batches.pipeline, 2)
        with Running(store, [batches.pipeline]) as running:
            running.events.until(RunEnded, 2)
        details = run_of(store, ids[0]).error_details or ""
        assert "a list of 2 outcomes" in details

    def test_async_processors_collect_too(self, store: SqliteStore) -> None:
        pipeline, sizes = Pipeline("batches"), []

        @pipeline.processor(collect=Collect(max=4, wait="60s"))
        async def load(runs: list[RunContext]) -> None:
            sizes.append(len(runs))

        submit(store, pipeline, 4)
        with Running(store, [pipeline]) as running:
            running.events.until(RunEnded, 4)
        assert sizes == [4]

    def test_a_cancel_while_gathering(self, store: SqliteStore) -> None:
        """A run that is cancelled before its call is not part of it."""
        batches = Batches(max=3, wait="60s")
        ids = submit(store, batches.pipeline, 2)
        with Running(store, [batches.pipeline], heartbeat_us=50_000) as running:
            while not running.worker.steps.held:
                running.worker.steps.clock.sleep(0.01)
            assert store.write(lambda tx: run_cancel_request(tx, ids[0], "operator"))
            store.wake(["cancel"])
            while not running.worker.steps.cancels:
                running.worker.steps.clock.sleep(0.01)
            submit(store, batches.pipeline, 1)
            running.events.until(RunEnded, 3)
        assert run_of(store, ids[0]).state == "CANCELLED"
        assert batches.sizes == [2]

    def test_a_timeout_ends_the_runs_and_the_late_return_is_ignored(
        self, store: SqliteStore
    ) -> None:
        release, done = threading.Event(), threading.Event()

        def slow(_: list[RunContext]) -> None:
            release.wait(60)
            done.set()

        batches = Batches(max=2, wait="60s", returns=slow)
        ids = submit(store, batches.pipeline, 2, max_execution_us=200_000)
        with Running(store, [batches.pipeline]) as running:
            running.events.until(RunEnded, 2)
            release.set()
            wait_set(done)
        assert {run_of(store, run_id).state for run_id in ids} == {"TIMEOUT"}

    def test_a_drain_releases_gathered_runs(self, store: SqliteStore) -> None:
        """Gathered runs that have not started are released when the worker stops, uncounted."""
        batches = Batches(max=30, wait="60s")
        ids = submit(store, batches.pipeline, 3)
        with Running(store, [batches.pipeline]) as running:
            while len(running.worker.steps.held) < 3:
                running.worker.steps.clock.sleep(0.01)
        runs = [run_of(store, run_id) for run_id in ids]
        assert [(run.state, run.attempt) for run in runs] == [("PENDING", 1)] * 3
        assert not running.events.of(RunStarted)


def test_inline_each_run_is_a_separate_call(store: SqliteStore, clock: VirtualClock) -> None:
    """Without the worker's threads (tests, demo), a collecting processor gets one run per call."""
    batches = Batches(max=30, wait="60s", returns=lambda runs: [{"n": len(runs)}])
    (run_id,) = submit(store, batches.pipeline)
    steps_of(store, batches.pipeline, clock).run_once()
    assert run_of(store, run_id).result == '{"n":1}'


class TestCollect:
    """The record and its validation."""

    def test_read_back(self) -> None:
        given = Collect(max=7, wait="250ms")
        assert loads(Collect, dumps(given)) == given
        pipeline = Pipeline("p")
        pipeline.processor("load", collect=given)(lambda _: None)
        assert pipeline.definition()["phases"][0]["processors"][0]["collect"] == {
            "max": 7,
            "wait_us": 250_000,
        }

    @pytest.mark.parametrize("given", [{"max": 0}, {"max": 1001}, {"wait": "2m"}, {"wait": "x"}])
    def test_bounds(self, given: dict[str, Any]) -> None:
        with pytest.raises(DeclarationError, match="collect"):
            Collect(**given)

    def test_only_for_functions_of_this_process(self) -> None:
        pipeline, wrong = Pipeline("p"), cast("Any", {"collect": 30})
        with pytest.raises(DeclarationError, match="collect passes several runs to one call"):
            pipeline.phase("main").external("far", collect=Collect())
        with pytest.raises(DeclarationError, match=r"takes Collect\(max=30"):
            pipeline.phase("other").processor("x", **wrong)(lambda _: None)

    def test_outcomes(self) -> None:
        error = ValueError()
        assert item_outcomes(None, 2) == [None, None]
        assert item_outcomes((1, error), 2) == [1, error]
        wrongs: list[object] = [{}, "ab", 7, [1]]
        for wrong in wrongs:
            assert all(isinstance(found, Exception) for found in item_outcomes(wrong, 2))
