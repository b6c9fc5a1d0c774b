"""Events: every subscriber is called, failures are isolated, unsubscribing is exact."""

import logging
import threading
from collections.abc import Callable

import pytest

from penstock.audit import telemetry
from penstock.audit.telemetry import Event, Events, RunEnded, ServiceStarted, Ticked
from penstock.core.naming import ProcessorKey

TICK = Ticked(due=1, runs=1, overlapped=0, paused=0, missed=0)


class TestStream:
    """Emitting and subscribing."""

    def test_all_subscribers_are_called_in_order(self) -> None:
        """Each subscriber receives each event, in the order of emission."""
        stream = Events()
        one: list[Event] = []
        two: list[Event] = []
        stream.subscribe(one.append)
        stream.subscribe(two.append)
        sent: list[Event] = [TICK, ServiceStarted("x")]
        for event in sent:
            stream.emit(event)
        assert one == two == sent

    def test_no_subscribers(self) -> None:
        """Emitting without subscribers does nothing, and `has_subscribers` says so."""
        stream = Events()
        stream.emit(TICK)
        found = [stream.has_subscribers]
        unsubscribe = stream.subscribe(lambda _: None)
        found.append(stream.has_subscribers)
        unsubscribe()
        assert [*found, stream.has_subscribers] == [False, True, False]

    def test_a_kind_without_subscribers_is_looked_up_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker checks for every run, which must cost the same with other subscribers."""
        stream = Events()
        stream.subscribe(lambda _: None, [ServiceStarted])
        looked_up: list[type] = []
        route = Events._route

        def counted(self: Events, kind: type) -> tuple[Callable[[Event], None], ...]:
            looked_up.append(kind)
            return route(self, kind)

        monkeypatch.setattr(Events, "_route", counted)
        assert [stream.wants(Ticked) for _ in range(3)] == [False] * 3
        stream.emit(TICK)
        assert looked_up == [Ticked]
        stream.subscribe(lambda _: None, [Ticked])
        assert stream.wants(Ticked)

    def test_a_failing_subscriber_is_isolated(self, caplog: pytest.LogCaptureFixture) -> None:
        """A subscriber that raises is logged with the event's name; others still get the event."""
        stream = Events()
        received: list[Event] = []

        def fails(_: Event) -> None:
            raise RuntimeError("broken")

        stream.subscribe(fails)
        stream.subscribe(received.append)
        with caplog.at_level(logging.ERROR):
            stream.emit(TICK)
        assert received == [TICK]
        assert "ticked" in caplog.text

    def test_unsubscribing_is_exact(self) -> None:
        """Unsubscribing ends one subscription, even if a function subscribed twice."""
        stream = Events()
        received: list[Event] = []
        first = stream.subscribe(received.append)
        second = stream.subscribe(received.append)
        first()
        first()
        stream.emit(TICK)
        assert len(received) == 1
        second()
        stream.emit(TICK)
        assert len(received) == 1

    def test_unsubscribing_during_an_event(self) -> None:
        """A subscriber may unsubscribe from inside its call without affecting the others."""
        stream = Events()
        received: list[Event] = []

        def once(_: Event) -> None:
            unsubscribe()

        unsubscribe = stream.subscribe(once)
        stream.subscribe(received.append)
        stream.emit(TICK)
        stream.emit(TICK)
        assert len(received) == 2

    def test_many_threads_subscribe(self) -> None:
        """Subscribing and unsubscribing from many threads loses no subscription."""
        stream = Events()
        gate = threading.Barrier(8)

        def work() -> None:
            gate.wait(60)
            for _ in range(200):
                stream.subscribe(lambda _: None)()
            stream.subscribe(received.append)

        received: list[Event] = []
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        stream.emit(TICK)
        assert len(received) == 8


def _action(kind: type[Event]) -> str:
    """Return the name of an event, whatever its fields are."""
    fields = dict.fromkeys(kind.__struct_fields__)
    return kind(**fields).action


class TestNames:
    """Names of events."""

    def test_actions_are_the_class_names_in_snake_case(self) -> None:
        """Every event has a stable, unique name derived from its class."""
        assert TICK.action == "ticked"
        ended = RunEnded(1, "acme", ProcessorKey(2), "COMPLETED", None, False, False)
        assert ended.action == "run_ended"
        assert ended.as_dict()["final_state"] == "COMPLETED"
        kinds = [
            kind
            for kind in vars(telemetry).values()
            if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
        ]
        names = {_action(kind) for kind in kinds}
        assert len(names) == len(kinds) >= 9
        assert all(name == name.lower() and not name.startswith("_") for name in names)
        assert all((kind.__doc__ or "").endswith(".") for kind in kinds)
