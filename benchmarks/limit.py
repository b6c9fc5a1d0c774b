"""Limits: the cost of a slot, alone and among 64 contenders, and the order of waiters.

Uncontended: acquire and release in one thread, through Penstock and by hand-written SQL (lock,
count, insert, delete in two durable transactions). Contended: two processes of 32 threads on one
limit of 10, with no work while holding; redis-py's lock likewise, if a Redis server is installed.
Fair: 1,000 waiters of two processes behind a closed limit, every tenth of full weight; tokens must
follow tickets.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.raw import PostgresRaw, Raw
from benchmarks.redis_lock import redis_figures
from benchmarks.result import Result, percentile, print_progress
from benchmarks.site import BenchDatabase, Site
from penstock import limits
from penstock.limits.rules import LimitSettings
from penstock.limits.slots.registry import broker_for_store
from penstock.limits.store.limits import limit_alter, limit_ensure
from penstock.limits.store.reads import limit_list

CAPACITY = 10
WARM_UP = 1_000
"""Until SQLite's log has its full length: a commit that extends a file takes longer."""
RAW_PG = (
    "BEGIN",
    "SELECT capacity FROM limits WHERE name = 'raw' FOR NO KEY UPDATE",
    "SELECT coalesce(sum(weight), 0) FROM limit_leases e JOIN limits l USING (limit_id) "
    "WHERE l.name = 'raw'",
    "INSERT INTO limit_leases (limit_id, token, holder, request, asked_at, since_at) "
    "SELECT limit_id, nextval('token_seq'), 'raw', 'raw', 1, 1 FROM limits WHERE name = 'raw'",
    "COMMIT",
    "BEGIN",
    "SELECT capacity FROM limits WHERE name = 'raw' FOR NO KEY UPDATE",
    "DELETE FROM limit_leases WHERE request = 'raw'",
    "COMMIT",
)
RAW_LITE = tuple(
    text.replace(" FOR NO KEY UPDATE", "")
    .replace("nextval('token_seq')", "1")
    .replace("BEGIN", "BEGIN IMMEDIATE")
    for text in RAW_PG
)


def limit(site: Site, *, quick: bool) -> Iterator[Result]:
    """Measure the cost of a slot."""
    place = site.create("limit")
    store = place.store()
    limits.use(store)
    raw = place.raw()
    alone, by_hand, used = _alternating(raw, 2 if quick else 10)
    raw.close()
    broker_for_store(store).close()
    limits.use(None)
    print_progress("64 contenders in 2 processes")
    seconds = 3 if quick else 10
    parts = processes(place, [{"mode": "contend", "threads": 32, "capacity": CAPACITY,
                               "seconds": seconds}] * 2)  # fmt: skip
    pairs = sum(sum(part["counts"]) for part in parts)
    rate = pairs / max(part["seconds"] for part in parts)
    counts = [count for part in parts for count in part["counts"]]
    tokens = sorted(tuple(pair) for part in parts for pair in part["tokens"])
    (view,) = store.read(lambda tx: limit_list(tx, name="bench"))
    store.close()
    site.drop(place)
    redis = redis_figures(quick=quick)
    p50 = percentile(alone, 0.5)
    limit_p50 = percentile(by_hand, 0.5)
    yield Result(
        bench="limit",
        engine=site.engine,
        value=p50,
        unit="ms",
        limit=limit_p50,
        ratio=limit_p50 / p50,
        n=len(alone),
        extra={
            "uncontended_p50_ms": p50,
            "uncontended_p99_ms": percentile(alone, 0.99),
            "uncontended_cpu_ms": used,
            "contended_s": rate,
            "contended_pairs": pairs,
            "served_least": min(counts),
            "served_most": max(counts),
            "inversions": _inversions(tokens),
            "left_behind": view.held,
            **redis,
        },
    )


def limit_fair(site: Site, *, quick: bool) -> Iterator[Result]:
    """Check that 1,000 waiters are served in ticket order."""
    threads = 100 if quick else 500
    place = site.create("limit_fair")
    store = place.store()
    closed = store.write(lambda tx: limit_ensure(tx, "fair", LimitSettings(capacity=0)))
    jobs = [{"mode": "queue", "threads": threads, "capacity": CAPACITY}] * 2
    with Processes(place, jobs) as both:
        both.go()
        while True:
            (view,) = store.read(lambda tx: limit_list(tx, name="fair"))
            if view.waiting == 2 * threads:
                break
            time.sleep(0.05)
        connections = _connections(place)
        began = time.perf_counter()
        terms = LimitSettings(capacity=CAPACITY)
        _, served = store.write(lambda tx: limit_alter(tx, closed.limit_id, terms, actor="bench"))
        store.wake(served.channels)
        parts = both.reports()
    seconds = time.perf_counter() - began
    order = sorted(tuple(pair) for part in parts for pair in part["order"])
    store.close()
    site.drop(place)
    yield Result(
        bench="limit_fair",
        engine=site.engine,
        value=len(order) / seconds,
        unit="grants/s",
        n=len(order),
        extra={"inversions": _inversions(order), "connections_of_waiters": connections},
    )


class Processes:
    """Worker processes that are ready and wait for a signal to start."""

    def __init__(self, place: BenchDatabase, jobs: Sequence[dict[str, Any]]) -> None:
        self._made = [start(place, job) for job in jobs]

    def __enter__(self) -> Processes:
        for process in self._made:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._made:
            process.kill()
            process.wait()

    def go(self) -> None:
        """Start all of them."""
        for process in self._made:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()

    def reports(self) -> list[Any]:
        """Wait for their end; return their reports."""
        return [json.loads(process.communicate()[0]) for process in self._made]


def start(place: BenchDatabase, job: dict[str, Any]) -> subprocess.Popen[str]:
    """Start one worker process."""
    described = json.dumps({**job, "engine": place.engine, "where": place.where})
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.limit_worker", described],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def processes(place: BenchDatabase, jobs: Sequence[dict[str, Any]]) -> list[Any]:
    """Run worker processes to their end."""
    with Processes(place, jobs) as both:
        both.go()
        return both.reports()


def _alternating(raw: Raw, rounds: int) -> tuple[list[float], list[float], float]:
    """Alternate slots and hand-written SQL by hundreds; return ms of each, and CPU ms of a slot."""
    raw.run("INSERT INTO limits (name, capacity, created_at, updated_at) VALUES ('raw', 10, 1, 1)")
    _alone(WARM_UP)
    alone: list[float] = []
    by_hand: list[float] = []
    used = 0.0
    for _ in range(rounds):
        began = time.process_time()
        alone += _alone(100)
        used += time.process_time() - began
        by_hand += _by_hand(raw, 100)
    return alone, by_hand, used / len(alone) * 1_000


def _alone(count: int) -> list[float]:
    request = limits.slot("alone", capacity=CAPACITY)
    spent = []
    for _ in range(count):
        began = time.perf_counter()
        with request:
            pass
        spent.append((time.perf_counter() - began) * 1_000)
    return spent


def _by_hand(raw: Raw, count: int) -> list[float]:
    texts = RAW_PG if isinstance(raw, PostgresRaw) else RAW_LITE
    spent = []
    for _ in range(count):
        began = time.perf_counter()
        for text in texts:
            raw.run(text)
        spent.append((time.perf_counter() - began) * 1_000)
    return spent


def _inversions(order: Sequence[Sequence[int]]) -> int:
    """Count later tickets with an earlier token; order is (token, asked at), by token."""
    return sum(a[1] > b[1] for a, b in itertools.pairwise(order))


def _connections(place: BenchDatabase) -> int:
    """Return how many connections all waiters use together (PostgreSQL)."""
    if place.engine != "postgres":
        return 0
    raw = place.raw()
    (row,) = raw.rows(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND application_name LIKE 'penstock%'"
    )
    raw.close()
    return int(row[0])
