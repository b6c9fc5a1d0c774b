"""The worker with its threads, on a SQLite file: executing, cancelling, timeouts, draining."""

import asyncio
import contextlib
import json
import os
import threading
from typing import Any

import pytest

from penstock.audit.telemetry import RunEnded, RunRefused, RunStarted, ServiceError, WorkerHeartbeat
from penstock.client import Client
from penstock.core.clock import SystemClock
from penstock.core.errors import DeclarationError, LeaseLost, StoreUnavailable
from penstock.core.ids import encode
from penstock.db.sqlite.store import SqliteStore
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.rows import RunEnd
from penstock.runs.store.admission import run_admit_due
from penstock.runs.store.finish import run_end_many
from penstock.runs.store.leases import session_close, session_list
from penstock.runs.store.runs import run_cancel_request
from penstock.worker.context import Result, RunContext
from penstock.worker.worker import Worker, WorkerOptions
from tests.worker import process_bodies
from tests.worker.kit import SECOND, WAIT, Running, file_store, loop_until, run_of, submit, wait_set

__all__ = ["file_store"]


class Unreachable:
    """A store whose reserved connection can be interrupted."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.is_away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def reserved(self) -> Any:
        outer = self

        class Cut:
            def write(self, body: Any) -> Any:
                if outer.is_away:
                    raise StoreUnavailable("cut")
                return outer._store.write(body)

        return Cut()


def cancel(store: SqliteStore, run_id: int) -> None:
    assert store.write(lambda tx: run_cancel_request(tx, run_id, "operator"))
    store.wake(["cancel"])


def admit_released(store: SqliteStore) -> None:
    """Admit a run as soon as the worker has released it, as the admitter of a scheduler does."""
    pause, waits = threading.Event(), int(WAIT / 0.01)
    assert any(
        store.write(lambda tx: run_admit_due(tx, 10)) or pause.wait(0.01) for _ in range(waits)
    )
    store.wake(["runs:default"])


class TestExecution:
    """Sync, async and process processors."""

    def test_many_tiny_runs_each_once(self, store: SqliteStore) -> None:
        pipeline, seen = Pipeline("tiny"), []

        @pipeline.processor
        def work(run: RunContext) -> None:
            seen.append(run.held.run_id)

        ids = submit(store, pipeline, 3000)
        with Running(store, [pipeline]) as running:
            running.events.until(RunEnded, 3000, final_state="COMPLETED")
        assert sorted(seen) == sorted(ids)
        assert running.events.of(RunRefused) == []
        assert store.read(session_list) == []

    def test_a_long_run_does_not_hold_up_the_tiny_ones_behind_it(self, store: SqliteStore) -> None:
        pipeline, go = Pipeline("mixed"), threading.Event()

        @pipeline.processor
        def work(run: RunContext) -> None:
            if run.held.partition == "long":
                wait_set(go)

        submit(store, pipeline, 300)
        with Running(store, [pipeline], concurrency=2) as running:
            running.events.until(RunEnded, 300)  # by now runs count as tiny and come in chunks
            (long,) = submit(store, pipeline, 1, partition="long", priority=9)
            submit(store, pipeline, 500)
            running.events.until(RunEnded, 800)
            assert run_of(store, long).state in ("CLAIMED", "RUNNING")
            go.set()
            running.events.until(RunEnded, 801)
        assert run_of(store, long).state == "COMPLETED"

    def test_a_long_run_is_marked_running(self, store: SqliteStore) -> None:
        pipeline, go = Pipeline("marked"), threading.Event()
        inside = threading.Event()

        @pipeline.processor
        def work(run: RunContext) -> None:
            if run.held.partition == "long":
                inside.set()
                wait_set(go)

        submit(store, pipeline, 300)
        with Running(store, [pipeline], mark_running_after_us=20_000) as running:
            running.events.until(RunEnded, 300)
            (long,) = submit(store, pipeline, 1, partition="long")
            wait_set(inside)
            pause = threading.Event()
            for _ in range(6_000):
                if run_of(store, long).state == "RUNNING":
                    break
                pause.wait(0.01)
            assert run_of(store, long).state == "RUNNING"
            go.set()

    def test_async_runs_overlap_on_one_loop(self, store: SqliteStore) -> None:
        pipeline = Pipeline("async")
        threads: set[int] = set()
        together = {"n": 0, "most": 0}
        gate: list[asyncio.Event] = []

        @pipeline.processor
        async def work(run: RunContext) -> Result:
            threads.add(threading.get_ident())
            together["n"] += 1
            together["most"] = max(together["most"], together["n"])
            if not gate:
                gate.append(asyncio.Event())
            if together["n"] == 4:
                gate[0].set()
            await asyncio.wait_for(gate[0].wait(), 60)
            together["n"] -= 1
            return Result(status="PARTIAL_SUCCESS", summary={"partition": run.partition}, records=2)

        ids = submit(store, pipeline, 8)
        with Running(store, [pipeline], concurrency=4) as running:
            running.events.until(RunEnded, 8)
        assert (len(threads), together["most"]) == (1, 4)
        run = run_of(store, ids[0])
        assert (run.status, run.records) == ("PARTIAL_SUCCESS", 2)

    def test_process_runs_execute_in_a_child_process(self, store: SqliteStore) -> None:
        ids = submit(store, process_bodies.pipeline, 2)
        with Running(store, [process_bodies.pipeline], concurrency=1) as running:
            running.events.until(RunEnded, 2)
        results = [json.loads(run_of(store, run_id).result or "{}") for run_id in ids]
        assert results[0]["pid"] == results[1]["pid"] != os.getpid()
        assert results[0]["parent"] == os.getpid()
        assert run_of(store, ids[0]).records == 3

    def test_a_run_that_kills_its_process_fails_alone(self, store: SqliteStore) -> None:
        kinds = ("die", "exit", "terminate", "raise", "unpicklable", "pid")
        options = {"concurrency": 1, "hold_us": 10 * 60 * SECOND}  # children start slowly
        with Running(store, [process_bodies.pipeline], **options) as running:
            ids = {
                kind: submit(store, process_bodies.pipeline, 1, parameters=f'{{"do":"{kind}"}}')[0]
                for kind in kinds
            }
            running.events.until(RunEnded, len(kinds))
        found = {kind: run_of(store, run_id) for kind, run_id in ids.items()}
        assert {kind: run.error_type for kind, run in found.items()} == {
            "die": "PROCESS_DIED",
            "exit": "PROCESS_DIED",
            "terminate": None,  # the worker decides when its children stop
            "raise": "PERMANENT_ERROR",
            "unpicklable": "VALIDATION_ERROR",
            "pid": None,
        }
        assert "signal 9" in (found["die"].error_details or "")
        assert "no such account" in (found["raise"].error_details or "")

    def test_a_process_run_terminates_what_it_started(self, store: SqliteStore) -> None:
        """A child outlives SIGTERM and SIGINT; what its processor starts does not inherit this."""
        with Running(store, [process_bodies.pipeline]) as running:
            (run_id,) = submit(store, process_bodies.pipeline, 1, parameters='{"do":"descendants"}')
            running.events.until(RunEnded)
        result = run_of(store, run_id).result
        expected = {"programs": [-15, -2], "forked": -15, "leads": True}
        assert json.loads(result or "null") == expected

    def test_a_local_function_cannot_be_a_process_processor(self, store: SqliteStore) -> None:
        pipeline = Pipeline("local")
        pipeline.processor("work", runs="process")(lambda _: None)
        running = Running(store, [pipeline])
        with pytest.raises(DeclarationError, match="top level of a module"):
            running.worker.start()
        running.worker.stop()


class TestCancel:
    """An operator's cancel, received with the next heartbeat or by a hint."""

    def test_a_thread_that_checks_ends_cancelled(self, store: SqliteStore) -> None:
        pipeline = Pipeline("check")

        @pipeline.processor
        def work(run: RunContext) -> None:
            loop_until(run, lambda: False)

        with Running(store, [pipeline]) as running:
            (run_id,) = submit(store, pipeline)
            running.events.until(RunStarted)
            cancel(store, run_id)
            running.events.until(RunEnded, final_state="CANCELLED")

    def test_a_thread_that_completes_anyway_is_completed(self, store: SqliteStore) -> None:
        pipeline = Pipeline("finish")

        @pipeline.processor
        def work(run: RunContext) -> None:
            pause = threading.Event()
            while not run.is_cancelled:
                pause.wait(0.005)

        with Running(store, [pipeline]) as running:
            (run_id,) = submit(store, pipeline)
            running.events.until(RunStarted)
            cancel(store, run_id)
            running.events.until(RunEnded, final_state="COMPLETED")

    def test_a_task_is_cancelled(self, store: SqliteStore) -> None:
        pipeline = Pipeline("task")

        @pipeline.processor
        async def work(_: RunContext) -> None:
            await asyncio.Event().wait()

        with Running(store, [pipeline]) as running:
            (run_id,) = submit(store, pipeline)
            running.events.until(RunStarted)
            cancel(store, run_id)
            running.events.until(RunEnded, final_state="CANCELLED")

    @pytest.mark.parametrize("kind", ["check", "ignore"])
    def test_a_process_checks_or_is_killed(self, store: SqliteStore, kind: str) -> None:
        with Running(store, [process_bodies.pipeline], concurrency=1) as running:
            (run_id,) = submit(store, process_bodies.pipeline, 1, parameters=f'{{"do":"{kind}"}}')
            running.events.until(RunStarted)
            cancel(store, run_id)
            running.events.until(RunEnded, final_state="CANCELLED")
            submit(store, process_bodies.pipeline)
            running.events.until(RunEnded, final_state="COMPLETED")


class TestForce:
    """A run that ignores its stop and is ended by force: its worker continues without it."""

    def _force(self, store: SqliteStore, run_id: int) -> None:
        done = Client(store).runs.cancel(encode("run", run_id), force=True)
        assert done.outcome == "forced"

    def test_a_thread_is_replaced_and_counted(self, store: SqliteStore) -> None:
        """The hung thread no longer uses concurrency; it is counted until it returns."""
        pipeline, go = Pipeline("hung"), threading.Event()

        @pipeline.processor
        def work(run: RunContext) -> None:
            if run.held.partition == "hung":
                wait_set(go)

        with Running(store, [pipeline], concurrency=1, zombies_max=2) as running:
            (hung,) = submit(store, pipeline, 1, partition="hung")
            running.events.until(RunStarted)
            cancel(store, hung)
            self._force(store, hung)
            submit(store, pipeline)
            running.events.until(RunEnded, final_state="COMPLETED")
            running.worker.steps.heartbeat_once()
            (session,) = store.read(session_list)
            assert session.held == 0
            assert running.worker.leaked == 1
            go.set()
            submit(store, pipeline)
            running.events.until(RunEnded, 2, final_state="COMPLETED")
        assert run_of(store, hung).error_type == "STOP_IGNORED"

    def test_a_task_is_replaced_and_counted(self, store: SqliteStore) -> None:
        """A task that swallows its cancellation no longer uses concurrency."""
        pipeline, go = Pipeline("hung"), threading.Event()

        @pipeline.processor
        async def work(run: RunContext) -> None:
            while run.held.partition == "hung" and not go.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.to_thread(go.wait, 0.05)

        with Running(store, [pipeline], concurrency=1, zombies_max=2) as running:
            (hung,) = submit(store, pipeline, 1, partition="hung")
            running.events.until(RunStarted)
            self._force(store, hung)
            submit(store, pipeline)
            running.events.until(RunEnded, final_state="COMPLETED")
            assert running.worker.leaked == 1
            go.set()

    def test_a_process_is_killed(self, store: SqliteStore) -> None:
        """A child process that ignores everything is killed; nothing leaks."""
        with Running(store, [process_bodies.pipeline], concurrency=1) as running:
            (hung,) = submit(store, process_bodies.pipeline, 1, parameters='{"do":"ignore"}')
            running.events.until(RunStarted)
            self._force(store, hung)
            submit(store, process_bodies.pipeline)
            running.events.until(RunEnded, final_state="COMPLETED")
            assert running.worker.leaked == 0

    def test_a_saturated_worker_asks_to_be_replaced(self, store: SqliteStore) -> None:
        """At the limit of leaked executions claiming stops and the callback runs once."""
        pipeline, go, full = Pipeline("hung"), threading.Event(), threading.Event()

        @pipeline.processor(timeout="50ms")
        def work(_: RunContext) -> None:
            wait_set(go)

        submit(store, pipeline, 2)
        options = WorkerOptions(concurrency=1, zombies_max=1, grace_us=50_000)
        worker = Worker(
            store, [pipeline], options, clock=SystemClock(), jitter=lambda: 0.0,
            on_saturated=full.set,
        )  # fmt: skip
        worker.start()
        wait_set(full)
        go.set()
        worker.stop(now=True)


class TestTimeout:
    """A run that exceeds its time ends as TIMEOUT, in a thread, a task or a process."""

    def test_a_thread_is_replaced_and_its_result_is_dropped(self, store: SqliteStore) -> None:
        pipeline, go, left = Pipeline("slow"), threading.Event(), threading.Event()

        @pipeline.processor(timeout="100ms")
        def work(run: RunContext) -> None:
            if run.held.partition == "slow":
                wait_set(go)
                try:
                    run.check()
                finally:
                    left.set()

        (slow,) = submit(store, pipeline, 1, partition="slow")
        with Running(store, [pipeline], concurrency=1) as running:
            running.events.until(RunEnded, final_state="TIMEOUT")
            submit(store, pipeline)
            # One zombie at a concurrency of one: claiming stops until it returns, with an event.
            running.events.until(ServiceError, service="worker.claimer")
            go.set()
            wait_set(left)
            running.events.until(RunEnded, final_state="COMPLETED")
        assert run_of(store, slow).state == "TIMEOUT"
        assert len(running.events.of(RunEnded)) == 2

    def test_a_zombie_does_not_use_up_concurrency(self, store: SqliteStore) -> None:
        pipeline, go = Pipeline("slow"), threading.Event()

        @pipeline.processor(timeout="100ms")
        def work(run: RunContext) -> None:
            if run.held.partition == "slow":
                wait_set(go)

        submit(store, pipeline, 1, partition="slow")
        with Running(store, [pipeline], concurrency=1, zombies_max=2) as running:
            running.events.until(RunEnded, final_state="TIMEOUT")
            submit(store, pipeline)
            running.events.until(RunEnded, final_state="COMPLETED")
            go.set()

    def test_a_task_is_cancelled(self, store: SqliteStore) -> None:
        pipeline = Pipeline("task")

        @pipeline.processor(timeout="50ms")
        async def work(_: RunContext) -> None:
            await asyncio.Event().wait()

        submit(store, pipeline)
        with Running(store, [pipeline]) as running:
            running.events.until(RunEnded, final_state="TIMEOUT")

    def test_a_task_that_ignores_its_signal_is_ended_anyway(self, store: SqliteStore) -> None:
        pipeline, go = Pipeline("task"), threading.Event()

        @pipeline.processor(timeout="50ms")
        async def work(_: RunContext) -> None:
            wait_set(go)

        submit(store, pipeline)
        with Running(store, [pipeline], grace_us=50_000) as running:
            running.events.until(RunEnded, final_state="TIMEOUT")
            go.set()

    def test_a_process_is_killed(self, store: SqliteStore) -> None:
        submit(
            store, process_bodies.pipeline, 1,
            parameters='{"do":"ignore"}', max_execution_us=SECOND // 10,
        )  # fmt: skip
        with Running(store, [process_bodies.pipeline], concurrency=1) as running:
            running.events.until(RunEnded, final_state="TIMEOUT")


class TestSession:
    """Losing the session."""

    def test_a_lost_session_is_replaced_and_work_continues(self, store: SqliteStore) -> None:
        pipeline, go = Pipeline("lost"), threading.Event()

        @pipeline.processor
        def work(run: RunContext) -> None:
            if run.held.partition == "old":
                loop_until(run, go.is_set)

        with Running(store, [pipeline], heartbeat_us=50_000) as running:
            (old,) = submit(store, pipeline, 1, partition="old")
            running.events.until(RunStarted)
            (session,) = store.read(session_list)
            store.write(lambda tx: session_close(tx, session.session_id))
            running.events.until(WorkerHeartbeat, renewal="lost")
            # It raises LeaseLost; it was not swept yet, so it is released and claimed again.
            running.events.until(WorkerHeartbeat, renewal="renewed")
            go.set()
            admit_released(store)
            running.events.until(RunEnded, final_state="COMPLETED")
            (new,) = store.read(session_list)
            assert new.session_id != session.session_id
        assert run_of(store, old).attempt == 1

    def test_a_worker_that_cannot_renew_stops_before_the_lease_ends(
        self, store: SqliteStore
    ) -> None:
        pipeline, go, stopped = Pipeline("fence"), threading.Event(), threading.Event()

        @pipeline.processor
        def work(run: RunContext) -> None:
            if run.held.partition == "old":
                try:
                    loop_until(run, go.is_set)
                except LeaseLost:
                    stopped.set()
                    raise

        flaky = Unreachable(store)
        options = {"lease_us": SECOND, "heartbeat_us": SECOND // 10, "margin_us": SECOND // 5}
        with Running(flaky, [pipeline], **options) as running:
            submit(store, pipeline, 1, partition="old")
            running.events.until(RunStarted)
            flaky.is_away = True
            running.events.until(WorkerHeartbeat, renewal="unknown")
            wait_set(stopped)
            (later,) = submit(store, pipeline)
            assert run_of(store, later).state == "PENDING"
            go.set()
            flaky.is_away = False
            store.wake(["cancel"])
            running.events.until(WorkerHeartbeat, renewal="renewed")
            store.wake(["runs:default"])
            running.events.until(RunEnded, final_state="COMPLETED", run_id=later)

    def test_a_result_under_a_stale_token_is_refused(self, store: SqliteStore) -> None:
        pipeline, go = Pipeline("stale"), threading.Event()

        @pipeline.processor
        def work(_: RunContext) -> None:
            wait_set(go)

        with Running(store, [pipeline]) as running:
            (run_id,) = submit(store, pipeline)
            running.events.until(RunStarted)
            token = run_of(store, run_id).token
            by_sweeper = RunEnd(run_id, token, "FAILED", "FAILURE", actor="sweeper", is_dead=True)
            assert store.write(lambda tx: run_end_many(tx, [by_sweeper]))
            go.set()
            assert running.events.until(RunRefused)[0].run_id == run_id
        assert run_of(store, run_id).state == "FAILED"
