"""Scenes of the tests of outside work: runs that worker w1 holds, in every state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.core.clock import MINUTE, SECOND
from penstock.runs.external.client.work import Claimed, ExternalWorker, FailureReport
from tests.kits.client_harness import Harness

W1 = ExternalWorker("w1", "key1")

Scene = Callable[[Harness], Claimed]


def call(harness: Harness, what: str, run_id: int, caller: ExternalWorker, **more: Any) -> Any:
    """One call of a worker outside."""
    work = harness.client.work
    if what == "fail":
        return work.fail(run_id, caller, FailureReport(error_type="TRANSIENT_NETWORK"), **more)
    return getattr(work, what)(run_id, caller, **more)


def claimed(harness: Harness) -> Claimed:
    """A run that w1 claimed and did not start."""
    harness.submit("outside")
    (one,) = harness.client.work.claim(W1)
    return one


def running(harness: Harness) -> Claimed:
    """A run that w1 started."""
    one = claimed(harness)
    harness.client.work.start(one.run.run_id, W1)
    return one


def lapsed(harness: Harness) -> Claimed:
    """A claim that ran out and was swept: the run waits for another worker."""
    one = claimed(harness)
    harness.clock.advance(5 * MINUTE + 1)
    assert harness.sweeper.run_once().lapsed == 1
    return one


def late(harness: Harness) -> Claimed:
    """A running run whose lease ran out and that was not swept yet."""
    one = running(harness)
    harness.clock.advance(10 * MINUTE)
    return one


def stale(harness: Harness) -> Claimed:
    """A running run that was swept because its heartbeats stopped."""
    one = running(harness)
    harness.clock.advance(5 * MINUTE + 1)
    assert harness.sweeper.run_once().stale == 1
    return one


def asked(harness: Harness) -> Claimed:
    """A running run that is to be cancelled."""
    one = running(harness)
    assert harness.cancel(one.run.run_id) == "asked"
    return one


def asked_early(harness: Harness) -> Claimed:
    """A claimed run that is to be cancelled before it started."""
    one = claimed(harness)
    assert harness.cancel(one.run.run_id) == "asked"
    return one


def over(harness: Harness) -> Claimed:
    """A running run over its maximum duration, within the sweeper's grace."""
    one = running(harness)
    for _ in range(15):
        harness.clock.advance(4 * MINUTE)
        harness.client.work.heartbeat(one.run.run_id, W1)
    harness.clock.advance(1)
    return one


def timed_out(harness: Harness) -> Claimed:
    """A run that was over its time and was swept."""
    one = over(harness)
    harness.clock.advance(15 * SECOND)
    assert harness.sweeper.run_once().timed_out == 1
    return one


def ended(what: str, scene: Scene) -> Scene:
    """A run that w1 ended by one of its calls."""

    def made(harness: Harness) -> Claimed:
        one = scene(harness)
        call(harness, what, one.run.run_id, W1)
        return one

    return made


def state_dump(harness: Harness) -> list[Any]:
    """Everything a refused call must leave as it was."""
    return [
        sorted(harness.sql(f"SELECT * FROM {table}"), key=str)
        for table in ("runs", "leases", "progress", "history", "journal", "dead_letters")
    ]
