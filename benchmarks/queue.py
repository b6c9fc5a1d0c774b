"""The queue: one worker process, no-op processors, history and journal written."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.load import CUSTOMERS, customers, declare, settle
from benchmarks.raw import Raw
from benchmarks.raw_queue import drain, enqueue
from benchmarks.result import Result, say
from benchmarks.site import Place, Site
from benchmarks.work import noop, worker
from penstock.client import Client
from penstock.client.runs import Submission

ENQUEUE_BATCH = 1_000
CLAIM_BATCH = 500


def queue(site: Site, *, quick: bool) -> Iterator[Result]:
    """Bulk enqueue, then drain; both per second, and end to end."""
    n = 10_000 if quick else (60_000 if site.engine == "postgres" else 100_000)
    enqueue_limit, limit = _limits(site, n)
    say(f"hand-written: enqueue {enqueue_limit:,.0f}/s, drain {limit:,.0f}/s")
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
    rate = n / (drained - enqueued)
    yield Result(
        bench="queue",
        engine=site.engine,
        value=n / (drained - began),
        unit="runs/s",
        limit=limit,
        ratio=rate / limit,
        n=n,
        extra={
            "drain": rate,
            "enqueue": n / (enqueued - began),
            "enqueue_limit": enqueue_limit,
        },
    )


def _limits(site: Site, n: int) -> tuple[float, float]:
    place: Place = site.create("queue_limit")
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
    """How many runs have ended, from the sums each finishing transaction appends."""
    return int(raw.rows("SELECT coalesce(sum(runs), 0) FROM run_sums")[0][0])


def _check(raw: Raw, n: int) -> None:
    history = raw.rows("SELECT count(*), count(DISTINCT run_id) FROM history")[0]
    assert history == (n, n), history
    journal = raw.rows("SELECT count(*) FROM journal WHERE action IN ('created', 'ended')")[0][0]
    assert journal == 2 * n, journal
    assert raw.rows("SELECT count(*) FROM runs")[0][0] == 0
