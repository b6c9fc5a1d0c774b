"""An open snapshot: throughput at saturation beside a session that is idle in a transaction.

While any transaction holds a snapshot, PostgreSQL keeps every row version that it might see, so a
queue table fills with dead rows. One process submits runs and keeps a backlog, one works them off
with all services of `penstock up`. `during` and `after` are shares of the rate before.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import psycopg

from benchmarks.load import CUSTOMERS, customers, settle
from benchmarks.raw import Raw
from benchmarks.result import Result, print_progress
from benchmarks.site import BenchDatabase, Site
from benchmarks.work import noop, worker
from penstock.assembly import settings
from penstock.assembly.process import build_scheduler_loops, build_supervisor
from penstock.audit.telemetry import Events
from penstock.client import Client
from penstock.runs.records import Submission

BACKLOG = 20_000
BATCH = 1_000
WARM_S, BEFORE_S = 10, 30
RECOVERY_S = 60
BUCKET_S = 5


def snapshot(site: Site, *, quick: bool) -> Iterator[Result]:
    """Hold a snapshot for two minutes (quick: 20 s) and release it; SQLite has no such state."""
    if site.engine == "sqlite":
        return
    held_s = int(os.environ.get("BENCH_SNAPSHOT_SECONDS", "20" if quick else "120"))
    place = site.create("snapshot")
    raw = place.raw()
    customers(place, raw)
    settle(place, raw)
    children = [_child(place, "submit"), _child(place, "work")]
    try:
        _rate(raw, "warm", WARM_S)
        before = _rate(raw, "before", BEFORE_S)
        with psycopg.connect(place.where, application_name="report") as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT count(*) FROM configs")
            during = _rate(raw, "during", held_s)
        _rate(raw, "recovering", RECOVERY_S - 2 * BUCKET_S)
        after = _rate(raw, "after", 2 * BUCKET_S)
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait(30)
    raw.close()
    site.drop(place)
    yield Result(
        bench="snapshot",
        engine=site.engine,
        value=before,
        unit="runs/s",
        n=held_s,
        extra={"during": during / before, "after": after / before},
    )


def _rate(raw: Raw, name: str, seconds: int) -> float:
    """Return the runs ended per second over a time; progress is printed per bucket."""
    began, start = time.perf_counter(), _ended(raw)
    last_at, last, buckets = began, start, []
    while last_at - began < seconds - 0.1:
        time.sleep(max(0.0, min(BUCKET_S, began + seconds - last_at)))
        at, ended = time.perf_counter(), _ended(raw)
        buckets.append(round((ended - last) / (at - last_at)))
        last_at, last = at, ended
    rate = (last - start) / (last_at - began)
    print_progress(f"{name}: {rate:.0f} runs/s; every {BUCKET_S} s {buckets}")
    return rate


def _ended(raw: Raw) -> int:
    return int(raw.rows("SELECT coalesce(sum(runs), 0)::bigint FROM run_sums")[0][0])


def _child(place: BenchDatabase, role: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "benchmarks.snapshot", role, place.where])


def _submit(place: BenchDatabase) -> None:
    """Submit indefinitely, keeping a backlog."""
    store, raw = place.store(), place.raw()
    client = Client(store)
    client.register([noop])
    numbers = random.Random(7)
    submitted = _ended(raw)
    while True:
        while submitted - _ended(raw) > BACKLOG:
            time.sleep(0.02)
        client.runs.submit_many(
            [
                Submission(pipeline="noop", customer=f"c{numbers.randint(1, CUSTOMERS)}")
                for _ in range(BATCH)
            ]
        )
        submitted += BATCH


def _work(place: BenchDatabase) -> None:
    """Work indefinitely, alongside the services of a scheduler process."""
    store = place.store()
    supervisor = build_supervisor(build_scheduler_loops(store, settings.load({}), Events(), [noop]))
    supervisor.start()
    subject = worker(store, noop)
    subject.start()
    threading.Event().wait()


if __name__ == "__main__":
    where = sys.argv[2]
    target = BenchDatabase("postgres", "snapshot", where, where)
    (_submit if sys.argv[1] == "submit" else _work)(target)
