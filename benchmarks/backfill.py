"""A backfill of many partitions of three no-op phases, from its start to its end."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from benchmarks.cascade import orchestrator_loop
from benchmarks.result import Result, print_progress
from benchmarks.site import Site
from benchmarks.work import worker
from penstock import Pipeline, text
from penstock.audit.telemetry import Events
from penstock.client import Client
from penstock.core.clock import SECOND
from penstock.db.store import Store
from penstock.recovery.backfiller import Backfiller
from penstock.recovery.records import BackfillRequest
from penstock.services.supervisor import Loop, LoopSchedule
from penstock.worker.context import RunContext

PHASES = ("raw", "analytics", "publish")
PARALLELISM = (64, 8)
"""The figure is that of the last one."""


def _pipeline() -> Pipeline:
    made, before = Pipeline("steps", partition=text("day")), None
    for name in PHASES:
        before = made.phase(name, after=before)
        before.processor(f"{name}_it")(_nothing)
    return made


def _nothing(_: RunContext) -> None:
    """Return immediately."""


def backfill(site: Site, *, quick: bool) -> Iterator[Result]:
    """Measure partitions per second with 64 and with 8 in progress."""
    many = 100 if quick else 1_000
    place = site.create("backfill")
    store = place.store()
    client, pipeline = Client(store), _pipeline()
    client.register([pipeline])
    subject, cascade = worker(store, pipeline), orchestrator_loop(store)
    schedule = LoopSchedule(interval_us=SECOND, channels=("backfill",))
    jitter = random.Random(7).random
    loop = Loop(Backfiller(store), schedule, store, events=Events(), jitter=jitter)
    for one in (cascade, loop, subject):
        one.start()
    subject.started.wait(30)
    _rate(client, "warm", 50, 8)
    rates = {n: _rate(client, f"with{n}", many, n) for n in PARALLELISM}
    for one in (loop, cascade, subject):
        one.stop()
    _check(store, many)
    store.close()
    site.drop(place)
    yield Result(
        bench="backfill",
        engine=site.engine,
        value=rates[PARALLELISM[-1]],
        unit="partitions/s",
        n=many,
        extra={f"parallelism_{n}": rate for n, rate in rates.items()},
    )


def _rate(client: Client, name: str, many: int, parallelism: int) -> float:
    """Start a backfill and wait for its end; return partitions per second."""
    names = [f"{name}-{n:05}" for n in range(many)]
    request = BackfillRequest(pipeline="steps", partitions=names, parallelism=parallelism)
    began = time.perf_counter()
    made = client.backfills.start(request).backfill
    assert made is not None
    deadline = time.monotonic() + 300
    while (now := client.backfills.get(made.backfill_id)).ended_at is None:
        assert time.monotonic() < deadline, now
        time.sleep(0.02)
    took = time.perf_counter() - began
    assert (now.state, now.counts) == ("COMPLETE", {"COMPLETE": many}), now
    print_progress(f"backfill: {many} partitions, {parallelism} at a time, {took:.1f} s")
    return many / took


def _check(store: Store, many: int) -> None:
    """Check that every partition has exactly one flow and one completion per phase."""
    query = "SELECT count(*), count(DISTINCT partition) FROM flows WHERE state = 'COMPLETE'"
    completions = "SELECT count(*) FROM completions"
    total = 50 + len(PARALLELISM) * many
    flows, partitions = store.read(lambda tx: tx._connection.execute(query).fetchone())  # type: ignore[attr-defined]
    (done,) = store.read(lambda tx: tx._connection.execute(completions).fetchone())  # type: ignore[attr-defined]
    assert (flows, partitions, done) == (total, total, total * len(PHASES)), (flows, done)
