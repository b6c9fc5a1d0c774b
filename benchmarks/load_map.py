"""The load map: 50,000 configs at `0 2 * * *`, before and after jitter within 15 minutes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

from benchmarks.load import declare, unchecked, wall_now
from benchmarks.result import Result
from benchmarks.site import Site
from penstock.client import Client
from penstock.core.clock import DAY, HOUR
from penstock.schedules.cadence import Cadence, next_after
from penstock.schedules.store.schedule import cadence_ensure

TOLERANCE = timedelta(minutes=15)


def load_map(site: Site, *, quick: bool) -> Iterator[Result]:
    """Draw the map, spread the configs, and draw it again."""
    n = 2_000 if quick else 50_000
    place = site.create("load_map")
    pipeline, _, _ = declare(place)
    cadence = Cadence(cron="0 2 * * *", timezone="UTC")
    store = place.store()
    key = store.write(lambda tx: cadence_ensure(tx, cadence))
    raw = unchecked(place)
    now = wall_now()
    series = (
        f"generate_series(1::bigint, {n}) AS s(i)"
        if place.engine == "postgres"
        else f"(WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {n}) "
        "SELECT i FROM c) AS s"
    )
    raw.run(
        f"INSERT INTO customers (customer_id, created_at) SELECT 'c' || s.i, {now} FROM {series}"
    )
    raw.run(
        "INSERT INTO configs (customer, pipeline, provider, domain, schedule_type, cadence, "
        "max_execution_us, sla_us, catch_up_window_us, created_at, created_by, updated_at) "
        f"SELECT k.customer, {pipeline}, '', '', 'CRON', {key}, {HOUR}, {DAY}, {DAY}, {now}, "
        f"'bench', {now} FROM customers k WHERE k.customer_id LIKE 'c%'"
    )
    raw.run(
        "INSERT INTO schedule (config_id, cadence, next_run_time, evaluated_to, window_us) "
        f"SELECT config_id, {key}, {next_after(cadence, now)}, {now}, {DAY} FROM configs"
    )
    raw.close()
    client = Client(store, actor="bench")
    began = time.perf_counter()
    before = client.schedules.load()
    shown = time.perf_counter()
    plan = client.schedules.jitter(tolerance=TOLERANCE)
    spread = time.perf_counter()
    after = client.schedules.load()
    assert plan.delay_max <= TOLERANCE, plan
    assert (after.starts, after.peak) == (before.starts, plan.peak_after)
    store.close()
    site.drop(place)
    yield Result(
        bench="load_map",
        engine=site.engine,
        value=after.peak,
        unit="starts/min",
        n=n,
        extra={
            "peak_before": before.peak,
            "delay_seconds_max": plan.delay_max.total_seconds(),
            "map_seconds": shown - began,
            "jitter_seconds": spread - shown,
        },
    )
