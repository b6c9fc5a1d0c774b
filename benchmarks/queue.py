"""The queue: one worker process, no-op processors, history and journal written."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.load import CUSTOMERS, customers, declare, settle
from benchmarks.raw import Raw
from benchmarks.raw_queue import drain, enqueue
from benchmarks.result import Result, print_progress
from benchmarks.site import BenchDatabase, Site
from benchmarks.work import noop, worker
from penstock.client import Client
from penstock.runs.records import Submission

ENQUEUE_BATCH = 1_000
CLAIM_BATCH = 500
ROUNDS = 2


def queue(site: Site, *, quick: bool) -> Iterator[Result]:
    """Bulk enqueue, then drain; per second and end to end; the best of two rounds."""
    n = 10_000 if quick else (60_000 if site.engine == "postgres" else 100_000)
    limits: list[tuple[float, float]] = []
    rounds: list[_Round] = []
    for _ in range(ROUNDS):
        limits.append(_limits(site, n))
        rounds.append(_round(site, n))
        print_progress(f"{rounds[-1]}; hand-written enqueue, drain: {limits[-1]}")
    best = max(rounds, key=lambda r: r.value)
    limit = max(drain for _, drain in limits)
    yield Result(
        bench="queue",
        engine=site.engine,
        value=best.value,
        unit="runs/s",
        limit=limit,
        ratio=best.drain / limit,
        n=n,
        extra={
            "drain": best.drain,
            "enqueue": best.enqueue,
            "enqueue_limit": max(enqueue for enqueue, _ in limits),
        },
    )


class _Round(NamedTuple):
    """Runs per second of one round."""

    value: float
    drain: float
    enqueue: float


def _round(site: Site, n: int) -> _Round:
    place = site.create("queue")
    raw = place.raw()
    customers(place, raw)
    settle(place, raw)
    store = place.store()
    client = Client(store)
    client.register([noop])
    batches = [
        [
            Submission(pipeline="noop", customer=f"c{1 + (i * 7_919) % CUSTOMERS}")
            for i in range(start, start + ENQUEUE_BATCH)
        ]
        for start in range(0, n, ENQUEUE_BATCH)
    ]
    began = time.perf_counter()
    for batch in batches:
        client.runs.submit_many(batch)
    enqueued = time.perf_counter()
    subject = worker(store, noop)
    subject.start()
    while _ended(raw) < n:
        time.sleep(0.02)
    drained = time.perf_counter()
    subject.stop()
    store.close()
    _check(raw, n)
    raw.close()
    site.drop(place)
    return _Round(n / (drained - began), n / (drained - enqueued), n / (enqueued - began))


def _limits(site: Site, n: int) -> tuple[float, float]:
    place: BenchDatabase = site.create("queue_limit")
    declare(place)
    raw = place.raw()
    customers(place, raw)
    settle(place, raw)
    began = time.perf_counter()
    enqueue(raw, n, ENQUEUE_BATCH)
    enqueued = time.perf_counter()
    count = drain(raw, CLAIM_BATCH)
    drained = time.perf_counter()
    assert count == n, (count, n)
    raw.close()
    site.drop(place)
    return n / (enqueued - began), n / (drained - enqueued)


def _ended(raw: Raw) -> int:
    """Return how many runs have ended, from the sums that finishing transactions append."""
    return int(raw.rows("SELECT coalesce(sum(runs), 0) FROM run_sums")[0][0])


def _check(raw: Raw, n: int) -> None:
    history = raw.rows("SELECT count(*), count(DISTINCT run_id) FROM history")[0]
    assert history == (n, n), history
    journal = raw.rows("SELECT count(*) FROM journal WHERE action IN ('created', 'ended')")[0][0]
    assert journal == 2 * n, journal
    assert raw.rows("SELECT count(*) FROM runs")[0][0] == 0
