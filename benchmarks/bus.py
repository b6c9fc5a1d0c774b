"""The embedded bus: throughput, a long backlog, and poison among good messages."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.bus_http import publish_rate
from benchmarks.result import Result, percentile, print_progress
from benchmarks.site import Site
from penstock.audit.telemetry import Events
from penstock.bus.delivery_sweeper import DeliverySweeper
from penstock.bus.message import Delivery, Nack, NewMessage, SubscriptionSpec, TopicSpec
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.core.clock import SECOND
from penstock.db.store import Store
from penstock.services.supervisor import Loop, LoopSchedule

BATCH = 500
KEYS = 1_000
FEW_KEYS = (1, 100)
BODY = b'{"game": 22500123, "team": "DEN", "points": 118, "note": "' + b"x" * 140 + b'"}'


def _bus(store: Store, *, is_ordered: bool = False, **more: Any) -> EmbeddedBus:
    made = EmbeddedBus(store, actor="bench")
    made.declare(
        [TopicSpec(name="events"), TopicSpec(name="work.dlq")],
        [
            SubscriptionSpec(
                name="work", topic="events", dead_letter_topic="work.dlq", is_ordered=is_ordered,
                **more,
            ),
        ],
    )  # fmt: skip
    return made


def _messages(
    start: int, n: int, *, is_ordered: bool = False, keys: int = KEYS
) -> list[NewMessage]:
    return [
        NewMessage(
            data=BODY,
            attributes={"n": str(i)},
            ordering_key=f"key-{i % keys}" if is_ordered else None,
        )
        for i in range(start, start + n)
    ]


def _through(bus: EmbeddedBus, n: int, *, is_ordered: bool = False) -> float:
    """Publish, deliver and ack `n` messages with one publisher and one consumer.

    Return the rate.
    """

    def publish() -> None:
        for start in range(0, n, BATCH):
            bus.publish("events", _messages(start, min(BATCH, n - start), is_ordered=is_ordered))

    publisher = threading.Thread(target=publish, daemon=True)
    began = time.perf_counter()
    publisher.start()
    done = 0
    while done < n:
        got = bus.pull("work", max_messages=BATCH, wait_seconds=5)
        assert got, f"{n - done} messages never arrived"
        bus.ack("work", [delivery.ack_id for delivery in got])
        done += len(got)
    publisher.join()
    return n / (time.perf_counter() - began)


def bus(site: Site, *, quick: bool) -> Iterator[Result]:
    """Publish, deliver, ack: in one process, every step durable, batches of 500."""
    n = 5_000 if quick else 50_000
    rates = {}
    for is_ordered in (False, True):
        place = site.create("bus")
        store = place.store()
        made = _bus(store, is_ordered=is_ordered)
        _through(made, 2 * BATCH, is_ordered=is_ordered)
        rates[is_ordered] = _through(made, n, is_ordered=is_ordered)
        store.close()
        site.drop(place)
    yield Result(
        bench="bus",
        engine=site.engine,
        value=rates[False],
        unit="messages/s",
        n=n,
        extra={
            "per_s": rates[False],
            "ordered": rates[True],
            "keys": KEYS,
            "http": publish_rate(site, BODY, n),
        },
    )


def _drained(bus: EmbeddedBus, n: int, keys: int) -> float:
    """Publish `n` messages of some ordering keys, then pull and ack them. Return the rate.

    Stop after ten seconds: the rate is that of the messages acked by then.
    """
    for start in range(0, n, BATCH):
        bus.publish("events", _messages(start, BATCH, is_ordered=True, keys=keys))
    began = time.perf_counter()
    done = 0
    while done < n and time.perf_counter() - began < 10:
        got = bus.pull("work", max_messages=BATCH)
        bus.ack("work", [delivery.ack_id for delivery in got])
        done += len(got)
    return done / (time.perf_counter() - began)


def bus_ordered(site: Site, *, quick: bool) -> Iterator[Result]:
    """Drain a backlog of one ordering key and of 100: pull and ack, batches of 500."""
    n = 5_000 if quick else 20_000
    rates = {}
    for keys in FEW_KEYS:
        place = site.create("ordered")
        store = place.store()
        rates[keys] = _drained(_bus(store, is_ordered=True), n, keys)
        store.close()
        site.drop(place)
    one, hundred = (rates[keys] for keys in FEW_KEYS)
    yield Result(
        bench="bus_ordered",
        engine=site.engine,
        value=one,
        unit="messages/s",
        n=n,
        extra={"one_key": one, "hundred_keys": hundred},
    )


def bus_backlog(site: Site, *, quick: bool) -> Iterator[Result]:
    """Measure the p99 of pulls of ten, with many and with few messages waiting."""
    many, samples = (50_000, 300) if quick else (1_000_000, 1_000)
    place = site.create("backlog")
    store = place.store()
    made = _bus(store)
    times = {}
    for waiting in (1_000, many):
        have = 0 if waiting == 1_000 else 1_000
        print_progress(f"publishing {waiting - have:,} messages")
        for start in range(have, waiting, 1_000):
            made.publish("events", _messages(start, 1_000))
        _pull_times(made, 100)
        times[waiting] = _pull_times(made, samples)
    store.close()
    site.drop(place)
    few, full = (percentile(times[size], 0.99) for size in (1_000, many))
    yield Result(
        bench="bus_backlog",
        engine=site.engine,
        value=full,
        unit="ms",
        n=many,
        extra={
            "p99_ms": full,
            "p50_ms": percentile(times[many], 0.5),
            "p99_ms_at_1000": few,
            "p50_ms_at_1000": percentile(times[1_000], 0.5),
            "ratio": full / few,
        },
    )


def _pull_times(made: EmbeddedBus, samples: int) -> list[float]:
    """Return milliseconds of pulls of ten; ack them and publish as many."""
    taken = []
    for _ in range(samples):
        began = time.perf_counter()
        got = made.pull("work", max_messages=10)
        taken.append((time.perf_counter() - began) * 1e3)
        assert len(got) == 10
        made.ack("work", [delivery.ack_id for delivery in got])
        made.publish("events", _messages(0, 10))
    return taken


def bus_poison(site: Site, *, quick: bool) -> Iterator[Result]:
    """Measure what a message that always fails costs the others, and how often it is delivered."""
    n = 2_000 if quick else 10_000
    p99 = {}
    tries = dead = 0
    for poison in (None, n // 4):
        place = site.create("poison")
        store = place.store()
        made = _bus(store, min_backoff_us=SECOND // 5, max_backoff_us=2 * SECOND)
        schedule = LoopSchedule(interval_us=SECOND // 5)
        jitter = random.Random(7).random
        loop = Loop(
            DeliverySweeper(store, jitter=jitter), schedule, store, events=Events(), jitter=jitter
        )
        loop.start()
        _paced(made, 500, None)
        delays, tries = _paced(made, n, poison)
        loop.stop()
        p99[poison] = percentile(delays, 0.99)
        dead = _dead(store)
        store.close()
        site.drop(place)
    clean, mixed = p99[None], p99[n // 4]
    yield Result(
        bench="bus_poison",
        engine=site.engine,
        value=mixed,
        unit="ms",
        n=n,
        extra={
            "p99_ms": mixed, "p99_ms_without": clean, "ratio": mixed / clean,
            "poison_deliveries": tries, "dead_letters": dead,
        },
    )  # fmt: skip


def _paced(made: EmbeddedBus, n: int, poison: int | None) -> tuple[list[float], int]:
    """Publish 2,000 a second next to a consumer; return (delays in ms, poison deliveries)."""
    sent: dict[str, float] = {}
    delays: list[float] = []
    tries = 0

    def publish() -> None:
        began = time.perf_counter()
        for start in range(0, n, 20):
            time.sleep(max(0.0, began + start / 2_000 - time.perf_counter()))
            at = time.perf_counter()
            for message in _messages(start, 20):
                sent[message.attributes["n"]] = at
            made.publish("events", _messages(start, 20))

    publisher = threading.Thread(target=publish, daemon=True)
    publisher.start()
    good = n - (poison is not None)
    while len(delays) < good or (poison is not None and tries < 5):
        good_ones: list[Delivery] = []
        for delivery in made.pull("work", max_messages=100, wait_seconds=5):
            if delivery.attributes["n"] == str(poison):
                tries += 1
                made.nack("work", [Nack(ack_id=delivery.ack_id, error="cannot be handled")])
                continue
            delays.append((time.perf_counter() - sent[delivery.attributes["n"]]) * 1e3)
            good_ones.append(delivery)
        made.ack("work", [delivery.ack_id for delivery in good_ones])
    publisher.join()
    return delays, tries


def _dead(store: Store) -> int:
    return int(
        store.read(
            lambda tx: tx._connection.execute(  # type: ignore[attr-defined]
                "SELECT count(*) FROM dead_letters"
            ).fetchone()[0]
        )
    )
