"""The scheduler: `sched_due`, `sched_idle` and `sched_race` over one prepared load."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from benchmarks.load import configs, settle, wall_now
from benchmarks.raw_tick import tick_postgres, tick_sqlite
from benchmarks.result import Result, percentile, print_progress
from benchmarks.site import BenchDatabase, Site
from penstock.core.clock import HOUR, MINUTE
from penstock.schedules.scheduler import Scheduler, SchedulerOptions

BATCH = 5_000
SCHEDULERS = 4
ROUNDS = 2
# The load is a few minutes old when it is used; in production a start is late after one.
OPTIONS = SchedulerOptions(batch=BATCH, late_us=HOUR, grace_us=HOUR)


def sched_due(site: Site, *, quick: bool) -> Iterator[Result]:
    """100,000 of 1,000,000 configs are due: occurrences started per second by one scheduler.

    Hand-written SQL and Penstock alternate, each on its own copy; the best of each counts.
    """
    due = _due(quick)
    template = _template(site, quick)
    limits: list[float] = []
    rates: list[float] = []
    extra: dict[str, int] = {}
    for _ in range(ROUNDS):
        place = site.copy(template, "due_limit")
        limits.append(due / _raw_seconds(place, due))
        site.drop(place)
        place = site.copy(template, "due")
        store = place.store()
        began = time.perf_counter()
        tick = Scheduler(store, OPTIONS).run_once()
        rates.append(due / (time.perf_counter() - began))
        store.close()
        assert tick.runs == due, tick
        extra = _exactness(place, due)
        site.drop(place)
        print_progress(f"{rates[-1]:,.0f}/s, hand-written {limits[-1]:,.0f}/s")
    yield Result(
        bench="sched_due",
        engine=site.engine,
        value=max(rates),
        unit="slots/s",
        limit=max(limits),
        ratio=max(rates) / max(limits),
        n=due,
        extra={"configs": _total(quick), "batch": BATCH, **extra},
    )


def sched_idle(site: Site, *, quick: bool) -> Iterator[Result]:
    """Measure a tick over 1,000,000 configs of which none is due, in milliseconds."""
    place = site.copy(_template(site, quick), "idle")
    raw = place.raw()
    raw.run(
        f"UPDATE schedule SET next_run_time = next_run_time + {2 * HOUR} "
        f"WHERE next_run_time <= {wall_now()}"
    )
    settle(place, raw)
    query = "SELECT min(next_run_time) FROM schedule"
    queries = [_timed(lambda: raw.rows(query)) for _ in range(300)]
    raw.close()
    store = place.store()
    scheduler = Scheduler(store, OPTIONS)
    scheduler.run_once()
    ticks = [_timed(scheduler.run_once) for _ in range(1_000)]
    store.close()
    site.drop(place)
    p50, limit = percentile(ticks, 0.5), percentile(queries, 0.5)
    yield Result(
        bench="sched_idle",
        engine=site.engine,
        value=p50,
        unit="ms",
        limit=limit,
        ratio=limit / p50,
        n=_total(quick),
        extra={"p99_ms": percentile(ticks, 0.99)},
    )


def sched_race(site: Site, *, quick: bool) -> Iterator[Result]:
    """Run four scheduler processes on the same due configs: nothing twice, nothing missed."""
    due = _due(quick)
    place = site.copy(_template(site, quick), "race")
    racers = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.racer", place.engine, place.where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(SCHEDULERS)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    began = time.perf_counter()
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    started = [int(racer.communicate()[0]) for racer in racers]
    seconds = time.perf_counter() - began
    extra = _exactness(place, due)
    deadlocks = _deadlocks(place)
    site.drop(place)
    yield Result(
        bench="sched_race",
        engine=site.engine,
        value=due / seconds,
        unit="slots/s",
        n=due,
        extra={
            **extra,
            "schedulers": SCHEDULERS,
            "started_by_each": started,
            "deadlocks": deadlocks,
        },
    )


def _deadlocks(place: BenchDatabase) -> int | None:
    """Return the deadlocks that the server resolved.

    Penstock repeats the batch, losing only time.
    """
    if place.engine != "postgres":
        return None
    raw = place.raw()
    rows = raw.rows("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    raw.close()
    return int(rows[0][0])


def _template(site: Site, quick: bool) -> BenchDatabase:
    total, due = _total(quick), _due(quick)
    return site.prepared("configs", lambda place: configs(place, total, due))


def _total(quick: bool) -> int:
    return 100_000 if quick else 1_000_000


def _due(quick: bool) -> int:
    return 10_000 if quick else 100_000


def _raw_seconds(place: BenchDatabase, due: int) -> float:
    raw = place.raw()
    began = time.perf_counter()
    count = (
        tick_postgres(raw, BATCH)
        if place.engine == "postgres"
        else tick_sqlite(raw, BATCH, wall_now())
    )
    seconds = time.perf_counter() - began
    raw.close()
    assert count == due, (count, due)
    return seconds


def _timed(call: Callable[[], object]) -> float:
    """Return the duration of a call in milliseconds."""
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1_000


def _exactness(place: BenchDatabase, due: int) -> dict[str, int]:
    """Count occurrences started more than once and not started, over every due config."""
    raw = place.raw()
    rows = raw.rows(
        "SELECT count(*), count(DISTINCT config_id) FROM runs WHERE slot <= "
        f"{wall_now() // MINUTE * MINUTE}"
    )
    journal = raw.rows("SELECT count(*) FROM journal WHERE action = 'created'")[0][0]
    left = raw.rows(f"SELECT count(*) FROM schedule WHERE next_run_time <= {wall_now()}")[0][0]
    raw.close()
    runs, distinct = rows[0]
    assert journal == runs, (journal, runs)
    assert left == 0, left
    return {"duplicates": runs - distinct, "missed": due - distinct}
