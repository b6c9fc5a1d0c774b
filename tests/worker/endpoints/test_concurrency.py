"""Dispatchers with threads: many runs, several dispatchers, slow endpoints, faults of the store."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

from penstock.core.errors import StoreUnavailable
from penstock.runs.external.client import reports
from penstock.worker.endpoints import settle
from penstock.worker.endpoints.dispatcher import Dispatcher, SenderThreads
from tests.kits.client_harness import Harness
from tests.kits.egress import ReceivedRequest, ScriptedResponse
from tests.worker.endpoints.kit import WAIT, EndpointWorld, Gate, endpoint, replying


def step_until(
    dispatchers: list[Dispatcher], is_done: Callable[[], bool], changed: threading.Event
) -> None:
    """Step dispatchers until the condition holds; a request that arrives or ends wakes it."""
    for _ in range(2_000):
        for one in dispatchers:
            one.run_once()
        if is_done():
            return
        changed.wait(0.05)
        changed.clear()
    raise AssertionError("not done")


def watched(world: EndpointWorld) -> threading.Event:
    """Return an event that is set whenever a reply was stored."""
    event = threading.Event()
    world.events.subscribe(lambda _: event.set())
    return event


def test_two_dispatchers_send_every_run_once(harness: Harness) -> None:
    with endpoint(harness) as world:
        ids = [world.submit(customer=f"c{n % 3}") for n in range(60)]
        changed = watched(world)
        both = [world.dispatcher(threads=8), world.dispatcher(threads=8)]
        step_until(both, lambda: len(world.sent) == 60, changed)
        counts = Counter(got.json["run_id"] for got in world.receiver.got)
        assert counts == Counter(ids)
        assert {world.state(run_id) for run_id in ids} == {"COMPLETED"}
        assert all(one.drain(WAIT) for one in both)


def test_a_slow_endpoint_does_not_delay_another(harness: Harness) -> None:
    slow = Gate()

    def respond(got: ReceivedRequest) -> ScriptedResponse:
        return slow(got) if got.path == "/score" else replying()

    with endpoint(harness, respond) as world:
        world.pipeline.phase("next").http(f"{world.url}/fast", name="fast")
        world.client.register([world.pipeline])
        held = [world.submit(processor="score") for _ in range(20)]
        fast = [world.submit(processor="fast") for _ in range(20)]
        changed = watched(world)
        one = world.dispatcher(threads=4)
        step_until([one], lambda: len(world.sent) == 20, changed)
        assert {world.state(run_id) for run_id in fast} == {"COMPLETED"}
        assert "COMPLETED" not in {world.state(run_id) for run_id in held}
        slow.open.set()
        step_until([one], lambda: len(world.sent) == 40, changed)
        assert {world.state(run_id) for run_id in held} == {"COMPLETED"}


def test_a_thread_that_has_just_taken_a_run_is_not_idle() -> None:
    taken, go_on, sent = threading.Event(), threading.Event(), threading.Event()

    def send(run: Any) -> None:
        if run == "second":
            sent.set()

    class HoldingQueue(queue.SimpleQueue[Any]):
        """Its reader is interrupted between taking the run `first` and anything else."""

        def get(self, *given: Any) -> Any:
            item = super().get(*given)
            if item == "first":
                taken.set()
                assert go_on.wait(WAIT)
            return item

    with mock.patch.object(queue, "SimpleQueue", HoldingQueue):
        threads = SenderThreads(2, send)
    first: Any = "first"
    second: Any = "second"
    threads.put(first)
    assert taken.wait(WAIT)
    threads.put(second)
    is_sent = sent.wait(WAIT / 4)
    go_on.set()
    threads.close()
    assert is_sent, "the second run waits for the thread of the first"


def test_accepted_runs_occupy_no_request(harness: Harness) -> None:
    with endpoint(harness, lambda _: replying(202), served=True) as world:
        ids = [world.submit() for _ in range(30)]
        changed = watched(world)
        one = world.dispatcher(threads=2)
        step_until([one], lambda: len(world.sent) == 30, changed)
        assert {world.state(run_id) for run_id in ids} == {"RUNNING"}
        assert one.drain(WAIT), "no request is in flight"


def test_replies_are_kept_while_the_store_is_unavailable(harness: Harness) -> None:
    real, failures = reports.end_many, iter([StoreUnavailable("away"), StoreUnavailable("away")])

    def failing(*given: Any) -> Any:
        error = next(failures, None)
        if error is not None:
            raise error
        return real(*given)

    with endpoint(harness) as world, mock.patch.object(settle, "end_many", failing):
        ids = [world.submit() for _ in range(5)]
        changed = watched(world)
        one = world.dispatcher(threads=4)
        step_until([one], lambda: len(world.sent) == 5, changed)
        assert {world.state(run_id) for run_id in ids} == {"COMPLETED"}
        assert len(world.receiver.got) == 5, "nothing is sent again"


def test_a_reply_that_cannot_be_stored_does_not_stop_others(harness: Harness) -> None:
    real = reports.completion_call

    def failing(call: Any, done: Any) -> Any:
        made = real(call, done)

        def settled(held: Any, actor: str) -> Any:
            if held.customer_id == "bad":
                raise RuntimeError("no column can hold it")
            return made.settle(held, actor)

        return made._replace(settle=settled)

    with endpoint(harness) as world, mock.patch.object(settle, "completion_call", failing):
        good = [world.submit() for _ in range(4)]
        bad = world.submit(customer="bad")
        changed = watched(world)
        one = world.dispatcher(threads=8)
        step_until([one], lambda: len(world.sent) == 5, changed)
        assert {world.state(run_id) for run_id in good} == {"COMPLETED"}
        run = world.detail(bad).run
        assert (run.state, run.error_type) == ("FAILED", "VALIDATION_ERROR")
