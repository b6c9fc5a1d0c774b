"""Log entries of runs: which are kept, masked, bounded, and stored with the run on both engines."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.audit.telemetry import RunEnded
from penstock.core.ids import encode
from penstock.core.redact import KNOWN_SECRETS
from penstock.db.sqlite.store import SqliteStore
from penstock.db.store import Store
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.rows import RunEnd
from penstock.runs.store.finish import run_end_many
from penstock.runs.store.logs import ENTRY_MAX, run_log_list
from penstock.services.store import Retention, prune
from penstock.testing.clock import VirtualClock
from penstock.worker.context import RunContext
from penstock.worker.execution.run_log import ENTRIES_HEAD, ENTRIES_TAIL, RunLog
from penstock.worker.worker_core import WorkerCore
from tests.worker import process_bodies
from tests.worker.kit import Running, steps_of, submit

OWN = logging.getLogger("shop.loading")


@pytest.fixture(autouse=True)
def _default_levels() -> Iterator[None]:
    """Run under the default levels of standard logging, and without known secrets."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.WARNING)
    yield
    root.setLevel(before)
    KNOWN_SECRETS.clear()


def entries_of(store: Store, run_id: int) -> list[tuple[str, str, str]]:
    """Return (level, logger, message) of a run's stored entries."""
    found = store.read(lambda tx: run_log_list(tx, run_id))
    return [(entry.level, entry.logger, entry.message) for entry in found]


def executed(store: Store, clock: VirtualClock, body: Callable[[RunContext], Any]) -> int:
    """Execute a processor once in this thread and return the id of its run."""
    pipeline = Pipeline("logging")
    pipeline.processor("work")(body)
    steps = steps_of(store, pipeline, clock)
    (run_id,) = submit(store, pipeline)
    steps.run_once()
    return run_id


class TestWhatIsKept:
    """Entries of `run.log`, and records of standard logging."""

    def test_entries_of_the_run(self, store: Store, clock: VirtualClock) -> None:
        """`run.log` is kept from INFO on, other loggers as their levels say."""

        def body(run: RunContext) -> None:
            run.log.debug("not kept: below INFO")
            run.log.info("read %d rows", 7)
            OWN.info("not kept: the root logger has WARNING")
            OWN.warning("slow")

        assert entries_of(store, executed(store, clock, body)) == [
            ("INFO", "penstock.run", "read 7 rows"),
            ("WARNING", "shop.loading", "slow"),
        ]

    def test_a_failed_run(self, store: Store, clock: VirtualClock) -> None:
        """Entries before an exception are kept; a logged exception has its traceback."""

        def body(run: RunContext) -> None:
            try:
                run.gate["cents"]
            except KeyError:
                run.log.exception("no price")
            raise ValueError("no price")

        ((level, _, message),) = entries_of(store, executed(store, clock, body))
        assert level == "ERROR"
        assert message.startswith("no price\nTraceback")
        assert "KeyError: 'cents'" in message

    def test_secrets_and_odd_entries(self, store: Store, clock: VirtualClock) -> None:
        """Secrets are masked, NUL and surrogates replaced, bad arguments and length survived."""
        KNOWN_SECRETS.add("hunter2hunter2")

        def body(run: RunContext) -> None:
            run.log.info("password=abc and hunter2hunter2")
            run.log.info("a\0b\ud800")
            run.log.info("%d", "x")
            run.log.info("y" * 5_000)
            logging.getLogger("pool.hunter2hunter2").warning("named by a secret")

        entries = entries_of(store, executed(store, clock, body))
        messages = [entry[2] for entry in entries]
        assert entries[4][1:] == ("pool.***", "named by a secret")
        assert messages[0] == "password=*** and ***"
        assert messages[1] == "a\\0b?"
        assert "cannot be formatted" in messages[2]
        assert len(messages[3]) == ENTRY_MAX

    def test_nothing_is_written_without_entries(self, store: Store, clock: VirtualClock) -> None:
        """A run that logs nothing has no rows."""
        assert entries_of(store, executed(store, clock, lambda _: None)) == []

    def test_first_and_last_entries(self, clock: VirtualClock) -> None:
        """Of many entries the first and the last are kept, with the number of those between."""
        log = RunLog(clock)
        total = ENTRIES_HEAD + ENTRIES_TAIL + 234
        for number in range(total):
            log.add(logging.INFO, "l", str(number))
        first = [entry.message for entry in log.take()]
        assert first == [str(n) for n in range(ENTRIES_HEAD)]
        assert log.take() == []
        note, *last = [entry.message for entry in log.tail()]
        assert note == "234 entries were not kept"
        assert last == [str(n) for n in range(total - ENTRIES_TAIL, total)]
        assert log.tail() == []  # nothing new
        log.add(logging.INFO, "l", "newest")
        note, *last = [entry.message for entry in log.tail()]
        assert (note, last[-1]) == ("235 entries were not kept", "newest")
        assert len(last) == ENTRIES_TAIL
        assert log.take() == []


class TestStoring:
    """Entries are stored while a run executes, with its end, and removed with its history."""

    def _running(self, store: Store, clock: VirtualClock) -> tuple[WorkerCore, RunContext]:
        pipeline = Pipeline("logging")
        pipeline.processor("work")(lambda _: None)
        steps = steps_of(store, pipeline, clock)
        submit(store, pipeline)
        (held,) = steps.claim_once(1, start=True)
        context = steps.begin(held, clock.monotonic())
        assert context is not None
        return steps, context

    def test_a_heartbeat_stores_them(self, store: Store, clock: VirtualClock) -> None:
        """Entries of a running run are stored by the heartbeat, each once."""
        steps, context = self._running(store, clock)
        run_id = context.held.run_id
        context.log.info("one")
        steps.heartbeat_once()
        steps.heartbeat_once()
        assert [entry[2] for entry in entries_of(store, run_id)] == ["one"]
        context.log.info("two")
        steps.ends.add([steps.conclude_value(context, None, clock.monotonic())])
        steps.running.clear()
        steps.flush_once()
        assert [entry[2] for entry in entries_of(store, run_id)] == ["one", "two"]

    def test_a_heartbeat_stores_the_newest_of_many(self, store: Store, clock: VirtualClock) -> None:
        """The newest entries of a long log are seen while the run executes, and each once."""
        steps, context = self._running(store, clock)
        run_id = context.held.run_id
        total = ENTRIES_HEAD + ENTRIES_TAIL + 7
        for number in range(total):
            context.log.info("%d", number)
        steps.heartbeat_once()
        seen = [entry[2] for entry in entries_of(store, run_id)]
        assert seen[ENTRIES_HEAD - 1 : ENTRIES_HEAD + 1] == ["499", "7 entries were not kept"]
        assert (seen[-1], len(seen)) == (str(total - 1), total - 6)
        context.log.info("last")
        steps.ends.add([steps.conclude_value(context, None, clock.monotonic())])
        steps.running.clear()
        steps.flush_once()
        seen = [entry[2] for entry in entries_of(store, run_id)]
        assert seen[ENTRIES_HEAD] == "8 entries were not kept"
        assert seen[-2:] == [str(total - 1), "last"]
        assert len(seen) == len(set(seen)) == total - 6

    def test_a_stale_holder_stores_none(self, store: Store, clock: VirtualClock) -> None:
        """Once the run belongs to another holder, entries of the old one are ignored."""
        steps, context = self._running(store, clock)
        held = context.held
        other = RunEnd(held.run_id, held.token, "FAILED", "FAILURE")
        store.write(lambda tx: run_end_many(tx, [other]))
        context.log.info("late")
        steps.heartbeat_once()
        context.log.info("later")
        steps.ends.add([steps.conclude_value(context, None, clock.monotonic())])
        assert steps.flush_once().refused == 1
        assert entries_of(store, held.run_id) == []

    def test_retention(self, store: Store, clock: VirtualClock) -> None:
        """Entries are removed after the retention of history."""
        run_id = executed(store, clock, lambda run: run.log.info("old"))
        kept = Retention(history_us=1_000_000)
        store.write(lambda tx: prune(tx, kept))
        assert entries_of(store, run_id) != []
        clock.advance(seconds=2)
        assert store.write(lambda tx: prune(tx, kept))["run_logs"] == 1
        assert entries_of(store, run_id) == []


class TestExecutors:
    """Every way to execute a processor keeps its entries apart from those of other runs."""

    @pytest.fixture
    def files(self, tmp_path: Any) -> Iterator[SqliteStore]:
        made = SqliteStore(tmp_path / "test.db")
        made.migrate()
        yield made
        made.close()

    def test_threads_and_tasks(self, files: SqliteStore) -> None:
        """Runs that execute at the same time keep their own entries, also from other threads."""
        pipeline = Pipeline("logging")
        gate = threading.Barrier(4)

        @pipeline.processor
        def in_thread(run: RunContext) -> None:
            gate.wait(60)
            OWN.warning("of %s", run.run_id)
            other = threading.Thread(target=lambda: run.log.info("from a thread"))
            other.start()
            other.join()

        waiting = Pipeline("waiting")

        @waiting.processor
        async def in_task(run: RunContext) -> None:
            await asyncio.to_thread(gate.wait, 60)
            OWN.warning("of %s", run.run_id)

        with Running(files, [pipeline, waiting], concurrency=4) as running:
            ids = submit(files, pipeline, 2)
            tasks = submit(files, waiting, 2)
            running.events.until(RunEnded, 4)
        names = {n: f"of {encode('run', n)}" for n in ids + tasks}
        for n in ids:
            assert [entry[2] for entry in entries_of(files, n)] == [names[n], "from a thread"]
        for n in tasks:
            assert [entry[2] for entry in entries_of(files, n)] == [names[n]]

    def test_child_processes(self, files: SqliteStore) -> None:
        """Entries of a child process reach the run."""
        with Running(files, [process_bodies.pipeline], concurrency=1) as running:
            (run_id,) = submit(files, process_bodies.pipeline, parameters='{"do": "log"}')
            running.events.until(RunEnded, 1)
        assert entries_of(files, run_id) == [
            ("INFO", "penstock.run", "in a child"),
            ("WARNING", "tests.worker.process_bodies", "by its own logger"),
        ]
