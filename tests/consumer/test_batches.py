"""Messages handled in batches, each with its own outcome."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock import TransientError
from penstock.bus.message import NewMessage
from penstock.consumer import (
    Batch,
    Consumer,
    ConsumerOptions,
    Message,
    Reject,
    SinkTx,
    Upsert,
)
from penstock.core.errors import DeclarationError
from penstock.db.store import Store
from penstock.sinks.protocol import Sink
from tests.consumer.kit import SUB, TOPIC, RecordingBus

WAIT = 60.0


def make(sink: Sink, **more: Any) -> Consumer:
    return Consumer(SUB, sink=sink, options=ConsumerOptions(log=lambda _: None, **more))


def outcomes(app: Consumer, ids: list[str]) -> list[str]:
    """Submit messages together and return their outcomes."""
    futures = [
        app.submit(Message(id=one, data=f'{{"id": "{one}"}}'.encode(), subscription=SUB))
        for one in ids
    ]
    return [future.result(WAIT).outcome.value for future in futures]


def stored(sink: Sink, ids: list[str]) -> list[bool]:
    return [sink.document(f"rows/{one}") is not None for one in ids]


def row(message: Message) -> Upsert:
    return Upsert(path=f"rows/{message.json['id']}", fields={"id": message.json["id"]})


class TestCollecting:
    """When a batch is passed to the handler."""

    def test_full_or_late(self, sink: Sink) -> None:
        """Full batches are handled at once, the rest after the wait."""
        app = make(sink)
        sizes: list[int] = []

        @app.collect(max=3, wait=0.05)
        def load(batch: Batch) -> list[Upsert]:
            sizes.append(len(batch))
            return [row(message) for message in batch]

        ids = [str(n) for n in range(7)]
        assert outcomes(app, ids) == ["applied"] * 7
        assert sum(sizes) == 7
        assert max(sizes) <= 3
        assert stored(sink, ids) == [True] * 7
        assert app.counters() == {"applied": 7}
        app.close()

    def test_more_than_there_are_threads(self, sink: Sink) -> None:
        """Waiting for a batch holds no thread: two threads can fill a batch of thirty."""
        app = make(sink, concurrency=2)
        sizes: list[int] = []

        @app.collect(max=30, wait="60s")
        def load(batch: Batch) -> None:
            sizes.append(len(batch))

        assert outcomes(app, [str(n) for n in range(60)]) == ["applied"] * 60
        assert sizes == [30, 30]
        app.close()

    def test_closing_flushes(self, sink: Sink) -> None:
        """Closing the consumer handles the gathered messages first."""
        app = make(sink)
        begun = threading.Event()

        def newer(_: Message) -> tuple[str, int]:
            begun.set()
            return "guards/1", 1

        @app.collect(max=30, wait="60s", newer=newer)
        def load(batch: Batch) -> None:
            assert len(batch) == 1

        future = app.submit(Message(id="1", data=b"{}", subscription=SUB))
        assert begun.wait(WAIT)
        closing = threading.Thread(target=app.close)
        closing.start()
        assert future.result(WAIT).outcome == "applied"
        closing.join(WAIT)

    def test_async(self, sink: Sink) -> None:
        """An async handler can handle batches, too."""
        app = make(sink)

        @app.collect(max=2, wait="60s")
        async def load(batch: Batch) -> dict[str, Upsert]:
            return {message.id: row(message) for message in batch}

        assert outcomes(app, ["a", "b"]) == ["applied"] * 2
        app.close()

    def test_declarations(self, sink: Sink) -> None:
        """Batch size and wait have the same bounds as for collected runs."""
        app = make(sink)
        for bad in (0, 1_001, True):
            with pytest.raises(DeclarationError, match=r"collect\.max"):
                app.collect(max=bad)
        with pytest.raises(DeclarationError, match=r"collect\.wait"):
            app.collect(wait="61s")


def returned(batch: Batch) -> Any:
    """Return errors as results."""
    return [Reject("bad") if m.id == "b" else TransientError("no") if m.id == "c" else row(m)
            for m in batch]  # fmt: skip


def reported(batch: Batch) -> Any:
    """Report errors one by one, and return results by id."""
    found: dict[str, Any] = {}
    for message in batch:
        with batch.item(message):
            if message.id == "b":
                raise ValueError("bad")
            if message.id == "c":
                raise ConnectionError("no")
            found[message.id] = row(message)
    return found


def refused(batch: Batch) -> Any:
    """Return writes that the sink refuses."""
    bad = {"b": Upsert(path="a//b"), "c": Upsert(path="rows/fenced", token=1)}
    return [bad.get(m.id) or row(m) for m in batch]


def inside(batch: Batch, tx: SinkTx) -> Any:
    """Report errors inside the transaction, and insert the user's own rows."""
    for message in batch:
        with batch.item(message):
            tx.execute("INSERT INTO own (id) VALUES (:id)", {"id": message.id})
            if message.id == "b":
                raise ValueError("bad")
            if message.id == "c":
                raise ConnectionError("no")
    return None


class TestOutcomes:
    """Every message of a batch has its own outcome."""

    @pytest.mark.parametrize("handler", [returned, reported, refused, inside])
    def test_one_by_one(self, sink: Sink, handler: Callable[..., Any]) -> None:
        """Poison and failed messages do not affect the others; failed ones can be redelivered."""

        def prepare(tx: SinkTx) -> None:
            tx.upsert(Upsert(path="rows/fenced", token=2))
            tx.execute("CREATE TABLE own (id text PRIMARY KEY)")

        sink.transact(prepare)
        app = make(sink)
        app.collect(max=4, wait="60s")(handler)
        assert outcomes(app, ["a", "b", "c", "d"]) == ["applied", "poison", "retry", "applied"]
        assert app.counters() == {"applied": 2, "poison": 1}
        assert [record.message_id for record in sink.audits(SUB)] == ["b"]
        assert sink.fate(SUB, "c") is None
        if handler is inside:
            rows = sink.transact(lambda tx: tx.execute("SELECT id FROM own ORDER BY id"))
            assert rows == [("a",), ("d",)]
        else:
            assert stored(sink, ["a", "b", "c", "d"]) == [True, False, False, True]
        assert outcomes(app, ["a", "e", "f", "g", "h"]) == ["duplicate"] + ["applied"] * 4
        app.close()

    @pytest.mark.parametrize(
        "wrong",
        [RuntimeError("all"), ValueError("all"), [None], {"z": None}, "rows", 7],
        ids=lambda wrong: type(wrong).__name__,
    )
    def test_the_whole_call(self, sink: Sink, wrong: Any) -> None:
        """If the call fails or returns an invalid value, all are retried and nothing is stored."""
        app = make(sink)
        values = iter([wrong])

        @app.collect(max=3, wait="60s")
        def load(_: Batch) -> Any:
            value = next(values, None)
            if isinstance(value, Exception):
                raise value
            return value

        assert outcomes(app, ["a", "b", "c"]) == ["retry"] * 3
        assert app.counters() == {}
        assert outcomes(app, ["a", "b", "c"]) == ["applied"] * 3
        app.close()

    def test_the_same_message_twice_in_a_batch(self, sink: Sink) -> None:
        """The handler gets it once; the second delivery is a duplicate."""
        app = make(sink)
        seen: list[str] = []

        @app.collect(max=3, wait="60s")
        def load(batch: Batch) -> None:
            seen.extend(message.id for message in batch)

        assert sorted(outcomes(app, ["a", "a", "b"])) == ["applied", "applied", "duplicate"]
        assert sorted(seen) == ["a", "b"]
        assert app.counters() == {"applied": 2, "duplicate": 1}
        app.close()

    def test_results_are_for_members(self) -> None:
        """Results may cover all or some messages of the batch, but no others."""
        message = Message(id="a", data=b"")
        assert Batch([message]).results({"a": 1}) == {"a": 1}
        with pytest.raises(DeclarationError, match="not in the batch"):
            Batch([message]).results({"b": 1})


def test_over_the_bus(sink: Sink, store: Store) -> None:
    """A pull worker batches the messages it pulls."""
    bus = RecordingBus(store)
    bus.declare_all(dead_letters=False)
    app = make(sink, concurrency=2)

    @app.collect("row", max=5, wait=0.05)
    def load(batch: Batch) -> list[Upsert]:
        return [row(message) for message in batch]

    data = [b'{"id": "%d"}' % n for n in range(12)]
    bus.publish(TOPIC, [NewMessage(data=one, attributes={"event_type": "row"}) for one in data])
    assert app.worker(bus).run_once() == 12
    assert stored(sink, [str(n) for n in range(12)]) == [True] * 12
    assert len(bus.acks) == 12
    app.close()
