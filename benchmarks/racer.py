"""One scheduler process of `sched_race`: waits for a line, then ticks until nothing is due."""

from __future__ import annotations

import sys
from typing import cast

from benchmarks.schedule import OPTIONS
from benchmarks.site import BenchDatabase
from penstock.core.clock import SystemClock
from penstock.db.statements import Engine
from penstock.schedules.scheduler import Scheduler
from penstock.schedules.store.schedule import schedule_next_at


def main(engine: str, where: str) -> None:
    """Race, then print how many occurrences this process started."""
    store = BenchDatabase(cast("Engine", engine), "race", where, where).store()
    scheduler = Scheduler(store, OPTIONS)
    next_at, now = store.read(schedule_next_at)
    print("ready", flush=True)
    sys.stdin.readline()
    started = 0
    while next_at is not None and next_at <= now:
        tick = scheduler.run_once()
        started += tick.runs
        if not tick.runs:
            # Other processes hold the rest; check again as the supervisor would.
            SystemClock().sleep(0.01)
        next_at, now = store.read(schedule_next_at)
    store.close()
    print(started, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
