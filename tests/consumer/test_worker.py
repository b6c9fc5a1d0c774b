"""The pull worker over the embedded bus: leases, bounds, stops, transport errors."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from penstock.bus.message import Delivery, NewMessage, Outcome, SettleResult
from penstock.consumer import Batch, Consumer, ConsumerOptions, Message, TryAgain, Upsert
from penstock.consumer.disposition import Disposition
from penstock.consumer.pulling import SETTLE_TRIES, Settler
from penstock.core.clock import SECOND
from penstock.core.errors import StoreUnavailable
from penstock.db.store import Store
from penstock.sinks.protocol import Sink
from penstock.testing.clock import VirtualClock
from tests.conftest import OpenStore
from tests.consumer.kit import SUB, TOPIC, RecordingBus

TIMEOUT_S = 60.0
APPLIED = Disposition(outcome=Outcome.APPLIED)


def make(sink: Sink, clock: Any = None, **more: Any) -> Consumer:
    options = {"log": lambda _: None, **more}
    if clock is not None:
        options["clock"] = clock
    return Consumer(SUB, sink=sink, options=ConsumerOptions(**options))


@pytest.fixture
def bus(store: Store) -> RecordingBus:
    """Return a bus on the test's clock."""
    made = RecordingBus(store)
    made.declare_all(dead_letters=False)
    return made


@pytest.fixture
def live(open_store: OpenStore) -> RecordingBus:
    """Return a bus on the database's clock, for workers on threads."""
    made = RecordingBus(open_store(clock=None))
    made.declare_all(dead_letters=False)
    return made


def publish(bus: RecordingBus, n: int, start: int = 0) -> list[str]:
    return bus.publish(
        TOPIC,
        [
            NewMessage(data=b'{"k": %d}' % k, attributes={"n": str(k)})
            for k in range(start, start + n)
        ],
    )


class TestLeases:
    """Deadlines are extended while a message is being handled."""

    def test_kept(self, sink: Sink, bus: RecordingBus, clock: VirtualClock) -> None:
        """A message that is handled for longer than its deadline is not redelivered."""
        settler = Settler(make(sink, clock), bus)
        publish(bus, 1)
        (delivery,) = bus.pull(SUB)
        settler.hold([delivery])
        assert settler.step() == pytest.approx(30)
        for _ in range(6):
            clock.advance(seconds=30)
            settler.step()
            assert bus.pull(SUB) == []
        assert bus.extended == [60] * 6
        settler.end(delivery.ack_id, APPLIED)
        assert settler.step() is None
        assert (settler.held, bus.acks) == (0, [delivery.ack_id])

    def test_hold_max(self, sink: Sink, bus: RecordingBus, clock: VirtualClock) -> None:
        """After `hold_max` the lease is no longer extended and the message is redelivered."""
        settler = Settler(make(sink, clock, hold_max="2m"), bus)
        publish(bus, 1)
        settler.hold(bus.pull(SUB))
        for _ in range(20):
            clock.advance(seconds=30)
            settler.step()
        assert len(bus.extended) == 3
        assert bus.pull(SUB) == []  # this pull finds the lapsed delivery and delays it
        clock.advance(seconds=60)
        assert [delivery.attempt for delivery in bus.pull(SUB)] == [2]

    def test_lost(self, sink: Sink, bus: RecordingBus, clock: VirtualClock) -> None:
        """A lost lease is not extended again; the late ack changes nothing."""
        settler = Settler(make(sink, clock), bus)
        publish(bus, 1)
        (delivery,) = bus.pull(SUB)
        settler.hold([delivery])
        bus.extend(SUB, [delivery.ack_id], 0)
        clock.advance(seconds=3_600)
        (other,) = bus.pull(SUB)
        assert settler.step() == float("inf")
        settler.end(delivery.ack_id, APPLIED)
        settler.step()
        assert settler.held == 0
        assert bus.ack(SUB, [other.ack_id]) == [SettleResult.DONE]


class TestSettling:
    """Outcomes reach the transport eventually."""

    def test_transport_errors(
        self,
        sink: Sink,
        bus: RecordingBus,
        clock: VirtualClock,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """While the transport is unavailable, settling is retried, then abandoned."""
        settler = Settler(make(sink, clock), bus)
        publish(bus, 2)
        deliveries = bus.pull(SUB)
        settler.hold(deliveries)
        real = bus.ack
        monkeypatch.setattr(bus, "ack", _unavailable)
        settler.end(deliveries[0].ack_id, APPLIED)
        assert settler.step() == 0.2
        assert settler.held == 2
        monkeypatch.setattr(bus, "ack", real)
        settler.step()
        assert bus.acks == [deliveries[0].ack_id]
        monkeypatch.setattr(bus, "ack", _unavailable)
        settler.end(deliveries[1].ack_id, APPLIED)
        for _ in range(SETTLE_TRIES):
            settler.step()
        assert settler.held == 0

    def test_many_in_few_calls(self, sink: Sink, bus: RecordingBus) -> None:
        """One `run_once` settles a batch with few calls."""
        app = make(sink)

        @app.on()
        def count(message: Message) -> Upsert:
            return Upsert(path="sums/1", add={"n": 1}, fields={"last": message.json["k"]})

        publish(bus, 40)
        assert app.worker(bus).run_once() == 40
        assert len(bus.acks) == 40
        assert app.counters() == {"applied": 40}
        assert app.worker(bus).run_once() == 0
        app.close()


def _unavailable(_: str, __: Sequence[str]) -> list[SettleResult]:
    raise StoreUnavailable


class BlockingHandler:
    """A handler that blocks until the test releases it."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self._lock = threading.Condition()
        self.begun: list[str] = []
        self.most = self._now = 0

    def __call__(self, message: Message) -> None:
        with self._lock:
            self.begun.append(message.id)
            self._now += 1
            self.most = max(self.most, self._now)
            self._lock.notify_all()
        assert self.may_end.wait(TIMEOUT_S)
        with self._lock:
            self._now -= 1
            self._lock.notify_all()

    def wait_for(self, n: int) -> None:
        """Wait until `n` messages have been started."""
        with self._lock:
            assert self._lock.wait_for(lambda: len(self.begun) >= n, TIMEOUT_S), self.begun


class TestOrderingKeys:
    """Messages of one ordering key in one pull are handled one after another."""

    @pytest.fixture
    def ordered(self, store: Store) -> RecordingBus:
        """Return a bus with an ordered subscription, on the test's clock."""
        made = RecordingBus(store, jitter=lambda: 0.0)
        made.declare_all(dead_letters=True, is_ordered=True)
        return made

    @pytest.fixture
    def live_ordered(self, open_store: OpenStore) -> RecordingBus:
        """Return a bus with an ordered subscription, on the database's clock."""
        made = RecordingBus(open_store(clock=None))
        made.declare_all(dead_letters=False, is_ordered=True)
        return made

    def send(self, bus: RecordingBus, *texts: str) -> None:
        """Publish texts; the first character is the key."""
        bus.publish(
            TOPIC, [NewMessage(data=b'{"k": "%s"}' % t.encode(), ordering_key=t[0]) for t in texts]
        )

    def test_in_order(self, sink: Sink, ordered: RecordingBus) -> None:
        """No two messages of a key overlap, keys run side by side, and all are acked."""
        app = make(sink, concurrency=4)
        lock, both = threading.Lock(), threading.Barrier(2, timeout=TIMEOUT_S)
        seen: list[str] = []
        busy: set[str] = set()

        @app.on()
        def handle(message: Message) -> None:
            text = message.json["k"]
            with lock:
                assert text[0] not in busy
                busy.add(text[0])
                seen.append(text)
            both.wait()  # proves that the other key is being handled meanwhile
            with lock:
                busy.remove(text[0])

        self.send(ordered, "a1", "a2", "a3", "b1", "b2", "b3")
        assert app.worker(ordered).run_once() == 6
        for key in "ab":
            assert [t for t in seen if t[0] == key] == [f"{key}{n}" for n in (1, 2, 3)]
        assert len(ordered.acks) == 6
        assert not ordered.nacks
        app.close()

    def test_a_failure_is_not_overtaken(
        self, sink: Sink, ordered: RecordingBus, clock: VirtualClock
    ) -> None:
        """The rest of the key is released and comes again after the failed message."""
        app = make(sink, clock)
        seen: list[tuple[str, int | None]] = []

        @app.on()
        def handle(message: Message) -> None:
            text = message.json["k"]
            seen.append((text, message.attempt))
            if (text, message.attempt) == ("a2", 1):
                raise TryAgain("not yet")

        self.send(ordered, "a1", "a2", "a3", "a4")
        worker = app.worker(ordered)
        assert worker.run_once() == 4
        assert seen == [("a1", 1), ("a2", 1)]
        assert (len(ordered.acks), len(ordered.nacks), len(ordered.released)) == (1, 1, 2)
        assert worker.run_once() == 0
        clock.advance(600 * SECOND)
        while worker.run_once():
            pass
        assert seen[2:] == [("a2", 2), ("a3", 1), ("a4", 1)]
        app.close()

    def test_a_stop_releases_the_rest_of_a_key(
        self, sink: Sink, live_ordered: RecordingBus
    ) -> None:
        """A stop finishes the message in progress; those behind it cost no attempt."""
        app = make(sink, concurrency=2, outstanding=4)
        handler = BlockingHandler()
        app.on()(handler)
        self.send(live_ordered, "a1", "a2", "a3")
        worker = app.worker(live_ordered)
        worker.start()
        handler.wait_for(1)
        stopping = threading.Thread(target=worker.stop)
        stopping.start()
        assert worker._stop.wait(TIMEOUT_S)
        handler.may_end.set()
        stopping.join(TIMEOUT_S)
        assert (len(live_ordered.acks), len(live_ordered.released)) == (1, 2)
        assert [(one.data, one.attempt) for one in live_ordered.pull(SUB)] == [
            (b'{"k": "a2"}', 1),
            (b'{"k": "a3"}', 1),
        ]
        app.close()

    def test_a_long_key_leaves_capacity(self, sink: Sink, live_ordered: RecordingBus) -> None:
        """Messages queued behind their key do not use up the worker's capacity."""
        app = make(sink, concurrency=2, outstanding=2)
        handler = BlockingHandler()
        app.on()(handler)
        self.send(live_ordered, "a1", "a2", "a3")
        worker = app.worker(live_ordered)
        worker.start()
        handler.wait_for(1)
        self.send(live_ordered, "b1")
        handler.wait_for(2)
        handler.may_end.set()
        handler.wait_for(4)
        assert worker.stop()
        app.close()


class TestLoop:
    """The worker on its threads."""

    def test_bounds(self, sink: Sink, live: RecordingBus) -> None:
        """Concurrency and outstanding messages stay bounded, and all messages are handled."""
        app = make(sink, concurrency=3, outstanding=5)
        handler = BlockingHandler()
        app.on()(handler)
        publish(live, 12)
        worker = app.worker(live)
        worker.start()
        handler.wait_for(3)
        handler.may_end.set()
        handler.wait_for(12)
        assert worker.stop()
        assert (handler.most, len(set(handler.begun))) == (3, 12)
        assert app.counters() == {"applied": 12}
        app.close()

    def test_stop(self, sink: Sink, live: RecordingBus) -> None:
        """A stop finishes and acks started messages; the rest is released, no attempt counted."""
        app = make(sink, concurrency=1, outstanding=4)
        handler = BlockingHandler()
        app.on()(handler)
        publish(live, 4)
        worker = app.worker(live)
        worker.start()
        handler.wait_for(1)
        stopping = threading.Thread(target=worker.stop)
        stopping.start()
        handler.may_end.set()
        stopping.join(TIMEOUT_S)
        assert not stopping.is_alive()
        assert len(live.acks) == len(handler.begun)
        assert len(live.acks) + len(live.released) == 4
        again = live.pull(SUB)
        assert [one.attempt for one in again] == [1] * len(live.released), "a stop costs no attempt"
        assert len(again) == 4 - len(handler.begun)
        assert live.ack(SUB, live.released) == [SettleResult.STALE] * len(live.released)
        app.close()

    def test_a_stop_does_not_wait_for_full_batches(self, sink: Sink, live: RecordingBus) -> None:
        """A stop handles and acks the gathered messages."""
        app = make(sink)
        gathered = threading.Event()

        def newer(_: Message) -> tuple[str, int]:
            gathered.set()
            return "guards/1", 1

        @app.collect(max=100, wait="60s", newer=newer)
        def load(_: Batch) -> None: ...

        publish(live, 3)
        worker = app.worker(live)
        worker.start()
        assert gathered.wait(TIMEOUT_S)
        assert worker.stop()
        assert len(live.acks) + len(live.released) == 3
        assert app.counters() == {"applied": len(live.acks)}
        app.close()

    def test_a_stop_waits_a_bounded_time(self, sink: Sink, live: RecordingBus) -> None:
        """A handler that does not return in time leaves its message unacked."""
        app = make(sink, concurrency=1, drain=0)
        handler = BlockingHandler()
        app.on()(handler)
        publish(live, 1)
        worker = app.worker(live)
        worker.start()
        handler.wait_for(1)
        assert not worker.stop()
        assert live.acks == []
        handler.may_end.set()
        app.close()

    def test_failing_pulls_are_retried(
        self, sink: Sink, live: RecordingBus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker continues after failed pulls."""
        app = make(sink)
        handler = BlockingHandler()
        handler.may_end.set()
        app.on()(handler)
        failing = iter([StoreUnavailable("one"), StoreUnavailable("two")])
        real = live.pull

        def pull(*args: Any, **kwargs: Any) -> list[Delivery]:
            error = next(failing, None)
            if error is not None:
                raise error
            return real(*args, **kwargs)

        monkeypatch.setattr(live, "pull", pull)
        worker = app.worker(live)
        worker.start()
        publish(live, 1)
        handler.wait_for(1)
        assert worker.stop()
        assert app.counters() == {"applied": 1}
        app.close()


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Check that no worker thread outlives its test."""
    yield
    left = [
        t.name for t in threading.enumerate() if t.name in ("penstock-pull", "penstock-settler")
    ]
    assert left == []


def test_stop_while_the_event_is_cleared(sink: Sink, live: RecordingBus) -> None:
    """A stop just before the settling thread clears its event is not lost."""
    settler = Settler(make(sink), live)

    class StoppedWhileCleared(threading.Event):
        def clear(self) -> None:
            settler.stop()
            super().clear()

    settler._more = StoppedWhileCleared()
    thread = threading.Thread(target=settler.loop, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
