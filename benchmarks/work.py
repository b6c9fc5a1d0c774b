"""The pipelines that workers execute in benchmarks, and a worker with the product's defaults."""

from __future__ import annotations

import asyncio
import os
import random
import time

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
"""What `stamp` measured in this process: submit to start."""


@noop.processor
def nothing(_: RunContext) -> None:
    """End at once."""


@stamp.processor
def note_start(run: RunContext) -> None:
    """Note how long ago the run was submitted; monotonic time is the same in every process."""
    delays_ms.append((time.monotonic_ns() - run.parameters["at_ns"]) / 1e6)


@hold.processor(timeout="2h")
async def stay(_: RunContext) -> None:
    """Stay alive until somebody ends it."""
    await asyncio.sleep(7_000)


def worker(store: Store, pipeline: Pipeline, *, slots: int = 5, name: str = "bench") -> Worker:
    """A worker as `penstock worker` would start it."""
    options = WorkerOptions(slots=slots, name=name, pid=os.getpid())
    return Worker(store, [pipeline], options, clock=SystemClock(), jitter=random.Random(7).random)
