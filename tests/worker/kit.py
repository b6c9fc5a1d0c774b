"""Helpers of the worker's tests: runs in a store, recorded events, waiting with a time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.access.store.registry import customer_ensure_many
from penstock.audit.telemetry import Event, Events, WorkerHeartbeat
from penstock.core.clock import SystemClock
from penstock.core.naming import ProcessorKey
from penstock.db.sqlite.store import SqliteStore
from penstock.db.store import Store, Tx
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.pipelines.store import pipeline_register
from penstock.runs.rows import HeldRun, NewRun, RunRow
from penstock.runs.store.leases import session_expire
from penstock.runs.store.runs import run_get, run_insert_many
from penstock.worker.options import WorkerOptions
from penstock.worker.worker import Worker
from penstock.worker.worker_core import WorkerCore

WAIT = 90.0
SECOND = 1_000_000


@pytest.fixture(name="store")
def file_store(tmp_path: Path) -> Iterator[SqliteStore]:
    """A migrated SQLite file."""
    made = SqliteStore(tmp_path / "test.db")
    made.migrate()
    yield made
    made.close()


def held_run(**changes: Any) -> HeldRun:
    """Return a claimed run with default values."""
    values: dict[str, Any] = dict.fromkeys(HeldRun._fields)
    values.update(
        run_id=7,
        token=3,
        state="RUNNING",
        customer_key=1,
        customer_id="acme",
        processor_key=1,
        occurrence_time=1_700_000_000_000_000,
        scheduled_time=1_700_000_060_000_000,
        priority=5,
        fair_rank=1,
        attempt=1,
        lapses=0,
        stales=0,
        max_execution_us=60 * SECOND,
        trigger_source="manual",
        created_at=1_700_000_000_000_000,
    )
    return HeldRun(**{**values, **changes})


def no_jitter() -> float:
    return 0.0


def submit(store: Store, pipeline: Pipeline, n: int = 1, **fields: Any) -> list[int]:
    """Add runs of the pipeline's first processor and wake the workers."""
    first = pipeline.processors[0]

    def body(tx: Tx) -> list[int]:
        number = pipeline_register(tx, pipeline)[first.phase, first.name]
        customer = customer_ensure_many(tx, ["acme"])["acme"]
        runs = [
            NewRun(customer_key=customer, processor_key=ProcessorKey(number), **fields)
            for _ in range(n)
        ]
        return run_insert_many(tx, runs, "test")

    ids = store.write(body)
    store.wake([f"runs:{first.pool}"])
    return ids


def run_of(store: Store, run_id: int) -> RunRow:
    found = store.read(lambda tx: run_get(tx, run_id))
    assert found is not None
    return found


def lose_sessions(store: Store, clock: Any, seconds: float) -> int:
    """Advance the clock and expire lapsed sessions; return how many."""
    clock.advance(seconds=seconds)
    return len(store.write(session_expire))


def steps_of(store: Store, pipeline: Pipeline, clock: Any, **options: Any) -> WorkerCore:
    made = WorkerCore(
        store, [pipeline], WorkerOptions(**options), clock=clock, jitter=no_jitter, events=Events()
    )
    made.open()
    return made


class EventRecorder:
    """Records events and lets a test wait for one."""

    def __init__(self, events: Events) -> None:
        self.seen: list[Event] = []
        self._changed = threading.Condition()
        events.subscribe(self._record)

    def _record(self, event: Event) -> None:
        with self._changed:
            self.seen.append(event)
            self._changed.notify_all()

    def of(self, kind: type[Event], **fields: Any) -> list[Any]:
        with self._changed:
            return [e for e in self.seen if isinstance(e, kind) and _fits(e, fields)]

    def until(self, kind: type[Event], n: int = 1, **fields: Any) -> list[Any]:
        """Wait until `n` events of a kind were recorded."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.of(kind, **fields)) >= n, WAIT)
            found = self.of(kind, **fields)
        others = [one for one in self.seen if not isinstance(one, WorkerHeartbeat)]
        assert len(found) >= n, f"got {len(found)} of {n} {kind.__name__}: {others[-12:]}"
        return found


def _fits(event: Event, fields: dict[str, Any]) -> bool:
    return all(getattr(event, name) == value for name, value in fields.items())


class Running:
    """A worker that is stopped when the block exits, and the events it emitted."""

    def __init__(self, store: Store, pipelines: Sequence[Pipeline], **options: Any) -> None:
        events = Events()
        self.events = EventRecorder(events)
        options = {"grace_us": SECOND // 2, "drain_us": 5 * SECOND, **options}
        self.worker = Worker(
            store,
            pipelines,
            WorkerOptions(**options),
            clock=SystemClock(),
            jitter=no_jitter,
            events=events,
        )

    def __enter__(self) -> Running:
        self.worker.start()
        assert self.worker.started.wait(WAIT)
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.stop()
        assert self.worker.stopped.is_set()


def wait_set(event: threading.Event) -> None:
    """Fail unless the event is set within WAIT seconds."""
    assert event.wait(WAIT), "the event was not set in time"


def loop_until(run: Any, until: Callable[[], bool]) -> None:
    """Loop in a processor until a condition holds, checking for signals."""
    pause = threading.Event()
    while not until():
        run.check()
        pause.wait(0.005)
