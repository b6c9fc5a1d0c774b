"""One process of the limit benchmarks: waits for a line, does its job, prints a report."""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, cast

from benchmarks.gatekeeper import QuotaClient, QuotaExceeded
from benchmarks.site import BenchDatabase
from penstock import limits
from penstock.core.errors import LimitTimeout
from penstock.db.statements import Engine
from penstock.db.store import Store
from penstock.limits.slots.registry import broker_for_store
from penstock.limits.slots.retry import QuotaRetry
from penstock.limits.slots.slot import Slot


def main() -> None:
    """Read the job, signal readiness, run, report."""
    job = json.loads(sys.argv[1])
    place = BenchDatabase(cast("Engine", job["engine"]), "limit", job["where"], job["where"])
    store = place.store()
    limits.use(store)
    store.verify()  # connect before the work arrives, as a service would
    print("ready", flush=True)
    sys.stdin.readline()
    report = MODES[job["mode"]](job, store)
    broker_for_store(store).close()
    print(json.dumps(report), flush=True)
    store.close()


def contend(job: dict[str, Any], _: Store) -> dict[str, Any]:
    """Acquire and release as fast as possible, with no work while holding."""
    stop = time.perf_counter() + job["seconds"]
    counts = [0] * job["threads"]
    tokens: list[tuple[int, int]] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        request = limits.slot("bench", capacity=job["capacity"], timeout=60)
        mine: list[tuple[int, int]] = []
        while time.perf_counter() < stop:
            with request as slot:
                held = slot._held
                assert held is not None
                mine.append((slot.token, held.lease.requested_at))
            counts[number] += 1
        with lock:
            tokens.extend(mine)

    began = time.perf_counter()
    _run(work, job["threads"])
    return {"counts": counts, "seconds": time.perf_counter() - began, "tokens": tokens}


def queue(job: dict[str, Any], _: Store) -> dict[str, Any]:
    """Let every thread ask once, behind a closed limit that another process opens."""
    order: list[tuple[int, int]] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        weight = job["capacity"] if number % 10 == 0 else 1
        with limits.slot("fair", weight=weight, capacity=job["capacity"], timeout=120) as slot:
            held = slot._held
            assert held is not None
            with lock:
                order.append((slot.token, held.lease.requested_at))

    _run(work, job["threads"])
    return {"order": order}


def source(job: dict[str, Any], _: Store) -> dict[str, Any]:
    """Let each thread take messages and write them to the quota server, under the table's slot."""
    rows = list(job["rows"])
    lock = threading.Lock()
    policy = QuotaRetry(initial_us=job["initial_us"], random=random.Random(job["seed"]).random)
    done: list[float] = []

    def work(_: int) -> None:
        client = QuotaClient(job["gate"])
        while True:
            with lock:
                if not rows:
                    break
                row = rows.pop()
            slot = limits.slot("bq:rosters", capacity=10, adaptive=True, timeout=120)
            policy.call(_writing(client, row, job["hold"]), slot)
            with lock:
                done.append(time.time())
        client.close()

    _run(work, job["threads"])
    return {"done": done}


def _writing(client: QuotaClient, row: str, hold: float) -> Callable[[Slot | None], None]:
    def body(slot: Slot | None) -> None:
        assert slot is not None
        client.write(row, hold, slot.token)

    return body


def rate(job: dict[str, Any], _: Store) -> dict[str, Any]:
    """Use tokens as fast as they are granted; report the times."""
    stop = time.time() + job["seconds"]
    times: list[float] = []
    request = limits.rate("api", job["rate"], burst=job["burst"], timeout=60)

    def work(_: int) -> None:
        while True:
            with request:
                now = time.time()
                if now > stop:
                    return
                times.append(now)

    _run(work, job["threads"])
    return {"times": times}


def torture(job: dict[str, Any], _: Store) -> dict[str, Any]:
    """Write to the quota server until killed or stopped."""
    stop = time.time() + job["seconds"]
    chance = random.Random(job["seed"])
    refused: list[int] = []

    def work(_: int) -> None:
        client = QuotaClient(job["gate"])
        request = limits.slot("tortured", capacity=job["capacity"], lease=job["lease"], timeout=60)
        while time.time() < stop:
            try:
                with request as slot:
                    client.write(f"r{slot.token}", chance.random() * job["hold"], slot.token)
            except QuotaExceeded:
                refused.append(1)
            except LimitTimeout:
                pass
        client.close()

    _run(work, job["threads"])
    return {"refused": len(refused)}


def _run(work: Any, count: int) -> None:
    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


MODES = {
    "contend": contend, "queue": queue, "source": source, "rate": rate, "torture": torture,
}  # fmt: skip

if __name__ == "__main__":
    main()
