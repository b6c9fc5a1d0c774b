"""Collecting: many runs in one call, each with its own end; with the worker's threads."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.core.collect import Collect, each
from penstock.core.errors import DeclarationError
from penstock.core.pipeline import Pipeline
from penstock.core.record import dumps, loads
from penstock.engine.context import RunContext
from penstock.events import RunEnded, RunStarted
from penstock.store.runs import run_cancel_ask
from penstock.store.sqlite import SqliteStore
from penstock.testing.clock import VirtualClock
from tests.unit.engine.worker_kit import Running, reached, run_of, steps_of, submit


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path / "test.db")
    made.migrate()
    yield made
    made.close()


class Batches:
    """A collecting processor that remembers its calls."""

    def __init__(self, *, runs: str = "auto", answer: Any = None, **collect: Any) -> None:
        self.sizes: list[int] = []
        self.answer = answer
        self.pipeline = Pipeline("batches")
        options: Any = {"collect": Collect(**collect), "runs": runs}
        self.pipeline.processor("load", **options)(self.load)

    def load(self, runs: list[RunContext]) -> Any:
        self.sizes.append(len(runs))
        return self.answer(runs) if callable(self.answer) else self.answer


class TestWorker:
    """With a real worker on a file."""

    def test_full_groups_begin_at_once(self, store: SqliteStore) -> None:
        """Sixty runs behind five slots are two calls of thirty, though the wait is long."""
        batches = Batches(max=30, wait="60s")
        ids = submit(store, batches.pipeline, 60)
        with Running(store, [batches.pipeline]) as running:
            running.heard.until(RunEnded, 60)
        assert sorted(batches.sizes) == [30, 30]
        assert {run_of(store, run_id).state for run_id in ids} == {"COMPLETED"}

    def test_the_first_waits_for_the_rest_so_long(self, store: SqliteStore) -> None:
        """Fewer than `max` begin when the first has waited."""
        batches = Batches(max=30, wait="200ms")
        submit(store, batches.pipeline, 7)
        with Running(store, [batches.pipeline]) as running:
            running.heard.until(RunEnded, 7)
        assert sum(batches.sizes) == 7
        assert len(batches.sizes) <= 2

    def test_each_has_its_own_outcome(self, store: SqliteStore) -> None:
        """One entry per run: a value to keep, or the exception it failed with."""
        answers = [{"n": 0}, ValueError("no such table"), None]
        batches = Batches(max=3, wait="60s", answer=answers)
        ids = submit(store, batches.pipeline, 3)
        with Running(store, [batches.pipeline]) as running:
            running.heard.until(RunEnded, 3)
        runs = [run_of(store, run_id) for run_id in ids]
        assert [run.state for run in runs] == ["COMPLETED", "FAILED", "COMPLETED"]
        assert runs[0].result == '{"n":0}'
        assert "no such table" in (runs[1].error_details or "")

    def test_a_call_that_raises_has_failed_for_all(self, store: SqliteStore) -> None:
        def fails(_: list[RunContext]) -> Any:
            raise OSError("disk")

        batches = Batches(max=2, wait="60s", answer=fails)
        ids = submit(store, batches.pipeline, 2)
        with Running(store, [batches.pipeline]) as running:
            running.heard.until(RunEnded, 2)
        assert {run_of(store, run_id).state for run_id in ids} == {"FAILED"}

    def test_an_answer_of_the_wrong_length(self, store: SqliteStore) -> None:
        """Nobody can tell whose entries they are: all fail, and it is said why."""
        batches = Batches(max=2, wait="60s", answer=[None])
        ids = submit(store, batches.pipeline, 2)
        with Running(store, [batches.pipeline]) as running:
            running.heard.until(RunEnded, 2)
        details = run_of(store, ids[0]).error_details or ""
        assert "a list of 2 outcomes" in details

    def test_async_processors_collect_too(self, store: SqliteStore) -> None:
        pipeline, sizes = Pipeline("batches"), []

        @pipeline.processor(collect=Collect(max=4, wait="60s"))
        async def load(runs: list[RunContext]) -> None:
            sizes.append(len(runs))

        submit(store, pipeline, 4)
        with Running(store, [pipeline]) as running:
            running.heard.until(RunEnded, 4)
        assert sizes == [4]

    def test_a_cancel_while_gathering(self, store: SqliteStore) -> None:
        """A run that is cancelled before its call is not in it."""
        batches = Batches(max=3, wait="60s")
        ids = submit(store, batches.pipeline, 2)
        with Running(store, [batches.pipeline], beat_us=50_000) as running:
            while not running.worker.steps.held:
                running.worker.steps.clock.sleep(0.01)
            assert store.write(lambda tx: run_cancel_ask(tx, ids[0], "operator"))
            store.wake(["cancel"])
            while not running.worker.steps._cancels:
                running.worker.steps.clock.sleep(0.01)
            submit(store, batches.pipeline, 1)
            running.heard.until(RunEnded, 3)
        assert run_of(store, ids[0]).state == "CANCELLED"
        assert batches.sizes == [2]

    def test_a_time_out_ends_the_runs_and_the_late_answer_counts_no_more(
        self, store: SqliteStore
    ) -> None:
        release, done = threading.Event(), threading.Event()

        def slow(_: list[RunContext]) -> None:
            release.wait(20.0)
            done.set()

        batches = Batches(max=2, wait="60s", answer=slow)
        ids = submit(store, batches.pipeline, 2, max_execution_us=200_000)
        with Running(store, [batches.pipeline]) as running:
            running.heard.until(RunEnded, 2)
            release.set()
            reached(done)
        assert {run_of(store, run_id).state for run_id in ids} == {"TIMEOUT"}

    def test_a_drain_gives_gathered_runs_back(self, store: SqliteStore) -> None:
        """What waits for company when the worker stops is queued again, no attempt counted."""
        batches = Batches(max=30, wait="60s")
        ids = submit(store, batches.pipeline, 3)
        with Running(store, [batches.pipeline]) as running:
            while len(running.worker.steps.held) < 3:
                running.worker.steps.clock.sleep(0.01)
        runs = [run_of(store, run_id) for run_id in ids]
        assert [(run.state, run.attempt) for run in runs] == [("PENDING", 1)] * 3
        assert not running.heard.of(RunStarted)


def test_inline_each_is_a_call_of_its_own(store: SqliteStore, clock: VirtualClock) -> None:
    """Driven by hand (tests, demo), a collecting processor gets its runs one by one."""
    batches = Batches(max=30, wait="60s", answer=lambda runs: [{"n": len(runs)}])
    (run_id,) = submit(store, batches.pipeline)
    steps_of(store, batches.pipeline, clock).run_once()
    assert run_of(store, run_id).result == '{"n":1}'


class TestCollect:
    """The record and what it refuses."""

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

    def test_only_where_a_function_is_called_here(self) -> None:
        pipeline, wrong = Pipeline("p"), cast("Any", {"collect": 30})
        with pytest.raises(DeclarationError, match="collect passes several runs to one call"):
            pipeline.phase("main").external("far", collect=Collect())
        with pytest.raises(DeclarationError, match=r"takes Collect\(max=30"):
            pipeline.phase("other").processor("x", **wrong)(lambda _: None)

    def test_outcomes(self) -> None:
        error = ValueError()
        assert each(None, 2) == [None, None]
        assert each((1, error), 2) == [1, error]
        wrongs: list[object] = [{}, "ab", 7, [1]]
        for wrong in wrongs:
            assert all(isinstance(found, Exception) for found in each(wrong, 2))
