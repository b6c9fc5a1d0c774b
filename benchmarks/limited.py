"""Runs behind limits: what blocked runs cost the others, and how fast they are served."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from benchmarks.load import CUSTOMERS, customers, settle
from benchmarks.raw import Raw
from benchmarks.result import Result, print_progress
from benchmarks.site import BenchDatabase, Site
from benchmarks.work import noop, worker
from penstock import Pipeline
from penstock.access.store.registry import pool_ensure, processor_list
from penstock.client import Client
from penstock.db.store import Single, Store
from penstock.runs.admitter import Admitter
from penstock.runs.records import Submission
from penstock.runs.store.runs import Claim, run_claim
from penstock.worker.context import RunContext

SUBMIT_BATCH = 1_000
CLAIM_BATCH = 200
ROUNDS = 3

blocked = Pipeline("blocked")
keyed = Pipeline("keyed", parameters={"type": "object", "properties": {"key": {"type": "integer"}}})


@blocked.processor(concurrency=1)
def one_at_a_time(run: RunContext) -> None:
    """A processor behind one limit."""


@keyed.processor(per_key={"{key}": 10})
def ten_per_key(run: RunContext) -> None:
    """A processor behind one limit per key."""


def limit_blocked(site: Site, *, quick: bool) -> Iterator[Result]:
    """Measure claims of runnable runs per second, with and without a blocked backlog.

    Two databases are claimed from alternately, batch by batch, so that other load on the machine
    affects both.
    """
    n, backlog = (10_000, 20_000) if quick else (40_000, 100_000)
    pairs = []
    for _ in range(ROUNDS):
        pair = _claims(site, n, backlog)
        pairs.append(pair)
        print_progress(f"claims/s without {pair[0]:.0f}, with {backlog:,} blocked {pair[1]:.0f}")
    ratios = sorted(blocked_rate / plain for plain, blocked_rate in pairs)
    plain, blocked_rate = (max(values) for values in zip(*pairs, strict=True))
    yield Result(
        bench="limit_blocked",
        engine=site.engine,
        value=blocked_rate,
        unit="claims/s",
        limit=plain,
        ratio=ratios[len(ratios) // 2],
        n=backlog,
        extra={"rounds": [[round(a), round(b), round(b / a, 3)] for a, b in pairs]},
    )


def limit_drain(site: Site, *, quick: bool) -> Iterator[Result]:
    """Drain limited runs with one worker: all behind one limit of ten, and behind a thousand."""
    sizes = {1: 1_000 if quick else 5_000, 1_000: 5_000 if quick else 30_000}
    for keys, n in sizes.items():
        rounds = [_drained(site, n, keys) for _ in range(1 if quick else 2)]
        best = max(rounds, key=lambda r: r.drain)
        yield Result(
            bench="limit_drain",
            engine=site.engine,
            value=best.drain,
            unit="runs/s",
            n=n,
            extra={
                "keys": keys,
                "capacity": 10,
                "rounds": [round(r.drain) for r in rounds],
                "lined_up": round(max(r.lined_up for r in rounds)),
            },
        )


class _Drained(NamedTuple):
    """Runs per second: queued by the admitter, and executed to their end."""

    lined_up: float
    drain: float


def _claims(site: Site, n: int, backlog: int) -> tuple[float, float]:
    """Return claims per second without and with a backlog."""
    stocked = [_stocked(site, "limit_plain", n, 0), _stocked(site, "limit_beside", n, backlog)]
    claims = []
    for _, _, store in stocked:
        pool = store.write(lambda tx: pool_ensure(tx, "default"))
        numbers = [row.processor_key for row in store.read(processor_list)]
        claims.append(Claim(pool_key=pool, processors=numbers, n=CLAIM_BATCH, claimed_by="bench"))
    claimed, took = [0, 0], [0.0, 0.0]
    for step in range(2 * (n // CLAIM_BATCH)):
        which = step % 2 if step // 2 % 2 else 1 - step % 2
        began = time.perf_counter()
        runs = stocked[which][2].write(Single(partial(run_claim, claim=claims[which])))
        took[which] += time.perf_counter() - began
        claimed[which] += len(runs)
    for place, raw, store in stocked:
        _close(site, place, raw, store)
    assert min(claimed) >= n - CLAIM_BATCH, claimed
    return claimed[0] / took[0], claimed[1] / took[1]


def _stocked(site: Site, name: str, n: int, backlog: int) -> tuple[BenchDatabase, Raw, Store]:
    """Create a database with runnable runs and, before them, a backlog blocked on one limit."""
    place = site.create(name)
    raw, store, client = _opened(place)
    client.register([noop, blocked])
    for start in range(0, backlog, SUBMIT_BATCH):
        count = min(SUBMIT_BATCH, backlog - start)
        client.runs.submit_many(
            [Submission(pipeline="blocked", customer=f"c{1 + i % CUSTOMERS}") for i in range(count)]
        )
    if backlog:
        Admitter(store).run_once()
        waiting = raw.rows("SELECT count(*) FROM runs WHERE admission = 4")[0][0]
        assert waiting == backlog - 1, waiting
    for start in range(0, n, SUBMIT_BATCH):
        client.runs.submit_many(
            [
                Submission(pipeline="noop", customer=f"c{1 + (i * 7_919) % CUSTOMERS}")
                for i in range(start, start + SUBMIT_BATCH)
            ]
        )
    settle(place, raw)
    return place, raw, store


def _drained(site: Site, n: int, keys: int) -> _Drained:
    place = site.create("limit_drain")
    raw, store, client = _opened(place)
    client.register([keyed])
    for start in range(0, n, SUBMIT_BATCH):
        client.runs.submit_many(
            [
                Submission(
                    pipeline="keyed",
                    customer=f"c{1 + (i * 7_919) % CUSTOMERS}",
                    parameters={"key": i % keys},
                )
                for i in range(start, start + SUBMIT_BATCH)
            ]
        )
    settle(place, raw)
    admitter = Admitter(store)
    began = time.perf_counter()
    admitter.run_once()
    lined_up = time.perf_counter()
    subject = worker(store, keyed)
    subject.start()
    while int(raw.rows("SELECT coalesce(sum(runs), 0) FROM run_sums")[0][0]) < n:
        time.sleep(0.05)
        admitter.run_once()
    drained = time.perf_counter()
    subject.stop()
    assert raw.rows("SELECT count(*) FROM limit_leases")[0][0] == 0
    assert raw.rows("SELECT count(*) FROM run_limits")[0][0] == 0
    _close(site, place, raw, store)
    return _Drained(n / (lined_up - began), n / (drained - lined_up))


def _opened(place: BenchDatabase) -> tuple[Raw, Store, Client]:
    raw = place.raw()
    customers(place, raw)
    settle(place, raw)
    store = place.store()
    return raw, store, Client(store)


def _close(site: Site, place: BenchDatabase, raw: Raw, store: Store) -> None:
    store.close()
    raw.close()
    site.drop(place)
