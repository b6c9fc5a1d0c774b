"""Bodies of several threads in one commit of SQLite: each runs as its caller would run it."""

from __future__ import annotations

import shutil
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from penstock import Pipeline
from penstock.client import Client
from penstock.core.tracing.trace_context import CURRENT_TRACE, TraceContext
from penstock.db.sqlite.store import SqliteStore
from penstock.db.store import Tx
from penstock.runs.records import Submission
from penstock.worker.context import RunContext

CALLER: ContextVar[int] = ContextVar("caller")
THREADS = 8


@pytest.fixture
def sqlite_store(sqlite_template: Path, tmp_path: Path) -> Iterator[SqliteStore]:
    """A store on a file of its own."""
    with closing(SqliteStore(shutil.copy(sqlite_template, tmp_path / "own.db"))) as store:
        yield store


def in_one_commit(store: SqliteStore, calls: list[threading.Thread]) -> None:
    """Queue the writes of all threads while another write is open, so that one thread runs them."""
    entered, go = threading.Event(), threading.Event()

    def hold(_tx: Tx) -> None:
        entered.set()
        assert go.wait(60)

    holder = threading.Thread(target=store.write, args=(hold,))
    holder.start()
    assert entered.wait(60)
    queued = threading.Event()
    jobs = store._jobs

    class Jobs(deque[Any]):
        """Say when all are queued."""

        def append(self, job: object) -> None:
            super().append(job)
            if len(self) == len(calls):
                queued.set()

    store._jobs = Jobs(jobs)
    for call in calls:
        call.start()
    assert queued.wait(60)
    go.set()
    for call in (holder, *calls):
        call.join()


def test_context_variables_are_the_callers(sqlite_store: SqliteStore) -> None:
    """A body sees the context variables of the thread that wrote, whichever thread runs it."""
    seen: dict[int, tuple[int, int]] = {}

    def write(n: int) -> None:
        CALLER.set(n)
        seen[n] = sqlite_store.write(lambda _tx: (CALLER.get(), threading.get_ident()))

    in_one_commit(sqlite_store, [threading.Thread(target=write, args=(n,)) for n in range(THREADS)])
    assert [seen[n][0] for n in range(THREADS)] == list(range(THREADS))
    assert len({thread for _, thread in seen.values()}) < THREADS, "no body was run for another"


def test_runs_have_the_correlation_id_of_their_request(sqlite_store: SqliteStore) -> None:
    """Submissions of several requests in one commit are not filed under one trace."""
    client = Client(sqlite_store)
    pipeline = Pipeline("nightly")

    @pipeline.processor
    def work(_run: RunContext) -> None:
        """Do nothing."""

    client.register([pipeline])
    client.runs.submit(Submission(pipeline="nightly", customer="acme"))
    made: dict[int, str] = {}

    def submit(n: int) -> None:
        CURRENT_TRACE.set(TraceContext(f"{n:032x}", f"{n:016x}"))
        made[n] = client.runs.submit(Submission(pipeline="nightly", customer="acme")).run_id

    in_one_commit(
        sqlite_store, [threading.Thread(target=submit, args=(n,)) for n in range(1, THREADS)]
    )
    expected = {n: f"{n:032x}-{n:016x}" for n in range(1, THREADS)}
    assert {n: client.runs.get(run_id).correlation_id for n, run_id in made.items()} == expected
