"""The API under load: 50 external workers hold 1,000 runs of 10,000 customers in total.

Workers claim, start, send two heartbeats for and end each run, one request at a time, 330 a second
in total; every tenth run fails. Server, database and load generator share the machine's cores.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import defaultdict
from collections.abc import Generator, Iterator

from benchmarks.caller import Caller
from benchmarks.load import CUSTOMERS, customers, settle
from benchmarks.result import Result, percentile, print_progress
from benchmarks.served import Server, served
from benchmarks.site import BenchDatabase, Site
from penstock.client import Client
from penstock.runs.records import Submission

WORKERS = 50
EACH = 20
RATE = 330
WARM = 6
PREFIX = "/api/v1"
Samples = dict[str, list[float]]
Step = tuple[str, str, dict[str, object]]
Steps = Generator[Step, bytes, None]


def api(site: Site, *, quick: bool) -> Iterator[Result]:
    """Serve, generate load, and yield latencies by kind of request."""
    seconds = 10 if quick else 40
    place = site.create("api")
    raw = place.raw()
    customers(place, raw, CUSTOMERS)
    settle(place, raw)
    raw.close()
    with served(place) as server:
        _enqueue(place, WORKERS * EACH + RATE // 4 * (seconds + WARM + 5))
        print_progress("loading")
        samples, other = asyncio.run(_load(server, seconds))
    _verify(place)
    site.drop(place)
    count = sum(len(found) for found in samples.values())
    extra: dict[str, float] = {}
    for kind in ("claim", "transition", "heartbeat"):
        extra[f"{kind}_p50_ms"] = percentile(samples[kind], 0.5)
        extra[f"{kind}_p95_ms"] = percentile(samples[kind], 0.95)
        extra[f"{kind}_p99_ms"] = percentile(samples[kind], 0.99)
    yield Result(
        bench="api",
        engine=site.engine,
        value=count / seconds,
        unit="requests/s",
        n=count,
        extra={**extra, "rps": count / seconds, "workers": WORKERS, "errors": other},
    )


def _enqueue(place: BenchDatabase, n: int) -> None:
    store = place.store()
    client = Client(store)
    for start in range(0, n, 1_000):
        client.runs.submit_many(
            [
                Submission(pipeline="outside", customer=f"c{1 + i % CUSTOMERS}")
                for i in range(start, min(n, start + 1_000))
            ]
        )
    store.close()


async def _load(server: Server, seconds: int) -> tuple[Samples, int]:
    """Return (milliseconds by kind, unsuccessful responses), measured after the warm-up.

    The first seconds, in which all workers claim at once, are excluded.
    """
    samples: Samples = defaultdict(list)
    since = time.perf_counter() + WARM
    others = await asyncio.gather(
        *[_worker(server, number, (since, since + seconds), samples) for number in range(WORKERS)]
    )
    return samples, sum(others)


async def _worker(
    server: Server, number: int, between: tuple[float, float], samples: Samples
) -> int:
    """Run one worker: at most one request at a time, at its share of the rate."""
    caller = Caller("127.0.0.1", server.port, server.key)
    chance = random.Random(number)
    gap = WORKERS / RATE
    due = time.perf_counter() + chance.random() * gap
    steps = _steps(number, chance)
    wrong = 0
    response = b"{}"
    while time.perf_counter() < between[1]:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        kind, path, body = steps.send(response)
        status, response, took = await caller.call("POST", PREFIX + path, body)
        if time.perf_counter() >= between[0]:
            samples[kind].append(took)
        if status != 200:
            wrong += 1
            response = b"{}"
        due = max(due + gap, time.perf_counter() - 10 * gap)
    caller.close()
    return wrong


class _Held:
    """A held run and its next step."""

    def __init__(self, name: str, token: int) -> None:
        self.name, self.token, self.step = name, token, 0


def _steps(number: int, chance: random.Random) -> Steps:
    """Yield the requests of a worker that holds twenty runs; responses are sent in."""
    made = _endless(number, chance)
    next(made)
    return made


def _endless(number: int, chance: random.Random) -> Steps:
    held: list[_Held] = []
    yield "", "", {}
    while True:
        if len(held) < EACH // 2:
            body = {"worker_id": f"w{number}", "max_claims": EACH - len(held)}
            response = yield "claim", "/scheduler/claim-runs", body
            claimed = json.loads(response).get("claimed_runs", [])
            held += [_Held(run["run_id"], run["fencing_token"]) for run in claimed]
            if not held:
                continue
        run = held[chance.randrange(len(held))]
        if run.step == 3:
            held.remove(run)
        yield _next(run, number, chance)
        run.step += 1


def _next(run: _Held, number: int, chance: random.Random) -> Step:
    """Return the next request of a run: start, two heartbeats, its end."""
    path = f"/pipeline-runs/{run.name}/"
    body: dict[str, object] = {"fencing_token": run.token, "worker_id": f"w{number}"}
    if run.step == 0:
        return "transition", path + "start", body
    if run.step < 3:
        more = {"current_stage": "loading", "progress_percentage": 40 * run.step}
        return "heartbeat", path + "heartbeat", {**body, **more}
    if chance.random() < 0.1:
        return "transition", path + "fail", {**body, "error_type": "TRANSIENT_NETWORK"}
    done = {"result_summary": {"records": 5}, "records_processed": 5}
    return "transition", path + "complete", {**body, **done}


def _verify(place: BenchDatabase) -> None:
    """Check that every ended run is in history once."""
    raw = place.raw()
    (total, distinct) = raw.rows("SELECT count(*), count(DISTINCT run_id) FROM history")[0]
    assert total == distinct > 0, (total, distinct)
    raw.close()
