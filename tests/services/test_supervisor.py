"""Loops and their supervisor: real threads, a fake service, events instead of sleeps."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.audit.telemetry import Event, Events, ServiceError, ServiceStarted, ServiceStopped
from penstock.core.clock import HOUR, SECOND
from penstock.db.sqlite.store import SqliteStore
from penstock.services.supervisor import Beat, Loop, Supervisor

LONG = 30.0
"""Seconds after which a test gives up waiting; none takes that long."""


@dataclass
class Answer:
    """What a step may answer."""

    next_at: int | None
    now: int = 0


class Fake:
    """A service that reports its steps and does what the test says."""

    name = "fake"

    def __init__(self, step: Callable[[int], Any] = lambda _: None) -> None:
        self.calls = 0
        self._step = step
        self._called = threading.Semaphore(0)

    def run_once(self) -> Any:
        """One step."""
        self.calls += 1
        self._called.release()
        return self._step(self.calls)

    def wait(self, calls: int = 1) -> None:
        """Wait for further steps."""
        for _ in range(calls):
            assert self._called.acquire(timeout=LONG), "the service was not called"


class Bench:
    """Makes loops over one store and stops them all in the end."""

    def __init__(self) -> None:
        self.store = SqliteStore(":memory:")
        self.events = Events()
        self.heard: list[Event] = []
        self.events.subscribe(self.heard.append)
        self.loops: list[Loop] = []

    def loop(self, service: Any, interval_us: int = HOUR, *channels: str) -> Loop:
        """A loop that is not started yet."""
        beat = Beat(interval_us=interval_us, channels=channels)
        loop = Loop(service, beat, self.store, events=self.events, jitter=lambda: 0.0)
        self.loops.append(loop)
        return loop


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A bench whose threads have all ended when the test is over."""
    made = Bench()
    yield made
    for loop in made.loops:
        assert loop.stop(LONG)
    made.store.close()
    assert not [t for t in threading.enumerate() if t.name == "penstock-fake"]


class TestLoop:
    """When a service is called."""

    def test_at_its_interval(self, bench: Bench) -> None:
        """A service is called at once and then again and again."""
        service = Fake()
        bench.loop(service, 1000).start()
        service.wait(5)

    def test_on_a_hint(self, bench: Bench) -> None:
        """A hint on a channel calls the service; a hint on another does not."""
        service = Fake()
        loop = bench.loop(service, HOUR, "mine")
        loop.start()
        service.wait()
        bench.store.wake(["other"])
        bench.store.wake(["mine"])
        service.wait()
        assert loop.stop(LONG)
        assert service.calls == loop.steps == 2

    def test_a_hint_during_a_step_is_kept(self, bench: Bench) -> None:
        """A hint that comes while a step runs leads to another step."""
        service = Fake(lambda call: bench.store.wake(["mine"]) if call < 4 else None)
        bench.loop(service, HOUR, "mine").start()
        service.wait(4)

    def test_at_the_time_it_asked_for(self, bench: Bench) -> None:
        """A step that says when something is due is called then, not at its interval."""
        answers = {1: Answer(2_000), 2: Answer(-5, 7), 3: Answer(1, 1)}
        service = Fake(lambda call: answers.get(call, Answer(None)))
        bench.loop(service, HOUR).start()
        service.wait(4)

    def test_a_later_time_does_not_lengthen_the_interval(self, bench: Bench) -> None:
        """The interval is the most that passes between two steps."""
        service = Fake(lambda _: Answer(10 * HOUR))
        bench.loop(service, 1000).start()
        service.wait(3)


class TestFailure:
    """Steps that fail."""

    def test_a_failing_step_is_tried_again(self, bench: Bench) -> None:
        """A failure is told with its kind, the pause grows, a success resets it."""

        def step(call: int) -> None:
            if call in (1, 2, 4):
                raise ValueError(f"broken {call}")

        service = Fake(step)
        loop = bench.loop(service, 1000)
        loop.start()
        service.wait(6)
        assert loop.stop(LONG)
        errors = [e for e in bench.heard if isinstance(e, ServiceError)]
        assert [e.error for e in errors] == [f"ValueError: broken {n}" for n in (1, 2, 4)]
        assert [e.seconds for e in errors] == pytest.approx([0.1, 0.2, 0.1])
        assert loop.steps == service.calls - 3

    def test_an_error_without_words_is_still_told(self, bench: Bench) -> None:
        """An exception with an empty message is known by its name."""

        def step(call: int) -> None:
            assert call > 1

        service = Fake(step)
        bench.loop(service).start()
        service.wait(2)
        (error,) = [e for e in bench.heard if isinstance(e, ServiceError)]
        assert error.error.startswith("AssertionError")

    def test_an_answer_that_makes_no_sense_is_a_failure(self, bench: Bench) -> None:
        """A step whose answer cannot be read does not end the loop."""
        service = Fake(lambda call: Answer("soon") if call == 1 else None)  # type: ignore[arg-type]
        bench.loop(service).start()
        service.wait(2)
        assert any(isinstance(e, ServiceError) for e in bench.heard)

    def test_a_failing_subscriber_does_not_end_the_loop(self, bench: Bench) -> None:
        """Whoever listens cannot stop a service."""
        bench.events.subscribe(lambda _: 1 / 0)  # type: ignore[arg-type]
        service = Fake()
        bench.loop(service, 1000).start()
        service.wait(3)


class TestStop:
    """Starting and stopping."""

    def test_start_and_stop_are_idempotent(self, bench: Bench) -> None:
        """Starting twice starts once; stopping twice stops once; each is told once."""
        service = Fake()
        loop = bench.loop(service)
        loop.start()
        loop.start()
        service.wait()
        assert loop.stop(LONG)
        assert loop.stop(LONG)
        assert bench.heard == [ServiceStarted("fake"), ServiceStopped("fake")]

    def test_stopping_before_starting(self, bench: Bench) -> None:
        """A loop that never started is stopped, and starting it then runs nothing."""
        service = Fake()
        loop = bench.loop(service)
        assert loop.stop(LONG)
        loop.start()
        assert loop.stop(LONG)
        assert service.calls == 0

    def test_a_step_in_progress_is_waited_for(self, bench: Bench) -> None:
        """Stopping waits for the step in progress, as long as it was told to, and no longer."""
        go_on = threading.Event()
        service = Fake(lambda _: go_on.wait(LONG))
        loop = bench.loop(service)
        loop.start()
        service.wait()
        assert not loop.stop(0.01)
        go_on.set()
        assert loop.stop(LONG)
        assert service.calls == 1

    def test_stopping_interrupts_a_backoff(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A loop that pauses after failures stops at once."""
        monkeypatch.setattr("penstock.services.supervisor.min", lambda *_: 1000.0, raising=False)

        def step(_: int) -> None:
            raise RuntimeError

        told = threading.Event()
        bench.events.subscribe(
            lambda event: told.set() if isinstance(event, ServiceError) else None
        )
        loop = bench.loop(Fake(step))
        loop.start()
        assert told.wait(LONG)
        assert loop.stop(LONG)


class TestSupervisor:
    """Many loops together."""

    def test_all_start_and_all_stop(self, bench: Bench) -> None:
        """Every loop starts, and every loop is stopped, even when one cannot be."""

        class Stubborn(Loop):
            """A loop that fails to stop."""

            def stop(self, seconds: float = 30.0) -> bool:
                super().stop(seconds)
                raise RuntimeError("no")

        services = [Fake(), Fake(), Fake()]
        loops = [bench.loop(service) for service in services]
        beat = Beat(interval_us=SECOND)
        stubborn = Fake()
        loops.append(Stubborn(stubborn, beat, bench.store, events=bench.events, jitter=lambda: 0.0))
        supervisor = Supervisor(loops)
        supervisor.start()
        for service in (*services, stubborn):
            service.wait()
        supervisor.stop()
        supervisor.stop()
        assert bench.heard.count(ServiceStopped("fake")) == 4
