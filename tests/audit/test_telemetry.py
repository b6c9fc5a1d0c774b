"""Events: every subscriber hears, none can hurt the others, leaving is exact."""

import logging
import threading

import pytest

from penstock.audit import telemetry
from penstock.audit.telemetry import Event, Events, RunEnded, ServiceStarted, Ticked

TICK = Ticked(due=1, runs=1, overlapped=0, paused=0, missed=0)


class TestStream:
    """Emitting and subscribing."""

    def test_everybody_hears_in_order(self) -> None:
        """Each subscriber hears each event, in the order of emission."""
        stream = Events()
        one: list[Event] = []
        two: list[Event] = []
        stream.subscribe(one.append)
        stream.subscribe(two.append)
        sent: list[Event] = [TICK, ServiceStarted("x")]
        for event in sent:
            stream.emit(event)
        assert one == two == sent

    def test_nobody_listens(self) -> None:
        """Emitting without subscribers does nothing, and loops can see that it would not."""
        stream = Events()
        stream.emit(TICK)
        heard = [stream.is_heard]
        leave = stream.subscribe(lambda _: None)
        heard.append(stream.is_heard)
        leave()
        assert [*heard, stream.is_heard] == [False, True, False]

    def test_a_failing_subscriber_is_isolated(self, caplog: pytest.LogCaptureFixture) -> None:
        """One that raises is logged with the event's name; the others still hear."""
        stream = Events()
        heard: list[Event] = []

        def fails(_: Event) -> None:
            raise RuntimeError("broken")

        stream.subscribe(fails)
        stream.subscribe(heard.append)
        with caplog.at_level(logging.ERROR):
            stream.emit(TICK)
        assert heard == [TICK]
        assert "ticked" in caplog.text

    def test_leaving_is_exact(self) -> None:
        """Leaving ends one subscription, also of a function that subscribed twice."""
        stream = Events()
        heard: list[Event] = []
        first = stream.subscribe(heard.append)
        second = stream.subscribe(heard.append)
        first()
        first()
        stream.emit(TICK)
        assert len(heard) == 1
        second()
        stream.emit(TICK)
        assert len(heard) == 1

    def test_leaving_while_hearing(self) -> None:
        """A subscriber may leave from inside its call without disturbing the round."""
        stream = Events()
        heard: list[Event] = []

        def once(_: Event) -> None:
            leave()

        leave = stream.subscribe(once)
        stream.subscribe(heard.append)
        stream.emit(TICK)
        stream.emit(TICK)
        assert len(heard) == 2

    def test_many_threads_subscribe(self) -> None:
        """Subscribing and leaving from many threads loses nobody."""
        stream = Events()
        gate = threading.Barrier(8)

        def work() -> None:
            gate.wait(10)
            for _ in range(200):
                stream.subscribe(lambda _: None)()
            stream.subscribe(heard.append)

        heard: list[Event] = []
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        stream.emit(TICK)
        assert len(heard) == 8


class TestNames:
    """What events are called."""

    def test_actions_are_the_class_names_in_snake_case(self) -> None:
        """Every event has a stable name of its own, made from its class."""
        assert TICK.action == "ticked"
        ended = RunEnded(1, "acme", 2, "COMPLETED", None, False, False)
        assert ended.action == "run_ended"
        assert ended.as_dict()["final_state"] == "COMPLETED"
        kinds = [
            kind
            for kind in vars(telemetry).values()
            if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
        ]
        names = {kind.__new__(kind).action for kind in kinds}
        assert len(names) == len(kinds) >= 9
        assert all(name == name.lower() and not name.startswith("_") for name in names)
        assert all((kind.__doc__ or "").endswith(".") for kind in kinds)
