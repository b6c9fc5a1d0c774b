"""Counters and effects are exact under redelivery, reordering, lost acks and concurrency."""

import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.bus.message import NewMessage, SettleResult
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.consumer import Consumer, ConsumerOptions, Message, Reject, TryAgain, Upsert
from penstock.core.clock import MINUTE, Clock, SystemClock
from penstock.db.store import Store
from penstock.sinks.protocol import Sink
from penstock.sinks.sqlite import SqliteSink
from penstock.testing.clock import VirtualClock
from tests.conftest import CLOCK_START
from tests.consumer.conftest import OpenSink
from tests.consumer.kit import DEAD_LETTERS, SUB, TOPIC, RecordingBus
from tests.consumer.test_rules import wipe


def make(sink: Sink, clock: Clock | None = None, **more: Any) -> Consumer:
    """Create a consumer of numbered things that fails where a delivery requests it."""
    options = ConsumerOptions(log=lambda _: None, concurrency=4, clock=clock or SystemClock())
    app = Consumer(SUB, sink=sink, options=options, **more)

    @app.on()
    def thing(message: Message) -> Upsert:
        if message.json["bad"]:
            raise Reject("bad")
        if message.attributes.get("fails"):
            raise TryAgain("not now")
        n, version = message.json["n"], message.json["v"]
        return Upsert(path=f"things/{n % 3}", fields={"v": version}, version=version,
                      add={"count": 1})  # fmt: skip

    return app


def message(n: int, version: int, *, bad: bool = False, fails: bool = False) -> Message:
    data = json.dumps({"n": n, "v": version, "bad": bad}).encode()
    attributes = {"fails": "1"} if fails else {}
    return Message(id=f"m{n}", data=data, attributes=attributes, subscription=SUB)


THINGS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=6)


class TestAnyOrder:
    """A model of the rules and the kit agree on every history."""

    @settings(
        max_examples=40,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(things=THINGS, data=st.data())
    def test_histories(self, tmp_path: Path, things: list[tuple[int, bool]], data: Any) -> None:
        """Counters and documents are exact for any order and number of deliveries and failures."""
        sink = SqliteSink(tmp_path / "state.db", clock=VirtualClock(CLOCK_START))
        wipe(sink)
        app = make(sink)
        deliveries = data.draw(
            st.lists(st.tuples(st.integers(0, len(things) - 1), st.booleans()), max_size=20)
        )
        counted: Counter[str] = Counter()
        fates: dict[int, str] = {}
        documents: dict[int, dict[str, int]] = {}
        for n, fails in deliveries:
            version, bad = things[n]
            got = app.handle(message(n, version, bad=bad, fails=fails)).outcome.value
            document = documents.get(n % 3, {"v": -1, "count": 0})
            if fates.get(n) in ("applied", "stale_ignored"):
                expected = "duplicate"
            elif bad:
                expected = "poison"
            elif fails:
                expected = "retry"
            else:
                expected = "applied" if version >= document["v"] else "stale_ignored"
            assert got == expected
            if expected == "applied":
                documents[n % 3] = {"v": version, "count": document["count"] + 1}
            if expected == "poison" and fates.get(n) == "poison":
                continue  # counted on its first delivery
            if expected != "retry":
                counted[expected] += 1
            if expected != "duplicate":
                fates[n] = expected
        assert app.counters() == dict(counted)
        stored = {k: sink.document(f"things/{k}") for k in range(3)}
        assert {k: dict(d.fields) for k, d in stored.items() if d is not None} == documents
        app.close()

    def test_concurrent_workers(self, open_sink: OpenSink) -> None:
        """Concurrent workers that get each message several times produce the same totals."""
        apps = [make(open_sink()) for _ in range(2)]
        apps[0].sink.check()
        deliveries = [n for n in range(15) for _ in range(5)]
        Random(7).shuffle(deliveries)

        def handle(at: int) -> str:
            n = deliveries[at]
            return apps[at % 2].handle(message(n, 1, bad=n % 5 == 0)).outcome.value

        with ThreadPoolExecutor(6) as threads:
            outcomes = Counter(threads.map(handle, range(len(deliveries))))
        assert outcomes == {"applied": 12, "duplicate": 48, "poison": 15}
        assert apps[0].counters() == {"applied": 12, "duplicate": 48, "poison": 3}
        found = [apps[1].sink.document(f"things/{k}") for k in range(3)]
        assert sum(d.fields["count"] for d in found if d is not None) == 12
        for app in apps:
            app.close()


class AckLosingBus(RecordingBus):
    """A bus that loses two of every three of the first twelve acks."""

    def ack(self, subscription: str, ack_ids: Sequence[str], **_: Any) -> list[SettleResult]:
        for index, ack_id in enumerate(ack_ids, start=len(self.acks)):
            if index >= 12 or index % 3 == 0:
                EmbeddedBus.ack(self, subscription, [ack_id])
        self.acks += ack_ids
        return [SettleResult.DONE] * len(ack_ids)


@pytest.mark.parametrize("dead_letters", [True, False], ids=["dlq", "no-dlq"])
def test_from_bus_to_sink(
    sink: Sink, store: Store, clock: VirtualClock, dead_letters: bool
) -> None:
    """Publish, pull, handle and write with duplicates, poison and errors until the bus is empty."""
    bus = AckLosingBus(store)
    bus.declare_all(dead_letters=dead_letters)
    failing = {f"{n}" for n in range(0, 30, 7)}
    tried: set[str] = set()

    def gate(message: Message) -> None:
        n = str(message.json["n"])
        if n in failing - tried:
            tried.add(n)
            raise ConnectionError("the first attempt always fails")

    app = make(sink, clock, dead_letters=dead_letters, gate=gate)
    bus.publish(
        TOPIC,
        [
            NewMessage(data=json.dumps({"n": n, "v": 1, "bad": n % 10 == 3}).encode())
            for n in range(30)
        ],
    )
    worker = app.worker(bus)
    for _ in range(40):
        worker.run_once(max_messages=7)
        clock.advance(5 * MINUTE)
    assert bus.pull(SUB) == []
    counters = app.counters()
    assert (counters["applied"], counters["poison"]) == (27, 3)
    assert counters["duplicate"] + app.tally["poison"] - 3 == 8  # one per lost ack
    assert app.tally["retry"] == len(failing)
    found = [sink.document(f"things/{k}") for k in range(3)]
    assert sum(d.fields["count"] for d in found if d is not None) == 27
    dead = [json.loads(delivery.data)["n"] for delivery in bus.pull(DEAD_LETTERS)]
    assert sorted(dead) == ([3, 13, 23] if dead_letters else [])
    assert len(sink.audits(SUB)) == (0 if dead_letters else 3)
    app.close()
