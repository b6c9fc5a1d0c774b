"""Heartbeats: the cost of 5,000 live runs, one heartbeat each per 10 s, for database and worker.

A built-in worker renews one session for all its runs and writes the progress that changed. Each run
of an external worker has its own lease, renewed in batches. Heartbeats are sent as fast as possible
and their CPU is scaled to the real rate, because a tick of /proc is a hundredth of a second.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator

from benchmarks.cpu import server_seconds
from benchmarks.load import customers, settle
from benchmarks.raw import PostgresRaw, Raw, SqliteRaw
from benchmarks.result import Result, print_progress
from benchmarks.site import Site
from benchmarks.work import hold
from penstock.client import Client
from penstock.core.clock import SECOND, SystemClock
from penstock.db.store import Store
from penstock.runs.records import Submission
from penstock.runs.store.leases import lease_extend_many, lease_take_many
from penstock.worker.context import RunContext
from penstock.worker.options import WorkerOptions
from penstock.worker.session import Renewal
from penstock.worker.worker_core import WorkerCore

RUNS = 5_000
PERIOD_SECONDS = 10
# A worker checks for changed progress every two seconds, so a period has five heartbeats.
HEARTBEATS = 5
SHARE = 0.2
LEASE_BATCH = 500

PROGRESS_PG = """
INSERT INTO progress (run_id, stage, percent, records_loaded, beat_at)
SELECT run_id, 'transform', percent, 17, db_now()
FROM unnest(%(ids)s::bigint[], %(percents)s::float8[]) AS b(run_id, percent)
ON CONFLICT (run_id) DO UPDATE SET stage = excluded.stage, percent = excluded.percent,
    records_loaded = excluded.records_loaded, beat_at = excluded.beat_at
"""
PROGRESS_LITE = """
INSERT INTO progress (run_id, stage, percent, records_loaded, beat_at)
VALUES (?, 'transform', ?, 17, 1)
ON CONFLICT (run_id) DO UPDATE SET stage = excluded.stage, percent = excluded.percent,
    records_loaded = excluded.records_loaded, beat_at = excluded.beat_at
"""


def heartbeat(site: Site, *, quick: bool) -> Iterator[Result]:
    """5,000 runs of one session, a fifth with new progress per period; then 5,000 leases."""
    periods = 10 if quick else 60
    place = site.create("heartbeat")
    raw = place.raw()
    customers(place, raw, 100)
    settle(place, raw)
    store = place.store()
    steps, contexts = _started(store)
    sender = _HeartbeatSender(steps, contexts)
    sender.period()
    print_progress(f"{periods} periods of {HEARTBEATS} heartbeats")
    server, worker = _percent(site, periods, sender.period)
    leases = [("run", c.held.run_id, c.held.token, "outside", 300 * SECOND) for c in contexts]
    store.write(lambda tx: lease_take_many(tx, leases))
    extend = _Extends(store, leases)
    lease_server, lease_worker = _percent(site, periods, extend.period)
    limit_server, limit_worker = _percent(site, periods, lambda: _raw_period(raw, contexts))
    store.close()
    raw.close()
    site.drop(place)
    # SQLite runs inside the worker: its cost is the worker's figure.
    value = worker if server is None else server
    limit = limit_worker if limit_server is None else limit_server
    yield Result(
        bench="heartbeat",
        engine=site.engine,
        value=value,
        unit="% of a core",
        limit=limit,
        ratio=limit / value if value else None,
        n=RUNS,
        extra={
            "db_cpu_pct": server or 0.0,
            "worker_cpu_pct": worker,
            "external_db_cpu_pct": lease_server or 0.0,
            "external_worker_cpu_pct": lease_worker,
            "progress_share": SHARE,
        },
    )


def _started(store: Store) -> tuple[WorkerCore, list[RunContext]]:
    """Return a worker without threads that holds 5,000 runs."""
    client = Client(store)
    client.register([hold])
    for _ in range(0, RUNS, 1_000):
        client.runs.submit_many([Submission(pipeline="hold", customer="c1")] * 1_000)
    options = WorkerOptions(concurrency=RUNS, name="bench", pid=os.getpid())
    jitter = random.Random(7).random
    steps = WorkerCore(store, [hold], options, clock=SystemClock(), jitter=jitter)
    steps.open()
    contexts: list[RunContext] = []
    while len(contexts) < RUNS:
        for held in steps.claim_once(options.batch_max, start=True):
            context = steps.begin(held, time.monotonic())
            assert context is not None
            contexts.append(context)
    return steps, contexts


class _HeartbeatSender:
    """One period of the built-in worker."""

    def __init__(self, steps: WorkerCore, contexts: list[RunContext]) -> None:
        self._steps = steps
        self._contexts = contexts
        self._next = 0

    def period(self) -> None:
        """Send five heartbeats; before each, some runs report progress."""
        count = int(RUNS * SHARE / HEARTBEATS)
        for _ in range(HEARTBEATS):
            for _ in range(count):
                context = self._contexts[self._next % RUNS]
                self._next += 1
                context.progress(percent=self._next / RUNS % 100, stage="transform", loaded=17)
            assert self._steps.heartbeat_once() is Renewal.RENEWED


class _Extends:
    """One period of runs held by external workers."""

    def __init__(self, store: Store, leases: list[tuple[str, int, int, str, int]]) -> None:
        self._store = store
        rows = [(kind, run, token, until) for kind, run, token, _, until in leases]
        self._batches = [rows[i : i + LEASE_BATCH] for i in range(0, RUNS, LEASE_BATCH)]

    def period(self) -> None:
        """Renew every lease once, in batches."""
        for batch in self._batches:
            kept = self._store.write(lambda tx, batch=batch: lease_extend_many(tx, batch))  # type: ignore[misc]
            assert len(kept) == LEASE_BATCH, len(kept)


def _raw_period(raw: Raw, contexts: list[RunContext]) -> None:
    """Do the same writes by hand: the session's row five times, progress of a fifth of the runs."""
    count = int(RUNS * SHARE / HEARTBEATS)
    for number in range(HEARTBEATS):
        ids = [context.held.run_id for context in contexts[number * count : (number + 1) * count]]
        raw.run("BEGIN")
        raw.run("UPDATE sessions SET beat_at = beat_at + 1, until_at = until_at + 1")
        if isinstance(raw, PostgresRaw):
            raw.run(PROGRESS_PG, {"ids": ids, "percents": [float(i % 100) for i in ids]})
        elif isinstance(raw, SqliteRaw):
            raw.many(PROGRESS_LITE, [(run_id, float(run_id % 100)) for run_id in ids])
        raw.run("COMMIT")


def _percent(site: Site, periods: int, period: Callable[[], None]) -> tuple[float | None, float]:
    """Return the CPU of the server and of this process, in percent of a core at the real rate."""
    server, mine = server_seconds(site), time.process_time()
    for _ in range(periods):
        period()
    used = time.process_time() - mine
    after = server_seconds(site)
    real = periods * PERIOD_SECONDS
    theirs = None if server is None or after is None else (after - server) / real * 100
    return theirs, used / real * 100
