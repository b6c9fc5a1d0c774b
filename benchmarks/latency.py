"""Latency: from the call of submit to the first line of the processor, at 50 a second."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from benchmarks.cpu import server_seconds
from benchmarks.load import customers, settle
from benchmarks.raw import PostgresRaw, Raw
from benchmarks.raw_queue import CLAIM_LITE, CLAIM_PG, PICK_LITE, enqueue
from benchmarks.result import Result, percentile, print_progress
from benchmarks.site import BenchDatabase, Site
from benchmarks.work import delays_ms, stamp, worker
from penstock.client import Client
from penstock.runs.records import Submission

RATE = 50


def latency(site: Site, *, quick: bool) -> Iterator[Result]:
    """Submit from the worker's process, then from another; also measure an idle worker's CPU."""
    seconds = 3 if quick else 10
    place = site.create("latency")
    raw = place.raw()
    customers(place, raw, 100)
    settle(place, raw)
    store = place.store()
    client = Client(store)
    client.register([stamp])
    limit = percentile(_raw_pairs(raw, seconds), 0.5)
    raw.run("DELETE FROM runs")
    raw.close()
    subject = worker(store, stamp)
    subject.start()
    subject.started.wait(30)
    submit_at_rate(client, 1)
    near = _collect(lambda: submit_at_rate(client, seconds), seconds * RATE)
    far = _collect(lambda: _elsewhere(place, seconds), seconds * RATE)
    idle, idle_db = _idle(site, seconds)
    subject.stop()
    store.close()
    site.drop(place)
    p50 = percentile(near, 0.5)
    yield Result(
        bench="latency",
        engine=site.engine,
        value=p50,
        unit="ms",
        limit=limit,
        ratio=limit / p50,
        n=len(near),
        extra={
            "p50_ms": p50,
            "p99_ms": percentile(near, 0.99),
            "xproc_p50_ms": percentile(far, 0.5),
            "xproc_p99_ms": percentile(far, 0.99),
            "idle_cpu_pct": idle,
            "idle_db_cpu_pct": idle_db,
        },
    )


def submit_at_rate(client: Client, seconds: int) -> None:
    """Submit 50 runs a second, each with the time of its submission."""
    began = time.monotonic()
    for i in range(seconds * RATE):
        time.sleep(max(0.0, began + i / RATE - time.monotonic()))
        client.runs.submit(
            Submission(
                pipeline="stamp",
                customer=f"c{1 + i % 100}",
                parameters={"at_ns": time.monotonic_ns()},
            )
        )


def _collect(submit: Callable[[], None], expected: int) -> list[float]:
    """Return the delays of the runs submitted in the meantime."""
    while delays_ms and _waits_for_more():
        pass
    delays_ms.clear()
    submit()
    deadline = time.monotonic() + 10
    while len(delays_ms) < expected and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(delays_ms) == expected, (len(delays_ms), expected)
    return list(delays_ms)


def _waits_for_more() -> bool:
    """Whether a run started within the last fifth of a second."""
    before = len(delays_ms)
    time.sleep(0.2)
    return len(delays_ms) > before


def _elsewhere(place: BenchDatabase, seconds: int) -> None:
    subprocess.run(
        [sys.executable, "-m", "benchmarks.submitter", place.engine, place.where, str(seconds)],
        check=True,
    )


def _idle(site: Site, seconds: int) -> tuple[float, float | None]:
    """Return the CPU of this process (an idle worker) and of the server, in percent."""
    print_progress("idling")
    time.sleep(1)
    began, used, server = time.perf_counter(), time.process_time(), server_seconds(site)
    time.sleep(seconds)
    passed = time.perf_counter() - began
    mine = (time.process_time() - used) / passed * 100
    after = server_seconds(site)
    theirs = None if server is None or after is None else (after - server) / passed * 100
    return mine, theirs


def _raw_pairs(raw: Raw, seconds: int) -> list[float]:
    """Run at the same rate as the submits: a recently used disk responds faster."""
    samples = []
    for _ in range(seconds * RATE // 2):
        samples.append(_raw_pair(raw))
        time.sleep(max(0.0, 1 / RATE - samples[-1] / 1_000))
    return samples


def _raw_pair(raw: Raw) -> float:
    """Return milliseconds of the two necessary durable transactions: insert and claim."""
    began = time.perf_counter()
    enqueue(raw, 1, 1)
    if isinstance(raw, PostgresRaw):
        raw.rows(CLAIM_PG, {"n": 1})
    else:
        raw.run("CREATE TEMP TABLE IF NOT EXISTS picked (rank integer PRIMARY KEY, run_id integer)")
        raw.run("BEGIN IMMEDIATE")
        raw.run("DELETE FROM temp.picked")
        raw.run(PICK_LITE, {"n": 1})
        raw.run(CLAIM_LITE, {"now": 1, "token": 1})
        raw.run("COMMIT")
    return (time.perf_counter() - began) * 1_000
