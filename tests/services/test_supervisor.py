"""Loops and their supervisor: real threads, a fake service, and no sleeps."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.audit.telemetry import Event, Events, ServiceError, ServiceStarted, ServiceStopped
from penstock.core.clock import HOUR, SECOND
from penstock.db.sqlite.store import SqliteStore
from penstock.services.supervisor import Loop, LoopSchedule, Supervisor

LONG = 30.0
"""Seconds after which a test stops waiting; none takes that long."""


@dataclass
class StepResult:
    """Result of a step."""

    next_at: int | None
    now: int = 0


class Fake:
    """A service that counts its steps and calls a function of the test."""

    name = "fake"

    def __init__(self, step: Callable[[int], Any] = lambda _: None) -> None:
        self.calls = 0
        self._step = step
        self._called = threading.Semaphore(0)

    def run_once(self) -> Any:
        """Run one step."""
        self.calls += 1
        self._called.release()
        return self._step(self.calls)

    def wait(self, calls: int = 1) -> None:
        """Wait for further steps."""
        for _ in range(calls):
            assert self._called.acquire(timeout=LONG), "the service was not called"


class Bench:
    """Builds loops over one store; the fixture stops them all."""

    def __init__(self) -> None:
        self.store = SqliteStore(":memory:")
        self.events = Events()
        self.received: list[Event] = []
        self.events.subscribe(self.received.append)
        self.loops: list[Loop] = []

    def loop(self, service: Any, interval_us: int = HOUR, *channels: str) -> Loop:
        """Return a loop that is not started yet."""
        schedule = LoopSchedule(interval_us=interval_us, channels=channels)
        loop = Loop(
            service, schedule, self.store, events=self.events, jitter=lambda: 0.0, drain_seconds=8.0
        )
        self.loops.append(loop)
        return loop


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A bench; asserts that all threads have ended after the test."""
    made = Bench()
    yield made
    for loop in made.loops:
        assert loop.stop(LONG)
    made.store.close()
    assert not [t for t in threading.enumerate() if t.name == "penstock-fake"]


class Draining(Fake):
    """A service with work on other threads."""

    def __init__(self) -> None:
        super().__init__()
        self.drained: list[float] = []

    def drain(self, seconds: float = 25.0) -> bool:
        """Record how long it may take."""
        self.drained.append(seconds)
        return True


class TestLoop:
    """When a service is called."""

    def test_a_service_drains_within_the_time_of_the_process(self, bench: Bench) -> None:
        service = Draining()
        loop = bench.loop(service)
        loop.start()
        service.wait()
        assert loop.stop()
        assert service.drained == [8.0]

    def test_at_its_interval(self, bench: Bench) -> None:
        """A service is called at once and then repeatedly."""
        service = Fake()
        bench.loop(service, 1000).start()
        service.wait(5)

    def test_on_a_hint(self, bench: Bench) -> None:
        """A hint on its channel calls the service; a hint on another channel does not."""
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
        """A hint during a step causes another step."""
        service = Fake(lambda call: bench.store.wake(["mine"]) if call < 4 else None)
        bench.loop(service, HOUR, "mine").start()
        service.wait(4)

    def test_at_the_requested_time(self, bench: Bench) -> None:
        """A service whose step returns a due time is called then, not at its interval."""
        results = {1: StepResult(2_000), 2: StepResult(-5, 7), 3: StepResult(1, 1)}
        service = Fake(lambda call: results.get(call, StepResult(None)))
        bench.loop(service, HOUR).start()
        service.wait(4)

    def test_a_later_time_does_not_extend_the_interval(self, bench: Bench) -> None:
        """The interval is the maximum time between two steps."""
        service = Fake(lambda _: StepResult(10 * HOUR))
        bench.loop(service, 1000).start()
        service.wait(3)


class TestFailure:
    """Failing steps."""

    def test_a_failing_step_is_retried(self, bench: Bench) -> None:
        """A failure is reported with its type; the pause grows, and a success resets it."""

        def step(call: int) -> None:
            if call in (1, 2, 4):
                raise ValueError(f"broken {call}")

        service = Fake(step)
        loop = bench.loop(service, 1000)
        loop.start()
        service.wait(6)
        assert loop.stop(LONG)
        errors = [e for e in bench.received if isinstance(e, ServiceError)]
        assert [e.error for e in errors] == [f"ValueError: broken {n}" for n in (1, 2, 4)]
        assert [e.seconds for e in errors] == pytest.approx([0.1, 0.2, 0.1])
        assert loop.steps == service.calls - 3

    def test_an_error_without_a_message_is_reported(self, bench: Bench) -> None:
        """An exception with an empty message is reported by its type."""

        def step(call: int) -> None:
            assert call > 1

        service = Fake(step)
        bench.loop(service).start()
        service.wait(2)
        (error,) = [e for e in bench.received if isinstance(e, ServiceError)]
        assert error.error.startswith("AssertionError")

    def test_an_invalid_result_is_a_failure(self, bench: Bench) -> None:
        """An invalid step result does not end the loop."""
        service = Fake(lambda call: StepResult("soon") if call == 1 else None)  # type: ignore[arg-type]
        bench.loop(service).start()
        service.wait(2)
        assert any(isinstance(e, ServiceError) for e in bench.received)

    def test_a_failing_subscriber_does_not_end_the_loop(self, bench: Bench) -> None:
        """A subscriber cannot stop a service."""
        bench.events.subscribe(lambda _: 1 / 0)  # type: ignore[arg-type]
        service = Fake()
        bench.loop(service, 1000).start()
        service.wait(3)


class TestStop:
    """Starting and stopping."""

    def test_start_and_stop_are_idempotent(self, bench: Bench) -> None:
        """Starting twice starts once; stopping twice stops once; each is reported once."""
        service = Fake()
        loop = bench.loop(service)
        loop.start()
        loop.start()
        service.wait()
        assert loop.stop(LONG)
        assert loop.stop(LONG)
        assert bench.received == [ServiceStarted("fake"), ServiceStopped("fake")]

    def test_stopping_before_starting(self, bench: Bench) -> None:
        """A loop stopped before its start runs nothing when it is started later."""
        service = Fake()
        loop = bench.loop(service)
        assert loop.stop(LONG)
        loop.start()
        assert loop.stop(LONG)
        assert service.calls == 0

    def test_stopping_waits_for_the_step_in_progress(self, bench: Bench) -> None:
        """Stopping waits for the step in progress, for at most the given time."""
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
        """A loop that pauses after failures stops immediately."""
        monkeypatch.setattr("penstock.services.supervisor.min", lambda *_: 1000.0, raising=False)

        def step(_: int) -> None:
            raise RuntimeError

        failed = threading.Event()
        bench.events.subscribe(
            lambda event: failed.set() if isinstance(event, ServiceError) else None
        )
        loop = bench.loop(Fake(step))
        loop.start()
        assert failed.wait(LONG)
        assert loop.stop(LONG)


class TestSupervisor:
    """Several loops together."""

    def test_all_start_and_all_stop(self, bench: Bench) -> None:
        """Every loop is started and stopped, even if stopping one fails."""

        class Stubborn(Loop):
            """A loop that fails to stop."""

            def stop(self, seconds: float | None = None) -> bool:
                super().stop(seconds)
                raise RuntimeError("no")

        services = [Fake(), Fake(), Fake()]
        loops = [bench.loop(service) for service in services]
        schedule = LoopSchedule(interval_us=SECOND)
        stubborn = Fake()
        loops.append(
            Stubborn(stubborn, schedule, bench.store, events=bench.events, jitter=lambda: 0.0)
        )
        supervisor = Supervisor(loops)
        supervisor.start()
        for service in (*services, stubborn):
            service.wait()
        supervisor.stop()
        supervisor.stop()
        assert bench.received.count(ServiceStopped("fake")) == 4
