"""Fairness: a flood delays no other customer, nor its sender's later runs."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.load import customers, declare, settle
from benchmarks.result import Result
from benchmarks.site import Site
from penstock.core.naming import CustomerKey, PoolKey, ProcessorKey
from penstock.db.store import Store, Tx
from penstock.runs.rows import HeldRun, NewRun, RunEnd
from penstock.runs.store.finish import run_end_many
from penstock.runs.store.runs import Claim, fair_clock_raise, run_claim, run_insert_many

FLOODER = 1
OTHERS = 50
PEERS = 100
CLAIM = 50


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
    store.close()
    site.drop(place)
    yield Result(
        bench="fairness",
        engine=site.engine,
        value=float(until_all),
        unit="claims",
        n=flood,
        extra={"claims_until_all_started": until_all, "returning": returning},
    )


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
        claim = Claim(pool_key=PoolKey(self._pool), processors=[self._processor], n=n, start=True)

        def body(tx: Tx) -> list[HeldRun]:
            runs = run_claim(tx, claim)
            fair_clock_raise(tx, runs)
            return runs

        runs = self._store.write(body)
        ends = [RunEnd(r.run_id, r.token, "COMPLETED", "SUCCESS", duration_us=1) for r in runs]
        if ends:
            self._store.write(lambda tx: run_end_many(tx, ends))
        return runs
