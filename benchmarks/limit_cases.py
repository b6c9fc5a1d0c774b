"""Limits under realistic conditions: the original use case, a rate over a minute, kill -9.

The counts of the resource are decisive: a quota server in a separate process admits at most its
quota of concurrent writers and rejects the others (`gatekeeper`).
"""

from __future__ import annotations

import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.gatekeeper import QuotaServerProcess
from benchmarks.limit import Processes, start
from benchmarks.result import Result, print_progress
from benchmarks.site import BenchDatabase, Site
from penstock.db.store import Store
from penstock.limits.store.grant import limit_grant
from penstock.limits.store.limits import limit_lapsed
from penstock.limits.store.reads import limit_list
from penstock.limits.store.rows import GrantInput

MESSAGES = 30
HOLD_SECONDS = 1.0


def limit_source(site: Site, *, quick: bool) -> Iterator[Result]:
    """30 roster messages at once, one table, 3 worker processes of 10 threads."""
    hold = 0.3 if quick else HOLD_SECONDS
    for quota in (10, 4):
        place = site.create("limit_source")
        with tempfile.TemporaryDirectory() as folder, QuotaServerProcess(folder, quota) as gate:
            jobs = [
                {
                    "mode": "source",
                    "threads": 10,
                    "gate": gate.path,
                    "hold": hold,
                    "rows": [f"team{n}" for n in range(part, MESSAGES, 3)],
                    "initial_us": int(hold * 1_000_000),
                    "seed": part,
                }
                for part in range(3)
            ]
            with Processes(place, jobs) as three:
                began = time.time()
                three.go()
                done = [at for report in three.reports() for at in report["done"]]
            seen = gate.report()
        store = place.store()
        (view,) = store.read(lambda tx: limit_list(tx, name="bq:rosters"))
        store.close()
        site.drop(place)
        rounds = -(-MESSAGES // quota) * hold
        elapsed = max(done) - began
        yield Result(
            bench="limit_source",
            engine=site.engine,
            value=elapsed,
            unit="s",
            n=len(done),
            limit=rounds,
            ratio=rounds / elapsed,
            extra={
                "quota": quota,
                "rounds_x": elapsed / rounds,
                "quota_errors": seen["errors"],
                "most_in_flight": seen["most"],
                "rows": seen["in_table"][0],
                "written": seen["in_table"][1],
                "learned": view.limit.learned,
            },
        )


def limit_rate(site: Site, *, quick: bool) -> Iterator[Result]:
    """100 a second, burst 20, by 4 processes of 10 threads that want more."""
    seconds, rate, burst = (10 if quick else 60), 100, 20
    place = site.create("limit_rate")
    job = {"mode": "rate", "threads": 10, "rate": rate, "burst": burst, "seconds": seconds}
    with Processes(place, [job] * 4) as four:
        four.go()
        times = sorted(at for report in four.reports() for at in report["times"])
    site.drop(place)
    spent = times[-1] - times[0]
    allowed = burst + rate * spent
    yield Result(
        bench="limit_rate",
        engine=site.engine,
        value=len(times) / allowed * 100,
        unit="% of the allowance",
        n=len(times),
        extra={"rate_s": len(times) / spent, "over": _over(times, rate, burst), "burst": burst},
    )


def limit_crash(site: Site, *, quick: bool) -> Iterator[Result]:
    """4 processes of 200 contenders, one killed about every second, for a minute."""
    seconds, capacity, lease = (15 if quick else 60), 10, 5
    place = site.create("limit_crash")
    chance = random.Random(7)
    job = {"mode": "torture", "threads": 200, "capacity": capacity, "lease": lease, "hold": 0.05,
           "seconds": seconds}  # fmt: skip
    kills = 0
    with tempfile.TemporaryDirectory() as folder, QuotaServerProcess(folder, 1_000_000) as gate:
        alive = [_start_job(place, {**job, "gate": gate.path, "seed": n}) for n in range(4)]
        stop = time.monotonic() + seconds
        while time.monotonic() < stop - lease:
            time.sleep(0.5 + chance.random())
            victim = chance.randrange(4)
            alive[victim].send_signal(signal.SIGKILL)
            alive[victim].wait()
            kills += 1
            left = {**job, "gate": gate.path, "seed": 10 + kills,
                    "seconds": max(1.0, stop - time.monotonic())}  # fmt: skip
            alive[victim] = _start_job(place, left)
        for process in alive:
            process.communicate(timeout=120)
        seen = gate.report()
    print_progress("waiting for leases of killed processes")
    store = place.store()
    leaked = _leaked(store, lease)
    store.close()
    site.drop(place)
    tokens = seen["tokens"]
    yield Result(
        bench="limit_crash",
        engine=site.engine,
        value=seen["most"],
        unit="most inside at once",
        n=seen["entered"],
        limit=capacity,
        extra={
            "kills": kills,
            "leaked": leaked,
            "tokens_twice": len(tokens) - len(set(tokens)),
            "entered_s": seen["entered"] / seconds,
        },
    )


def _start_job(place: BenchDatabase, job: dict[str, Any]) -> subprocess.Popen[str]:
    process = start(place, job)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline().strip() == "ready"
    process.stdin.write("go\n")
    process.stdin.flush()
    return process


def _leaked(store: Store, lease: int) -> int:
    """Return what is still held after every lease has expired and was swept."""
    time.sleep(lease + 1)
    for number in store.read(lambda tx: limit_lapsed(tx, 100)):
        store.write(lambda tx, number=number: limit_grant(tx, number, GrantInput(broker="")))  # type: ignore[misc]
    return sum(view.held for view in store.read(limit_list))


def _over(times: Sequence[float], rate: float, burst: int) -> float:
    """Return how far the worst window exceeds burst + rate × t; above 0 is a violation."""
    worst = float("-inf")
    least = float("inf")
    for number, at in enumerate(times):
        # Windows that end here: count so far − rate × time, compared with the minimum before.
        least = min(least, number - rate * at)
        worst = max(worst, number + 1 - rate * at - least - burst)
    return worst
