"""PostgreSQL with the libpq pipeline and through psycopg's cursors, in alternation.

Both stores use the same database in batches of 50 calls, so that the machine's other load affects
both alike. `value` and the unprefixed fields measure the pipeline, `plain_*` measure the cursors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from benchmarks.cpu import server_seconds
from benchmarks.load import customers, settle
from benchmarks.result import Result, percentile, print_progress
from benchmarks.site import Site
from benchmarks.work import stamp
from penstock import limits
from penstock.bus.message import NewMessage, SubscriptionSpec, TopicSpec
from penstock.bus.transports.embedded import EmbeddedBus
from penstock.client import Client
from penstock.db.postgres.store import PostgresStore
from penstock.db.store import Store
from penstock.runs.records import Submission

CALLS_PER_BATCH = 50

Call = Callable[[], object]


def drivers(site: Site, *, quick: bool) -> Iterator[Result]:
    """Measure three calls of a few small statements each."""
    if site.engine != "postgres":
        return
    place = site.create("drivers")
    raw = place.raw()
    customers(place, raw, 100)
    settle(place, raw)
    raw.close()
    stores = [PostgresStore(place.where, is_pipelined=is_on) for is_on in (True, False)]
    Client(stores[0]).register([stamp])
    for name, make in (("submit", _submit), ("slot", _slot), ("message", _message)):
        print_progress(name)
        yield _result(site, name, [make(store) for store in stores], 2 if quick else 40)
    for store in stores:
        store.close()
    site.drop(place)


def _submit(store: Store) -> Call:
    client = Client(store)
    wanted = Submission(pipeline="stamp", customer="c1", parameters={"at_ns": 1})
    return lambda: client.runs.submit(wanted)


def _slot(store: Store) -> Call:
    request = limits.slot(f"slot-{id(store)}", capacity=10, client=Client(store))

    def take() -> None:
        with request:
            pass

    return take


def _message(store: Store) -> Call:
    bus, name = EmbeddedBus(store, actor="bench"), f"topic-{id(store)}"
    bus.declare([TopicSpec(name=name)], [SubscriptionSpec(name=name, topic=name)])

    def publish_and_ack() -> None:
        bus.publish(name, [NewMessage(data=b"{}")])
        bus.ack(name, [one.ack_id for one in bus.pull(name)])

    return publish_and_ack


def _result(site: Site, name: str, calls: list[Call], rounds: int) -> Result:
    walls: list[list[float]] = [[], []]
    used, served = [0.0, 0.0], [0.0, 0.0]
    for call in calls * 20:
        call()
    for _ in range(rounds):
        for place, call in enumerate(calls):
            cpu, server = time.process_time(), server_seconds(site) or 0.0
            walls[place] += [_milliseconds(call) for _ in range(CALLS_PER_BATCH)]
            used[place] += time.process_time() - cpu
            served[place] += (server_seconds(site) or 0.0) - server
    fast, plain = (percentile(samples, 0.5) for samples in walls)
    per_call = 1_000 / (rounds * CALLS_PER_BATCH)
    return Result(
        bench="drivers",
        engine="postgres",
        value=fast,
        unit="ms",
        limit=plain,
        ratio=plain / fast,
        n=rounds * CALLS_PER_BATCH,
        extra={
            "call": name,
            "p10_ms": percentile(walls[0], 0.1),
            "plain_p10_ms": percentile(walls[1], 0.1),
            "cpu_ms": used[0] * per_call,
            "plain_cpu_ms": used[1] * per_call,
            "db_cpu_ms": served[0] * per_call,
            "plain_db_cpu_ms": served[1] * per_call,
        },
    )


def _milliseconds(call: Call) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1_000
