"""Two platforms in steady state: one config for each customer, runs that hold their slots.

Real processes: a scheduler starts what is due, workers execute it. Every config is due once per
period, spread evenly, and a run lasts long enough for the wanted number to be in progress at a
time. After the number is reached, everything is measured for a while: CPU of each process per run,
write-ahead log and kept bytes per run, transactions, connections, and how late runs start. Such
figures scale with the number of runs, which is what `docs/operations/capacity.md` uses them for.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cpu import cpu_seconds, server_seconds
from benchmarks.load import customers, in_store, settle, unchecked, wall_now
from benchmarks.raw import Raw
from benchmarks.result import Result, print_progress
from benchmarks.scale_work import steady
from benchmarks.site import BenchDatabase, Site
from penstock.client import Client
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND
from penstock.schedules.cadence import Cadence
from penstock.schedules.store.schedule import cadence_ensure

WORK = Path(__file__).with_name("scale_work.py")
LEAD_SECONDS = 3
"""From when all processes are up to the first due config."""


@dataclass(frozen=True, slots=True)
class Platform:
    """A row of the table of capacity: each run lasts `run_seconds`."""

    customers: int
    concurrent: int
    workers: int
    run_seconds: float = 20.0
    measure_seconds: float = 30.0

    @property
    def starts(self) -> float:
        """Starts per second that keep the wanted number of runs in progress."""
        return self.concurrent / self.run_seconds

    @property
    def period(self) -> float:
        """Seconds between two starts of a config."""
        return self.customers / self.starts


PLATFORMS = (Platform(10_000, 1_000, 2), Platform(50_000, 5_000, 4))
QUICK = (Platform(1_000, 60, 2, run_seconds=2.0, measure_seconds=4.0),)


def scale(site: Site, *, quick: bool) -> Iterator[Result]:
    """PostgreSQL only: 10,000 customers with 1,000 runs in progress, 50,000 with 5,000."""
    if site.engine != "postgres":
        return
    for platform in QUICK if quick else PLATFORMS:
        yield _measured(site, platform)


def _measured(site: Site, platform: Platform) -> Result:
    place = site.create("scale")
    _load(place, platform)
    raw = place.raw()
    with contextlib.ExitStack() as stack:
        slots = str(platform.concurrent * 3 // (2 * platform.workers))
        scheduler = stack.enter_context(_process(place, platform, "scheduler"))
        workers = [
            stack.enter_context(_process(place, platform, "worker", "--slots", slots))
            for _ in range(platform.workers)
        ]
        _begin(raw, platform)
        print_progress(f"{platform}: waiting until {platform.concurrent} runs are in progress")
        _wait_for(raw, platform)
        before = _snapshot(site, raw, scheduler, workers)
        time.sleep(platform.measure_seconds)
        after = _snapshot(site, raw, scheduler, workers)
        connections = _one(raw, "SELECT count(*) FROM pg_stat_activity WHERE datname = "
                                "current_database() AND pid <> pg_backend_pid()")  # fmt: skip
        late = _lateness(raw, before.at, after.at)
    raw.close()
    site.drop(place)
    return _result(platform, before, after, {"connections": connections, **late})


class _Snapshot(NamedTuple):
    """Counters at one moment; `at` is in microseconds, CPU in seconds."""

    at: int
    ended: int
    running: int
    commits: int
    wal: int
    kept: int
    server: float
    scheduler: float
    workers: float


def _snapshot(site: Site, raw: Raw, scheduler: int, workers: list[int]) -> _Snapshot:
    kept = ("SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits "
            "WHERE inhparent IN ('history'::regclass, 'journal'::regclass)")  # fmt: skip
    commits = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
    return _Snapshot(
        at=wall_now(),
        ended=_one(raw, "SELECT coalesce(sum(runs), 0) FROM run_sums"),
        running=_running(raw),
        commits=_one(raw, commits),
        wal=_one(raw, "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"),
        kept=_one(raw, kept),
        server=server_seconds(site) or 0.0,
        scheduler=cpu_seconds(scheduler),
        workers=sum(map(cpu_seconds, workers)),
    )


def _result(
    platform: Platform, before: _Snapshot, after: _Snapshot, extra: dict[str, Any]
) -> Result:
    seconds = (after.at - before.at) / SECOND
    runs = after.ended - before.ended
    assert runs > 0.7 * platform.starts * seconds, f"{runs} runs ended in {seconds:.1f} s"
    return Result(
        bench="scale",
        engine="postgres",
        value=runs / seconds,
        unit="runs/s",
        n=platform.concurrent,
        extra={
            "customers": platform.customers,
            "running": min(before.running, after.running),
            "server_ms_per_run": 1_000 * (after.server - before.server) / runs,
            "worker_ms_per_run": 1_000 * (after.workers - before.workers) / runs,
            "scheduler_ms_per_run": 1_000 * (after.scheduler - before.scheduler) / runs,
            "server_pct_of_a_core": 100 * (after.server - before.server) / seconds,
            "wal_kb_per_run": (after.wal - before.wal) / runs / 1_024,
            "kept_kb_per_run": (after.kept - before.kept) / runs / 1_024,
            "commits_per_s": (after.commits - before.commits) / seconds,
            **extra,
        },
    )


def _lateness(raw: Raw, since: int, until: int) -> dict[str, float]:
    """Return how late runs that ended in the window had started."""
    p50, p95, worst = raw.rows(
        "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY started_at - scheduled_time), "
        "percentile_disc(0.95) WITHIN GROUP (ORDER BY started_at - scheduled_time), "
        "max(started_at - scheduled_time) FROM history "
        f"WHERE finished_at BETWEEN {since} AND {until}"
    )[0]
    return {"late_p50_ms": p50 / 1_000, "late_p95_ms": p95 / 1_000, "late_max_ms": worst / 1_000}


def _load(place: BenchDatabase, platform: Platform) -> None:
    """Register the pipeline and insert a config of each customer, due once per period."""
    store = place.store()
    Client(store).register([steady])
    store.close()
    period = int(platform.period * SECOND)
    cadence = in_store(place, lambda tx: cadence_ensure(tx, Cadence(interval_us=period)))
    raw = unchecked(place)
    customers(place, raw, platform.customers)
    pipeline = _one(raw, "SELECT pipeline FROM pipelines WHERE name = 'steady'")
    now = wall_now()
    series = f"generate_series(1::bigint, {platform.customers}) AS s(i)"
    raw.run(
        "INSERT INTO configs (customer, pipeline, provider, domain, schedule_type, cadence, "
        "max_execution_us, sla_us, catch_up_window_us, created_at, created_by, updated_at) "
        f"SELECT s.i, {pipeline}, 'aws', 'cost', 'INTERVAL', {cadence}, {HOUR}, {15 * MINUTE}, "
        f"{DAY}, {now}, 'bench', {now} FROM {series}"
    )
    raw.run(
        "INSERT INTO schedule (config_id, cadence, next_run_time, evaluated_to, catch_up, "
        f"window_us) SELECT s.i, {cadence}, {now + DAY}, {now - DAY}, 'one', {DAY} FROM {series}"
    )
    settle(place, raw)
    raw.close()


def _begin(raw: Raw, platform: Platform) -> None:
    """Make the configs due from now on, evenly over the period."""
    start, period = wall_now() + LEAD_SECONDS * SECOND, int(platform.period * SECOND)
    spread = f"config_id * {period} / {platform.customers}"
    raw.run(f"UPDATE schedule SET next_run_time = {start} + {spread}")


@contextlib.contextmanager
def _process(place: BenchDatabase, platform: Platform, *command: str) -> Iterator[int]:
    """Start a process of Penstock; yield its process id."""
    environment = {
        **{n: v for n, v in os.environ.items() if not n.startswith("PENSTOCK_")},
        "PENSTOCK_DATABASE_URL": place.url,
        "PENSTOCK_LOG_LEVEL": "error",
        "PENSTOCK_PIPELINES": str(WORK),
        "PENSTOCK_DRAIN": "0s",
        "SCALE_RUN_SECONDS": str(platform.run_seconds),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *command, "--json"],
        env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        json.loads(process.stdout.readline())
        process.stdout.close()  # a broken pipe of later lines is of no interest
        yield process.pid
    finally:
        process.kill()
        process.wait(30)


def _wait_for(raw: Raw, platform: Platform) -> None:
    """Wait until the wanted number is in progress, and no more than a second's starts wait."""
    wanted = platform.concurrent * 0.95
    deadline = time.monotonic() + LEAD_SECONDS + 6 * platform.run_seconds + 60
    while (found := _running(raw)) < wanted or _waiting(raw) > platform.starts:
        assert time.monotonic() < deadline, f"{found} of {wanted:.0f} runs are in progress"
        time.sleep(0.5)
    time.sleep(platform.run_seconds)  # those that started late have ended


def _waiting(raw: Raw) -> int:
    late = f"SELECT count(*) FROM schedule WHERE next_run_time < {wall_now() - SECOND}"
    return _one(raw, "SELECT count(*) FROM runs WHERE state = 'PENDING'") + _one(raw, late)


def _running(raw: Raw) -> int:
    return _one(raw, "SELECT count(*) FROM runs WHERE state IN ('CLAIMED', 'RUNNING')")


def _one(raw: Raw, text: str) -> int:
    return int(raw.rows(text)[0][0])
