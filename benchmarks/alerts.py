"""Alerts: a pass of the evaluator beside 50,000 configs and millions of executions.

The data of the benchmark `history` (10,000,000 ended runs on PostgreSQL, 1,000,000 on SQLite), with
a schedule of 50,000 configs, 10,000 open dead letters of 500 processors and 500 subscriptions with
a message each. No run of the data is claimed, so that several rules fire in every pass.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.cpu import server_seconds
from benchmarks.history import load_history
from benchmarks.load import series, settle, unchecked, wall_now
from benchmarks.raw import Raw
from benchmarks.result import Result, percentile, print_progress
from benchmarks.site import BenchDatabase, Site
from penstock.alerts.declared import parse_alerts
from penstock.alerts.evaluator import AlertEvaluator
from penstock.alerts.rules import rules_of
from penstock.core.clock import DAY, HOUR, MINUTE
from penstock.db.store import Store
from penstock.testing.clock import VirtualClock

INTERVAL_S = 15
PASSES = 40
SCHEDULED = 50_000
DEAD_LETTERS = 10_000
SUBSCRIPTIONS = 500


def alerts(site: Site, *, quick: bool) -> Iterator[Result]:
    """Measure passes at the default interval: the time of one, and the share of a core."""
    n = 100_000 if quick else (10_000_000 if site.engine == "postgres" else 1_000_000)
    place = site.create("alerts")
    now = wall_now()
    load_history(place, n, now)
    raw = unchecked(place)
    _add(place, raw, now)
    settle(place, raw)
    raw.close()
    print_progress(f"loaded {n:,} executions")
    clock = VirtualClock(now)
    store = place.store(clock)
    seconds, cpu = _passes(site, store, clock)
    (firing,) = _count(store)
    store.close()
    site.drop(place)
    yield Result(
        bench="alerts",
        engine=site.engine,
        value=percentile(seconds, 0.95),
        unit="s",
        n=n,
        extra={
            "seconds": percentile(seconds, 0.95),
            "seconds_p50": percentile(seconds, 0.5),
            "cpu_pct": 100 * cpu / (PASSES * INTERVAL_S),
            "open_alerts": firing,
            "configs": SCHEDULED,
        },
    )


def _passes(site: Site, store: Store, clock: VirtualClock) -> tuple[list[float], float]:
    """Return the seconds of each pass, and the CPU seconds of all, the server's included."""
    one = AlertEvaluator(store, rules_of(parse_alerts({})), clock=clock)
    one.run_once()
    before = _cpu(site)
    seconds = []
    for _ in range(PASSES):
        clock.advance(INTERVAL_S * 1_000_000)
        began = time.perf_counter()
        counts = one.run_once()
        seconds.append(time.perf_counter() - began)
        assert counts.measured, "another process evaluates"
    return seconds, _cpu(site) - before


def _cpu(site: Site) -> float:
    return time.process_time() + (server_seconds(site) or 0.0)


def _count(store: Store) -> tuple[int]:
    rows = store.read(lambda tx: tx.rows("alert_rule_counts"))
    return (sum(int(row[2]) for row in rows),)


def _add(place: BenchDatabase, raw: Raw, now: int) -> None:
    """Add what rules measure."""
    raw.run(
        "INSERT INTO cadences (cron, timezone) VALUES ('0 2 * * *', 'UTC')"
        if place.engine == "postgres"
        else "INSERT OR IGNORE INTO cadences (cron, timezone) VALUES ('0 2 * * *', 'UTC')"
    )
    raw.run(
        "INSERT INTO configs (customer, pipeline, provider, domain, schedule_type, cadence, "
        "max_execution_us, sla_us, catch_up_window_us, created_at, created_by, updated_at) "
        "SELECT 1 + s.i % 10000, (SELECT min(pipeline) FROM pipelines), '', '', 'CRON', "
        f"(SELECT max(cadence) FROM cadences), {HOUR}, {DAY}, {DAY}, {now}, 'bench', {now} "
        f"FROM {series(place, SCHEDULED)}"
    )
    raw.run(
        "INSERT INTO schedule (config_id, cadence, next_run_time, evaluated_to, window_us) "
        f"SELECT config_id, cadence, {now + DAY}, {now}, {DAY} FROM configs "
        "WHERE schedule_type = 'CRON'"
    )
    raw.run(
        "INSERT INTO dead_letters (kind, subject, customer, processor, error_type, attempts, "
        "died_at) SELECT 'run', s.i, 1 + s.i % 10000, 1 + s.i % 500, 'TIMEOUT', 3, "
        f"{now} - s.i * {MINUTE} / 10 FROM {series(place, DEAD_LETTERS)}"
    )
    raw.run(
        "INSERT INTO topics (customer, name, created_at) "
        f"SELECT 0, 'bench-' || s.i, {now} FROM {series(place, SUBSCRIPTIONS)}"
    )
    raw.run(
        "INSERT INTO subscriptions (customer, topic, name, kind, created_at) "
        f"SELECT 0, topic, name, 'pull', {now} FROM topics WHERE name LIKE 'bench-%'"
    )
    raw.run(
        "INSERT INTO deliveries (subscription, message_id, customer, published_at, state, due_at, "
        f"born_at) SELECT subscription, subscription, 0, {now}, 0, {now}, {now} "
        "FROM subscriptions"
    )
    hours = 24 * 90
    raw.run(
        "INSERT INTO delivery_sums (subscription, customer, hour_at, acked, nacked) "
        f"SELECT p.subscription, 0, {now // HOUR * HOUR} - s.i * {HOUR}, 1000, 5 "
        f"FROM subscriptions p CROSS JOIN {series(place, hours)}"
    )
