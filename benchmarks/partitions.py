"""Partition maintenance beside a large history: creation, retention, and what workers notice of it.

100,000,000 ended runs of 90 days (`--rows`; about 30 GB) in weekly partitions. A worker claims and
ends runs all the time; its latencies are reported for each step of maintenance. `lock_ms` is the
longest time that a step held the lock of a partitioned table, which is the transaction that it runs
in. `deleted` shows what retention would cost without partitions: the same number of rows, deleted
in the pruner's chunks, with the vacuum that must follow.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.history import DAYS
from benchmarks.load import CUSTOMERS, customers, series, unchecked, wall_now
from benchmarks.raw import Raw
from benchmarks.result import Result, percentile, print_progress
from benchmarks.site import BenchDatabase, Site
from benchmarks.work import noop
from penstock.client import Client
from penstock.core.clock import DAY, WEEK, SystemClock
from penstock.db.store import Store
from penstock.runs.records import Submission
from penstock.services.store import CHUNK, PRUNE_STEPS, Retention, partitions_ensure, prune
from penstock.worker.options import WorkerOptions
from penstock.worker.worker_core import WorkerCore

ROWS = 100_000_000
QUICK_ROWS = 2_000_000
DELETED_MAX = 200_000
BATCH = 20
STEP_SECONDS = 5.0
LISTS = 100
HEARTBEAT_SECONDS = 5


def partitions(site: Site, *, quick: bool, rows: int | None = None) -> Iterator[Result]:
    """Measure creation, dropping and deleting; SQLite has no partitions."""
    if site.engine == "sqlite":
        return
    n = rows or (QUICK_ROWS if quick else ROWS)
    place = site.create("partitions")
    now = wall_now()
    began = time.perf_counter()
    raw = _load(place, n, now)
    print_progress(f"loaded {n:,} rows in {time.perf_counter() - began:.0f} s")
    size = raw.rows("SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits "
                    "WHERE inhparent = 'history'::regclass")  # fmt: skip
    store = place.store()
    client = Client(store)
    client.register([noop])
    load = WorkerLoad(store, client)
    load.start()
    try:
        figures = _measure(store, raw, load, n, now)
        lists = [_ms(lambda c=c: client.runs.list(limit=50, customer=f"c{c}"))  # type: ignore[misc]
                 for c in random.Random(11).sample(range(2, CUSTOMERS), LISTS)]  # fmt: skip
    finally:
        load.stop()
        store.close()
        raw.close()
        site.drop(place)
    figures |= {"list_p95_ms": percentile(lists, 0.95), "gb": float(size[0][0]) / 1e9}
    lock = max(figures["created"]["ms"], figures["dropped"]["ms"])
    yield Result(
        bench="partitions", engine=site.engine, value=lock, unit="ms", n=n,
        extra={"lock_ms": lock, **figures},
    )  # fmt: skip


def _measure(store: Store, raw: Raw, load: WorkerLoad, n: int, now: int) -> dict[str, Any]:
    load.take()
    time.sleep(STEP_SECONDS)
    figures: dict[str, Any] = {"undisturbed": load.take()}

    def step(name: str, call: Callable[[], object], **more: float) -> None:
        ms = _ms(call)
        time.sleep(STEP_SECONDS)
        figures[name] = {"ms": ms, **load.take(), **more}
        print_progress(f"{name}: {figures[name]}")

    step("nothing to create", lambda: store.write(partitions_ensure))
    step("created", lambda: store.write(lambda tx: partitions_ensure(tx, 5)))
    step("created for five weeks", lambda: store.write(lambda tx: partitions_ensure(tx, 10)))
    history_step = PRUNE_STEPS[:1]
    until, rows = _oldest(raw, 2)  # the first is only a part of a week
    keep = Retention(history_us=now - until)
    step("dropped", lambda: store.write(lambda tx: prune(tx, keep, history_step)), rows=rows)
    until, rows = _oldest(raw, 1)
    less = Retention(history_us=now - until)
    step("dropped with all steps", lambda: store.write(lambda tx: prune(tx, less)), rows=rows)
    until, rows = _oldest(raw, 4)
    four = Retention(history_us=now - until)
    step("four dropped", lambda: store.write(lambda tx: prune(tx, four, history_step)), rows=rows)
    _into_rest(raw, min(DELETED_MAX, n // 10))
    chunks: list[float] = []
    ancient = Retention(history_us=3_650 * DAY)

    def delete_chunk() -> bool:
        began = time.perf_counter()
        removed = store.write(lambda tx: prune(tx, ancient, history_step))["history"]
        chunks.append((time.perf_counter() - began) * 1_000)
        return removed == CHUNK

    def delete() -> None:
        while delete_chunk():
            pass

    step("deleted", delete, rows=float(min(DELETED_MAX, n // 10)))
    figures["deleted"]["chunk_p99_ms"] = percentile(chunks, 0.99)
    figures["vacuum_ms"] = _ms(lambda: raw.run("VACUUM history_rest"))
    return figures


class WorkerLoad(threading.Thread):
    """Submits, claims and ends runs until it is stopped, and records how long each call takes."""

    def __init__(self, store: Store, client: Client) -> None:
        super().__init__(name="worker-load", daemon=True)
        options = WorkerOptions(concurrency=BATCH, name="bench", pid=1)
        jitter = random.Random(7).random
        self._steps = WorkerCore(store, [noop], options, clock=SystemClock(), jitter=jitter)
        self._client = client
        self._stopping = threading.Event()
        self._claims: list[float] = []
        self._ends: list[float] = []

    def run(self) -> None:
        """Work in batches."""
        self._steps.open()
        heartbeat_at = time.monotonic()
        wanted = [Submission(pipeline="noop", customer=f"c{n}") for n in range(2, BATCH + 2)]
        while not self._stopping.is_set():
            self._client.runs.submit_many(wanted)
            began = time.perf_counter()
            claimed = self._steps.claim_once(BATCH, start=True)
            self._claims.append((time.perf_counter() - began) * 1_000)
            self._steps.ends.add([e for one in claimed if (e := self._steps.execute(one))])
            began = time.perf_counter()
            while len(self._steps.ends):
                self._steps.flush_once()
            self._ends.append((time.perf_counter() - began) * 1_000)
            if time.monotonic() - heartbeat_at > HEARTBEAT_SECONDS:
                self._steps.heartbeat_once()
                heartbeat_at = time.monotonic()
        self._steps.close()

    def take(self) -> dict[str, float]:
        """Return the latencies since the last call."""
        claims, self._claims = self._claims, []
        ends, self._ends = self._ends, []
        found: dict[str, float] = {}
        for name, samples in (("claim", claims), ("end", ends)):
            for share, label in ((0.5, "p50"), (0.99, "p99"), (1.0, "max")):
                found[f"{name}_{label}_ms"] = percentile(samples, share) if samples else 0.0
        return found

    def stop(self) -> None:
        """Stop and wait."""
        self._stopping.set()
        self.join()


def _load(place: BenchDatabase, n: int, now: int) -> Raw:
    """Insert narrow rows of 90 days in order of time, without indexes, then create these."""
    raw = unchecked(place)
    customers(place, raw)
    raw.run(f"SELECT ensure_partitions({now - DAYS * DAY - WEEK}, {DAYS // 7 + 6})")
    rows = raw.rows("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'history'")
    for name, _ in rows:
        raw.run(f"DROP INDEX {name}")
    raw.run("SET synchronous_commit = off")
    step = DAYS * DAY // n
    for week in range(DAYS // 7):
        many = n // (DAYS // 7)
        at = f"({now - DAYS * DAY + week * many * step} + s.i * {step})"
        raw.run(
            "INSERT INTO history (run_id, customer, processor, slot, scheduled_time, priority, "
            "created_at, claimed_at, started_at, finished_at, final_state, status, token, attempt, "
            "lapses, was_retried, is_dead, sla_met, trigger_source) "
            f"SELECT {week * many} + s.i, 2 + (s.i * 7919) % {CUSTOMERS}, 1, {at}, {at}, 5, {at}, "
            f"{at}, {at}, {at}, 'COMPLETED', 'SUCCESS', s.i, 1, 0, FALSE, FALSE, TRUE, 'scheduler' "
            f"FROM {series(place, many)}"
        )
        print_progress(f"week {week + 1} of {DAYS // 7}")
    for _, definition in rows:
        raw.run(definition.replace(" ON ONLY ", " ON "))
    raw.run("ANALYZE")
    raw.run("CHECKPOINT")
    raw.run("SET synchronous_commit = on")
    return raw


def _oldest(raw: Raw, many: int) -> tuple[int, float]:
    """Return a time by which the oldest partitions have ended, but no others, and their rows."""
    rows = raw.rows(
        "SELECT substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \\(''?(\\d+)''?\\)')"
        "::bigint, c.reltuples FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        "WHERE i.inhparent = 'history'::regclass AND c.reltuples > 0 "
        "AND c.relname <> 'history_rest' ORDER BY 1"
    )[:many]
    return int(rows[-1][0]) + DAY, float(sum(row[1] for row in rows))


def _into_rest(raw: Raw, n: int) -> None:
    """Insert rows of long ago, which have no partition."""
    raw.run(
        "INSERT INTO history (run_id, customer, processor, slot, scheduled_time, priority, "
        "created_at, finished_at, final_state, token, attempt, lapses, was_retried, is_dead, "
        f"trigger_source) SELECT 2000000000 + i, 2 + i % {CUSTOMERS}, 1, i, i, 5, i, i, "
        "'COMPLETED', i, 1, 0, FALSE, FALSE, 'scheduler' "
        f"FROM generate_series(1::bigint, {n}) AS s(i)"
    )


def _ms(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1_000
