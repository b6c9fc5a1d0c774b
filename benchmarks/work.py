"""The pipelines of the benchmarks, and a worker with Penstock's defaults."""

from __future__ import annotations

import asyncio
import os
import random
import time

from penstock.audit.telemetry import Events
from penstock.core.clock import SystemClock
from penstock.db.store import Store
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.worker.context import RunContext
from penstock.worker.options import WorkerOptions
from penstock.worker.worker import Worker

noop = Pipeline("noop")
stamp = Pipeline("stamp")
hold = Pipeline("hold")

delays_ms: list[float] = []
"""Delays from submit to start, as measured by `stamp` in this process."""


@noop.processor
def nothing(_: RunContext) -> None:
    """Return immediately."""


@stamp.processor
def note_start(run: RunContext) -> None:
    """Record how long ago the run was submitted; monotonic time is the same in every process."""
    delays_ms.append((time.monotonic_ns() - run.parameters["at_ns"]) / 1e6)


@hold.processor(timeout="2h")
async def stay(_: RunContext) -> None:
    """Wait until the run is ended from outside."""
    await asyncio.sleep(7_000)


def worker(
    store: Store,
    pipeline: Pipeline,
    *,
    slots: int = 5,
    name: str = "bench",
    events: Events | None = None,
) -> Worker:
    """Create a worker as `penstock worker` would."""
    options = WorkerOptions(concurrency=slots, name=name, pid=os.getpid(), advances=True)
    jitter = random.Random(7).random
    return Worker(store, [pipeline], options, clock=SystemClock(), jitter=jitter, events=events)
