"""The pipeline of `scale`: a run that waits as long as the environment says, and does nothing."""

from __future__ import annotations

import asyncio
import os

from penstock.pipelines.declare.pipeline import Pipeline
from penstock.worker.context import RunContext

steady = Pipeline("steady")
SECONDS = float(os.environ.get("SCALE_RUN_SECONDS", "20"))


@steady.processor(timeout="1h")
async def wait(_: RunContext) -> None:
    """Occupy a slot, not a thread."""
    await asyncio.sleep(SECONDS)
