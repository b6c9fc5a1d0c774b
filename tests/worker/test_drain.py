"""Draining a worker: what ends, what is signalled and released, and how long that takes."""

import itertools
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.audit.telemetry import RunEnded, RunsReleased, RunStarted
from penstock.db.sqlite.store import SqliteStore
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.store.leases import session_list
from penstock.worker.context import RunContext
from penstock.worker.executors.threads import ThreadExecutor
from penstock.worker.worker import Worker
from tests.worker import process_bodies
from tests.worker.kit import SECOND, WAIT, Running, file_store, loop_until, run_of, submit, wait_set

__all__ = ["file_store"]

ROOT = Path(__file__).parents[2]
SCRIPT = """
from penstock.core.clock import SystemClock
from tests.worker.signals import run_until_signal
from penstock.worker.worker import Worker, WorkerOptions
from penstock.audit.telemetry import Events, RunStarted
from penstock.db.sqlite.store import SqliteStore
from tests.worker.process_bodies import pipeline

events = Events()
events.subscribe(lambda e: print("running", flush=True) if isinstance(e, RunStarted) else None)
store = SqliteStore({path!r})
options = WorkerOptions(concurrency=1, drain_us=5_000_000)
worker = Worker(
    store, [pipeline], options, clock=SystemClock(), jitter=lambda: 0.0, events=events
)
if __name__ == "__main__":
    run_until_signal(worker)
    store.close()
"""


class TestDrain:
    """Draining a worker."""

    def test_running_runs_are_awaited_and_the_rest_is_released(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pipeline, go, inside = Pipeline("drain"), threading.Event(), threading.Semaphore(0)
        stop = ThreadExecutor.stop

        def stop_and_go(executor: ThreadExecutor) -> None:
            """Let the running ones end only when no other can start."""
            stop(executor)
            go.set()

        monkeypatch.setattr(ThreadExecutor, "stop", stop_and_go)

        @pipeline.processor
        def work(run: RunContext) -> None:
            if run.held.partition == "held":
                inside.release()
                wait_set(go)

        submit(store, pipeline, 300)
        running = Running(store, [pipeline], concurrency=2)
        with running:
            running.events.until(RunEnded, 300)  # tiny runs: from now on they are buffered
            ids = submit(store, pipeline, 10, partition="held")
            for _ in range(2):
                assert inside.acquire(timeout=60)
            stopper = threading.Thread(target=running.worker.stop)
            stopper.start()
            stopper.join(60)
            assert not stopper.is_alive()
        states = [run_of(store, run_id).state for run_id in ids]
        assert states.count("COMPLETED") == 2
        assert states.count("PENDING") == 8
        released = [state == "PENDING" for state in states]
        named = {run_id for event in running.events.of(RunsReleased) for run_id in event.run_ids}
        assert named == set(itertools.compress(ids, released))
        assert store.read(session_list) == []

    def test_a_run_that_does_not_end_in_time_is_signalled_and_released(
        self, store: SqliteStore
    ) -> None:
        pipeline = Pipeline("endless")

        @pipeline.processor
        def work(run: RunContext) -> None:
            loop_until(run, lambda: False)

        with Running(store, [pipeline], drain_us=50_000) as running:
            (run_id,) = submit(store, pipeline)
            running.events.until(RunStarted)
        run = run_of(store, run_id)
        assert (run.state, run.attempt, run.error_type) == ("PENDING", 1, None)
        assert running.events.of(RunsReleased) == [RunsReleased(1, (run_id,))]

    @pytest.mark.parametrize(
        ("drain", "waits"), [(30, [25.0, 5.0]), (7, [2.0, 5.0]), (3, [0.0, 3.0]), (0, [0.0, 0.0])]
    )
    def test_runs_are_released_within_the_drain(
        self,
        store: SqliteStore,
        monkeypatch: pytest.MonkeyPatch,
        drain: int,
        waits: list[float],
    ) -> None:
        """A supervisor may kill the process once the drain is over."""
        pipeline, real = Pipeline("endless"), Worker._wait_idle
        waited: list[float] = []

        @pipeline.processor
        def work(run: RunContext) -> None:
            loop_until(run, lambda: False)

        def wait_idle(worker: Worker, seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == 2:  # the signal was sent
                real(worker, WAIT)

        monkeypatch.setattr(Worker, "_wait_idle", wait_idle)
        options = {"drain_us": drain * SECOND, "grace_us": 5 * SECOND}
        with Running(store, [pipeline], **options) as running:
            (run_id,) = submit(store, pipeline)
            running.events.until(RunStarted)
        assert waited == waits
        assert run_of(store, run_id).state == "PENDING"

    def test_a_second_stop_does_not_wait(self, store: SqliteStore) -> None:
        pipeline, go = Pipeline("uncooperative"), threading.Event()

        @pipeline.processor
        def work(_: RunContext) -> None:
            wait_set(go)

        running = Running(store, [pipeline], drain_us=60 * SECOND)
        with running:
            (run_id,) = submit(store, pipeline)
            running.events.until(RunStarted)
            stopper = threading.Thread(target=running.worker.stop)
            stopper.start()
            running.worker.stop(now=True)
            stopper.join(60)
            assert not stopper.is_alive()
        go.set()
        assert run_of(store, run_id).state == "RUNNING"  # left to the sweeper
        assert store.read(session_list) == []

    def test_sigterm_drains_the_process(self, store: SqliteStore, tmp_path: Path) -> None:
        (run_id,) = submit(store, process_bodies.pipeline, 1, parameters='{"do":"check"}')
        script = SCRIPT.format(path=str(tmp_path / "test.db"))
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.communicate()
        assert run_of(store, run_id).state == "PENDING"
        assert store.read(session_list) == []

    def test_start_and_stop_are_idempotent(self, store: SqliteStore) -> None:
        pipeline = Pipeline("idle")
        pipeline.processor("work")(lambda _: None)
        never: Any = Running(store, [pipeline])
        never.worker.stop()
        never.worker.start()
        with Running(store, [pipeline]) as running:
            running.worker.start()
        running.worker.stop()
