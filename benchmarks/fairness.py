"""Fairness: a flood delays no other customer, weights are kept, and so is a maximum of runs."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from benchmarks.load import customers, declare, settle
from benchmarks.result import Result
from benchmarks.site import Site
from penstock.access.store.registry import customer_get
from penstock.client import Client
from penstock.core.naming import CustomerKey, PoolKey, ProcessorKey
from penstock.db.store import Store, Tx
from penstock.runs.admitter import Admitter
from penstock.runs.rows import HeldRun, NewRun, RunEnd
from penstock.runs.store.finish import run_end_many
from penstock.runs.store.runs import Claim, fair_clock_raise, run_claim, run_insert_many

FLOODER = 1
OTHERS = 50
PEERS = 100
CLAIM = 50
WORKERS = 4
MAXIMUM = 8
"""Maximum number of runs of the customer with one."""


def fairness(site: Site, *, quick: bool) -> Iterator[Result]:
    """One customer enqueues 100,000 runs, 50 others 10 each; later it returns among 5,000."""
    flood = 10_000 if quick else 100_000
    place = site.create("fairness")
    _, processor, pool = declare(place)
    raw = place.raw()
    customers(place, raw, 1_000)
    settle(place, raw)
    raw.close()
    store = place.store()
    queue = _Queue(store, processor, pool)
    queue.put([FLOODER] * flood)
    queue.put([2 + i % OTHERS for i in range(OTHERS * 10)])
    until_all = queue.claims_until(set(range(2, 2 + OTHERS)), OTHERS * 10)
    queue.drain()
    # Later: the queue is empty, and the fair clock is where the flood left it.
    queue.put([200 + i % PEERS for i in range(PEERS * 50)])
    queue.put([FLOODER] * 10)
    returning = queue.claims_until({FLOODER}, 10)
    queue.drain()
    shares = _shares(store, queue, 2_000 if quick else 20_000)
    store.close()
    site.drop(place)
    yield Result(
        bench="fairness",
        engine=site.engine,
        value=float(until_all),
        unit="claims",
        n=flood,
        extra={"claims_until_all_started": until_all, "returning": returning, **shares},
    )


def _shares(store: Store, queue: _Queue, n: int) -> dict[str, Any]:
    """Measure, with four workers at a time: the shares of weights 1 and 3, and a maximum."""
    light, heavy, bounded = "c3", "c4", "c5"
    settings = Client(store, actor="bench").customers
    keys = store.read(lambda tx: [customer_get(tx, name) for name in (light, heavy, bounded)])
    numbers = [int(key or 0) for key in keys]
    settings.set(heavy, weight=3)
    queue.put([numbers[0]] * n + [numbers[1]] * n)
    counts, _, rate = _race(queue, n)
    queue.drain()
    settings.set(bounded, concurrency=MAXIMUM)
    admitter = Admitter(store)
    admitter.run_once()
    queue.put([numbers[2]] * (n // 2))
    admitter.run_once()
    _, most, capped_rate = _race(queue, n // 2, admitter)
    return {
        "weight_ratio": round(counts[numbers[1]] / counts[numbers[0]], 3),
        "maximum": MAXIMUM,
        "most_in_progress": most,
        "runs_per_second": round(rate),
        "runs_per_second_with_a_maximum": round(capped_rate),
    }


def _race(
    queue: _Queue, n: int, admitter: Admitter | None = None
) -> tuple[Counter[int], int, float]:
    """Claim and end `n` runs with four threads; return counts, most in progress, runs a second."""
    counts: Counter[int] = Counter()
    guard = threading.Lock()
    most = in_progress = 0
    began = time.perf_counter()

    def work() -> None:
        nonlocal most, in_progress
        while True:
            with guard:
                if sum(counts.values()) >= n:
                    return
            held = queue.claim(20)
            with guard:
                counts.update(run.customer_key for run in held)
                in_progress += len(held)
                most = max(most, in_progress)
            with guard:
                in_progress -= len(held)
            if held:
                queue.end(held)
            elif admitter is not None:
                admitter.run_once()

    threads = [threading.Thread(target=work) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts, most, sum(counts.values()) / (time.perf_counter() - began)


class _Queue:
    """Claims like a worker, and counts."""

    def __init__(self, store: Store, processor: int, pool: int) -> None:
        self._store = store
        self._processor = processor
        self._pool = pool

    def put(self, owners: list[int]) -> None:
        """Enqueue one run per entry, a thousand per transaction."""
        for start in range(0, len(owners), 1_000):
            runs = [
                NewRun(
                    customer_key=CustomerKey(customer), processor_key=ProcessorKey(self._processor)
                )
                for customer in owners[start : start + 1_000]
            ]
            self._store.write(lambda tx, runs=runs: run_insert_many(tx, runs, "bench"))  # type: ignore[misc]

    def claims_until(self, wanted: set[int], count: int) -> int:
        """Return how many runs are claimed until `count` of the given customers' runs have been."""
        claimed = 0
        while True:
            for run in self._take(CLAIM):
                claimed += 1
                count -= run.customer_key in wanted
                if not count:
                    return claimed

    def drain(self) -> None:
        """Claim and end all remaining runs."""
        while self._take(500):
            pass

    def _take(self, n: int) -> list[HeldRun]:
        runs = self.claim(n)
        if runs:
            self.end(runs)
        return runs

    def claim(self, n: int) -> list[HeldRun]:
        """Claim runs and advance the fair clock."""
        claim = Claim(pool_key=PoolKey(self._pool), processors=[self._processor], n=n, start=True)

        def body(tx: Tx) -> list[HeldRun]:
            runs = run_claim(tx, claim)
            fair_clock_raise(tx, runs)
            return runs

        return self._store.write(body)

    def end(self, runs: list[HeldRun]) -> None:
        """Complete runs."""
        ends = [RunEnd(r.run_id, r.token, "COMPLETED", "SUCCESS", duration_us=1) for r in runs]
        self._store.write(lambda tx: run_end_many(tx, ends))
