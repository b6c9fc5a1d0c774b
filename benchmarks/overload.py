"""Overload: ten times the sustainable rate of the API, refused early, then back to normal.

The load submits runs and lists five hundred of a customer's, which is expensive enough that one
client can request ten times the server's capacity. Each submit has an Idempotency-Key, and a
refused one is not repeated. Before and after, the same requests are sent at half the sustainable
rate, and their latencies compared: the first seconds of both phases are not measured, so that
connections are open and what the overload left behind is done. Afterwards every accepted run exists
once, and no other.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.caller import Caller
from benchmarks.load import customers, settle
from benchmarks.result import Result, percentile, print_progress
from benchmarks.served import Server, served
from benchmarks.site import BenchDatabase, Site
from penstock.client import Client
from penstock.runs.records import Submission

CALLERS = 200
DEEP = 20
"""Customers with a thousand runs each."""
TIMES = 10
NORMAL_REQUESTS = 1_100
"""Minimum number of requests in each normal phase."""
P99_REQUESTS = 1_000
"""Accepted requests without which a p99 means nothing."""
SETTLE_SECONDS = 2.0
"""Time at the normal rate before a normal phase is measured."""
PATH = "/api/v1/customers/{}/pipeline-runs"


@dataclass(slots=True)
class CallerCounts:
    """Counts of the callers."""

    accepted: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    submitted: int = 0
    silent: int = 0
    without_retry_after: int = 0

    def add_unmeasured(self, other: CallerCounts) -> None:
        """Add everything but latencies of accepted requests."""
        self.refused += other.refused
        self.submitted += other.submitted
        self.silent += other.silent
        self.without_retry_after += other.without_retry_after


def overload(site: Site, *, quick: bool) -> Iterator[Result]:
    """Measure the sustainable rate, half of it, ten times it, and half of it again."""
    seconds, flooded = (5, 10) if quick else (10, 40)
    place = site.create("overload")
    raw = place.raw()
    customers(place, raw, 100)
    settle(place, raw)
    raw.close()
    with served(place) as server:
        _enqueue(place)
        asyncio.run(_closed(server, 16, 3, "warm"))
        print_progress("sustainable rate")
        most = asyncio.run(_closed(server, 16, seconds, "most"))
        rate = (len(most.accepted)) / seconds
        print_progress(f"normal, at half of {rate:.0f}/s")
        normal_seconds = max(seconds, NORMAL_REQUESTS / (rate / 2))
        normal = asyncio.run(_open(server, rate / 2, normal_seconds, "normal", SETTLE_SECONDS))
        print_progress(f"ten times {rate:.0f}/s")
        flood = asyncio.run(_open(server, rate * TIMES, flooded, "flood"))
        print_progress("normal again")
        again = asyncio.run(_open(server, rate / 2, normal_seconds, "again", SETTLE_SECONDS))
    everything = [most, normal, flood, again]
    lost, doubled = _verify(place, everything)
    site.drop(place)
    offered = (len(flood.accepted) + len(flood.refused)) / flooded
    yield Result(
        bench="overload",
        engine=site.engine,
        value=percentile(flood.accepted, 0.99) / percentile(normal.accepted, 0.99),
        unit="times the normal p99",
        n=len(flood.accepted) + len(flood.refused),
        extra={
            "sustained_rps": rate,
            "offered_rps": offered,
            "accepted_rps": len(flood.accepted) / flooded,
            "refused": len(flood.refused),
            "without_retry_after": flood.without_retry_after,
            "silent": flood.silent,
            "normal_requests": len(normal.accepted),
            "normal_p50_ms": percentile(normal.accepted, 0.5),
            "normal_p99_ms": percentile(normal.accepted, 0.99),
            "accepted_p99_ms": percentile(flood.accepted, 0.99),
            "again_requests": len(again.accepted),
            "again_p50_ms": percentile(again.accepted, 0.5),
            "again_p99_ms": percentile(again.accepted, 0.99),
            "again_p50_ratio": _ratio(again, normal, 0.5),
            "again_p99_ratio": _ratio(again, normal, 0.99),
            "again_refused": len(again.refused),
            "lost": lost,
            "doubled": doubled,
        },
    )


def _ratio(again: CallerCounts, normal: CallerCounts, share: float) -> float | None:
    """Return a percentile after the overload in multiples of that before.

    It is None if one of them cannot be measured with that many requests.
    """
    least = P99_REQUESTS if share > 0.5 else 1
    if min(len(again.accepted), len(normal.accepted)) < least:
        return None
    return percentile(again.accepted, share) / percentile(normal.accepted, share)


async def _closed(server: Server, callers: int, seconds: float, name: str) -> CallerCounts:
    """Send as fast as this many callers get responses; refused callers wait for Retry-After."""
    seen = CallerCounts()
    until = time.perf_counter() + seconds

    async def one(number: int) -> None:
        caller = Caller("127.0.0.1", server.port, server.key)
        chance, count = random.Random(number), 0
        while time.perf_counter() < until:
            count += 1
            await _request(caller, chance, f"{name}-{number}-{count}", seen)
            if caller.retry_after is not None:
                await asyncio.sleep(float(caller.retry_after))
        caller.close()

    await asyncio.gather(*[one(number) for number in range(callers)])
    return seen


async def _open(
    server: Server, rate: float, seconds: float, name: str, settle: float = 0.0
) -> CallerCounts:
    """Send at a given rate regardless of responses; a caller that waits is not available.

    `settle`: seconds at the same rate before, whose latencies are not measured.
    """
    seen, settling = CallerCounts(), CallerCounts()
    free = [Caller("127.0.0.1", server.port, server.key) for _ in range(CALLERS)]
    chance = random.Random(1)
    going: set[asyncio.Task[None]] = set()
    began = time.perf_counter()

    async def one(caller: Caller, label: str, counts: CallerCounts) -> None:
        await _request(caller, chance, label, counts)
        free.append(caller)

    sent = 0
    while (passed := time.perf_counter() - began) < settle + seconds:
        while sent < passed * rate and free:
            sent += 1
            counts = settling if sent <= settle * rate else seen
            task = asyncio.create_task(one(free.pop(), f"{name}-{sent}", counts))
            going.add(task)
            task.add_done_callback(going.discard)
        sent = max(sent, int(passed * rate) - CALLERS)
        await asyncio.sleep(0.002)
    if going:
        await asyncio.wait(going, timeout=30)
    for caller in free:
        caller.close()
    seen.add_unmeasured(settling)
    return seen


async def _request(caller: Caller, chance: random.Random, label: str, seen: CallerCounts) -> None:
    """Submit a run, or list a customer's runs."""
    submits = chance.random() < 0.5
    path = PATH.format(f"c{chance.randint(1, 100 if submits else DEEP)}")
    if submits:
        body = {"pipeline_template": "outside", "correlation_id": label}
        extra = f"Idempotency-Key: {label}\r\n"
        status, _, took = await caller.call("POST", path, body, extra)
    else:
        status, _, took = await caller.call("GET", path + "?limit=500")
    if status in (200, 201):
        seen.accepted.append(took)
        seen.submitted += submits
    elif status in (429, 503):
        seen.refused.append(took)
        seen.without_retry_after += caller.retry_after is None
    else:
        seen.silent += 1


def _enqueue(place: BenchDatabase) -> None:
    store = place.store()
    client = Client(store)
    for number in range(DEEP):
        client.runs.submit_many(
            [
                Submission(pipeline="outside", customer=f"c{number + 1}", correlation_id="before")
                for _ in range(1_000)
            ]
        )
    store.close()


def _verify(place: BenchDatabase, everything: list[CallerCounts]) -> tuple[int, int]:
    """Return (accepted runs that are missing, runs that exist twice)."""
    raw = place.raw()
    total, distinct = raw.rows(
        "SELECT count(*), count(DISTINCT correlation_id) FROM runs WHERE correlation_id <> 'before'"
    )[0]
    warm = raw.rows("SELECT count(*) FROM runs WHERE correlation_id LIKE 'warm-%'")[0][0]
    raw.close()
    accepted = sum(seen.submitted for seen in everything)
    silent = sum(seen.silent for seen in everything)
    # A caller without a response does not know; its run may exist.
    assert distinct - warm <= accepted + silent, (distinct, warm, accepted, silent)
    return max(0, accepted - (distinct - warm)), total - distinct
