"""A chain: one flow of many phases with one processor each, where a completion starts the next."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

from benchmarks.cascade import open_flows, orchestrator_loop, wait_until_ended
from benchmarks.result import Result, percentile
from benchmarks.site import Site
from benchmarks.work import worker
from penstock import Pipeline, text
from penstock.client import Client
from penstock.worker.context import RunContext

PHASES = 1_000

starts_ns: list[int] = []
"""When each processor of the chain started, in order."""


def chain_of(phases: int) -> Pipeline:
    """Declare consecutive phases with one processor each."""
    made, before = Pipeline("chain", partition=text("day")), None
    for n in range(phases):
        phase = made.phase(f"phase{n}", after=before)
        phase.processor(f"p{n}")(_note_start)
        before = phase
    return made


def _note_start(_: RunContext) -> None:
    starts_ns.append(time.monotonic_ns())


def chain(site: Site, *, quick: bool) -> Iterator[Result]:
    """Measure the mean time from the start of one phase to the start of the next."""
    phases = 100 if quick else PHASES
    place = site.create("chain")
    store = place.store()
    pipeline = chain_of(phases)
    Client(store).register([pipeline])
    subject, loop = worker(store, pipeline), orchestrator_loop(store)
    loop.start()
    subject.start()
    subject.started.wait(30)
    for day in ("warm", "day"):
        starts_ns.clear()
        open_flows(store, "chain", "manual", [day])
        store.wake(["runs:default"])
        wait_until_ended(store)
    loop.stop()
    subject.stop()
    store.close()
    site.drop(place)
    assert len(starts_ns) == phases, (len(starts_ns), phases)
    hops = [(b - a) / 1e6 for a, b in pairwise(starts_ns)]
    mean = sum(hops) / len(hops)
    yield Result(
        bench="chain",
        engine=site.engine,
        value=mean,
        unit="ms",
        n=len(hops),
        extra={"hop_ms": mean, "p50_ms": percentile(hops, 0.5), "p99_ms": percentile(hops, 0.99)},
    )
