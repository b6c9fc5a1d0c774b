"""A worker that cannot renew its session stops its processors before the lease ends."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.clock import SECOND
from penstock.core.errors import LeaseLost, StoreUnavailable
from penstock.db.store import Store
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.store.admission import run_admit_due
from penstock.runs.sweeper import RETURN_GRACE_US, Sweeper
from penstock.testing.clock import VirtualClock
from penstock.worker.context import RunContext, Signal
from penstock.worker.outcome import outcome_of_error, outcome_of_value
from penstock.worker.session import Renewal
from penstock.worker.timeouts import RunWatch
from penstock.worker.worker_core import WorkerCore
from tests.worker import process_bodies
from tests.worker.kit import no_jitter, run_of, steps_of, submit

LEASE_S, MARGIN_S = 30, 5


class Outage:
    """A store that does not respond while `is_away`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def reserved(self) -> Any:
        return self

    def write(self, body: Any) -> Any:
        if self.is_away:
            raise StoreUnavailable("away")
        return self._store.write(body)

    def read(self, body: Any) -> Any:
        if self.is_away:
            raise StoreUnavailable("away")
        return self._store.read(body)


class Scene:
    """One worker that executes one run, its watch, and a sweeper in another process."""

    def __init__(self, store: Store, clock: VirtualClock, pipeline: Pipeline) -> None:
        self.store, self.clock = store, clock
        self.outage = Outage(store)
        self.steps: WorkerCore = steps_of(self.outage, pipeline, clock)
        self.sweeper = Sweeper(store, jitter=no_jitter)
        (self.run_id,) = submit(store, pipeline)
        (held,) = self.steps.claim_once(1, start=True)
        context = self.steps.begin(held, clock.monotonic())
        assert context is not None
        self.context: RunContext = context
        executor = SimpleNamespace(
            steal=lambda _: None, expire=lambda _: [], waiting=0, abandon=lambda _: None,
            buffer=SimpleNamespace(expire=lambda _: [], count=0), zombies=0,
        )  # fmt: skip
        gathering = SimpleNamespace(expire=lambda *_: [], tick=lambda _: None)
        made: Any = (self.steps, executor, executor, gathering)
        self.watch = RunWatch(*made, on_ends=lambda: None)

    def signal(self) -> Signal | None:
        """The signal that the run has received."""
        return self.context.signal

    def elapse(self, seconds: float) -> None:
        """Advance the clock; the worker tries to renew and watches its runs."""
        self.clock.advance(seconds=seconds)
        self.steps.heartbeat_once()
        self.watch.tick()


def pipeline_of() -> Pipeline:
    made = Pipeline("careful")
    made.processor("work")(lambda _: None)
    return made


def test_processors_stop_before_the_lease_ends(store: Store, clock: VirtualClock) -> None:
    """The signal comes while no other process may take the run yet."""
    scene = Scene(store, clock, pipeline_of())
    scene.outage.is_away = True
    scene.elapse(LEASE_S - MARGIN_S - 1)
    assert scene.signal() is None
    scene.elapse(1)
    assert scene.signal() is Signal.LEASE
    with pytest.raises(LeaseLost):
        scene.context.check()
    assert scene.steps.claim_once(1) == []
    assert scene.sweeper.run_once().sessions == 0
    clock.advance(seconds=MARGIN_S + 1)
    assert scene.sweeper.run_once().sessions == 1


def test_a_process_is_killed_before_the_lease_ends(store: Store, clock: VirtualClock) -> None:
    """A child process that ignores the signal is killed within the margin."""
    scene = Scene(store, clock, process_bodies.pipeline)
    received: list[Signal] = []
    scene.context.interrupt = received.append
    scene.outage.is_away = True
    scene.elapse(LEASE_S - MARGIN_S)
    scene.elapse(MARGIN_S / 2)
    assert received == [Signal.LEASE, Signal.KILL]
    assert scene.sweeper.run_once().sessions == 0


def test_a_worker_that_comes_back_keeps_its_runs(store: Store, clock: VirtualClock) -> None:
    """If no sweeper has taken the run, the processor continues and its result is stored."""
    scene = Scene(store, clock, pipeline_of())
    scene.outage.is_away = True
    scene.elapse(LEASE_S + 10)
    assert scene.signal() is Signal.LEASE
    scene.outage.is_away = False
    scene.elapse(1)
    assert scene.signal() is None
    scene.context.check()
    scene.steps.end(scene.context, outcome_of_value(scene.context, None))
    assert scene.steps.flush_once().ended == 1
    run = run_of(store, scene.run_id)
    assert (run.state, run.attempt) == ("COMPLETED", 1)


def test_a_processor_that_stopped_in_time_is_released(store: Store, clock: VirtualClock) -> None:
    """An unreachable database is not a failure of the run: its attempt does not count."""
    scene = Scene(store, clock, pipeline_of())
    scene.outage.is_away = True
    scene.elapse(LEASE_S - MARGIN_S)
    with pytest.raises(LeaseLost) as caught:
        scene.context.check()
    scene.outage.is_away = False
    scene.elapse(1)
    scene.steps.end(scene.context, outcome_of_error(caught.value))
    assert scene.steps.flush_once() == (0, 0, 0)
    run = run_of(store, scene.run_id)
    assert (run.state, run.attempt, run.error_type) == ("PENDING", 1, None)
    assert store.write(lambda tx: run_admit_due(tx, 10))
    (held,) = scene.steps.claim_once(1)
    assert held.run_id == scene.run_id


def test_what_was_taken_is_fenced(store: Store, clock: VirtualClock) -> None:
    """Once a sweeper has taken the run, the old worker stops it and its result is refused."""
    scene = Scene(store, clock, pipeline_of())
    scene.outage.is_away = True
    scene.elapse(LEASE_S + 10)
    assert scene.sweeper.run_once().stale == 1
    scene.outage.is_away = False
    clock.advance(seconds=1)
    assert scene.steps.heartbeat_once() is Renewal.LOST
    assert scene.context.signal is Signal.LEASE
    scene.steps.end(scene.context, outcome_of_value(scene.context, None))
    assert scene.steps.flush_once().refused == 1


def test_a_run_ended_elsewhere_frees_its_concurrency(store: Store, clock: VirtualClock) -> None:
    """The heartbeat notices that a sweeper timed the run out; the worker forgets it."""
    scene = Scene(store, clock, pipeline_of())
    held = scene.context.held
    store.write(
        lambda tx: tx.run("run_release_many", batch=[(held.run_id, held.token, 60 * SECOND)])
    )
    scene.elapse(1)
    assert scene.context.is_gone
    assert (scene.steps.running, scene.steps.held) == ({}, {})


def test_sweepers_wait_after_an_outage(store: Store, clock: VirtualClock) -> None:
    """After the database was away, holders have time to renew before their runs are taken."""
    scene = Scene(store, clock, pipeline_of())
    sweeper = Sweeper(scene.outage, jitter=no_jitter)
    scene.outage.is_away = True
    clock.advance(seconds=LEASE_S + 30)
    with pytest.raises(StoreUnavailable):
        sweeper.run_once()
    scene.outage.is_away = False
    assert sweeper.run_once().sessions == 0
    clock.advance(RETURN_GRACE_US - 1)
    assert sweeper.run_once().sessions == 0
    clock.advance(1)
    swept = sweeper.run_once()
    assert (swept.sessions, swept.stale) == (1, 1)
