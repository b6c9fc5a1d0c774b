"""History: a customer's list, a customer's metrics and the overview over millions of ended runs.

10,000,000 rows on PostgreSQL (a few minutes to load), 1,000,000 on SQLite, over 90 days: 10,000
customers plus one with 5 % of all rows. The sums are folded by Penstock's own statements.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

from benchmarks.load import CUSTOMERS, customers, declare, series, settle, unchecked, wall_now
from benchmarks.raw import Raw
from benchmarks.result import Result, percentile, print_progress
from benchmarks.site import BenchDatabase, Site
from penstock.client import Client
from penstock.core.clock import DAY, HOUR, MINUTE, WEEK, to_datetime
from penstock.db.store import Store

DAYS = 90
WHALE = 1
CONFIGS = 20_000
LIVE = 20_000
DELTAS = 20_000
CUSTOMERS_ASKED = 200


def history(site: Site, *, quick: bool) -> Iterator[Result]:
    """Measure three queries of the console for 200 random customers each, and for the large one."""
    n = 500_000 if quick else (10_000_000 if site.engine == "postgres" else 1_000_000)
    place = site.create("history")
    now = wall_now()
    began = time.perf_counter()
    load_history(place, n, now)
    print_progress(f"loaded {n:,} rows in {time.perf_counter() - began:.0f} s")
    store = place.store()
    began = time.perf_counter()
    _fold(store, now)
    raw = place.raw()
    settle(place, raw)
    raw.close()
    print_progress(f"folded in {time.perf_counter() - began:.0f} s")
    figures = _ask(Client(store), now)
    store.close()
    site.drop(place)
    yield Result(
        bench="history",
        engine=site.engine,
        value=figures["list_p95_ms"],
        unit="ms",
        n=n,
        extra=figures,
    )


def _ask(client: Client, now: int) -> dict[str, float]:
    """Return 95th percentiles; each customer is queried once, so only the indexes are warm."""
    asked = random.Random(11).sample(range(2, CUSTOMERS + 2), CUSTOMERS_ASKED)
    month = {"start_date": to_datetime(now - 30 * DAY), "end_date": to_datetime(now)}
    lists = [_ms(lambda c=c: _page(client, c)) for c in asked]  # type: ignore[misc]
    metrics = [_ms(lambda c=c: client.views.metrics(f"c{c}", **month)) for c in asked]  # type: ignore[misc]
    whale = [_ms(lambda: client.views.metrics(f"c{WHALE}", **month)) for _ in range(20)]
    whale_list = [_ms(lambda: _page(client, WHALE)) for _ in range(20)]
    overview = [_ms(client.views.overview) for _ in range(CUSTOMERS_ASKED)]
    return {
        "list_p95_ms": percentile(lists, 0.95),
        "metrics_p95_ms": percentile(metrics, 0.95),
        "overview_p95_ms": percentile(overview, 0.95),
        "list_p50_ms": percentile(lists, 0.5),
        "metrics_p50_ms": percentile(metrics, 0.5),
        "overview_p50_ms": percentile(overview, 0.5),
        "whale_list_p95_ms": percentile(whale_list, 0.95),
        "whale_metrics_p95_ms": percentile(whale, 0.95),
    }


def _page(client: Client, customer: int) -> None:
    page = client.runs.list(limit=50, customer=f"c{customer}")
    assert page.items, customer


def _ms(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1_000


def load_history(place: BenchDatabase, n: int, now: int) -> None:
    """Insert ended runs of 90 days, their sums, and live runs."""
    pipeline, processor, pool = declare(place)
    raw = unchecked(place)
    customers(place, raw, CUSTOMERS + 1)
    raw.run(
        "INSERT INTO configs (customer, pipeline, provider, domain, schedule_type, "
        "max_execution_us, sla_us, catch_up_window_us, created_at, created_by, updated_at) "
        f"SELECT 1 + s.i % {CUSTOMERS + 1}, {pipeline}, 'aws', 'cost', 'EVENT_DRIVEN', {HOUR}, "
        f"{15 * MINUTE}, {DAY}, {now}, 'bench', {now} FROM {series(place, CONFIGS)}"
    )
    indexes = _indexes_drop(place, raw, now)
    _ended(place, raw, n, now, processor)
    for definition in indexes:
        raw.run(definition)
    _sums(place, raw, now)
    _live(place, raw, now, processor, pool)
    raw.close()


def _indexes_drop(place: BenchDatabase, raw: Raw, now: int) -> list[str]:
    """Drop history's indexes during loading; return the statements that create them again."""
    if place.engine != "postgres":
        return []
    raw.run(f"SELECT ensure_partitions({now - DAYS * DAY - WEEK}, {DAYS // 7 + 6})")
    rows = raw.rows("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'history'")
    for name, _ in rows:
        raw.run(f"DROP INDEX {name}")
    return [definition.replace(" ON ONLY ", " ON ") for _, definition in rows]


def _ended(place: BenchDatabase, raw: Raw, n: int, now: int, processor: int) -> None:
    """Insert rows in order of time, as in production; one customer has 5 % of them."""
    start, step = now - DAYS * DAY, DAYS * DAY // n
    due = f"({start} + s.i * {step} - 10 * {MINUTE})"
    # A multiplication distributes neighbours over the customers, the same on both engines.
    owner = f"CASE WHEN s.i % 20 = 0 THEN {WHALE} ELSE 2 + (s.i * 7919) % {CUSTOMERS} END"
    raw.run(
        "INSERT INTO history (run_id, customer, config_id, processor, provider, slot, "
        "scheduled_time, priority, created_at, claimed_at, claimed_by, started_at, finished_at, "
        "final_state, status, token, attempt, lapses, was_retried, is_dead, records, sla_met, "
        "result, trigger_source) "
        f"SELECT s.i, {owner}, 1 + s.i % {CONFIGS}, {processor}, "
        "CASE s.i % 3 WHEN 0 THEN 'aws' WHEN 1 THEN 'gcp' ELSE 'azure' END, "
        f"{due}, {due}, 5, {due}, {due} + 1000000, 'worker-7', {due} + 1000000, "
        f"{due} + 2000000 + (s.i % 60) * 1000000, "
        "CASE WHEN s.i % 25 = 3 THEN 'FAILED' ELSE 'COMPLETED' END, "
        "CASE WHEN s.i % 25 = 3 THEN 'FAILURE' ELSE 'SUCCESS' END, "
        "s.i, 1, 0, FALSE, FALSE, s.i % 1000, (s.i % 50 <> 7), "
        """'{"rows": 1234, "path": "s3://bucket/customer/part"}', 'scheduler' """
        f"FROM {series(place, n)}"
    )


def _sums(place: BenchDatabase, raw: Raw, now: int) -> None:
    """Insert hourly sums as the pruner leaves them, and unfolded deltas of the current hour."""
    raw.run(
        "INSERT INTO run_sums (hour_at, final_state, runs, duration_us, sla_breaches) "
        f"SELECT finished_at - finished_at % {HOUR}, final_state, count(*), "
        "sum(finished_at - started_at), 0 FROM history GROUP BY 1, 2"
    )
    raw.run(
        "INSERT INTO run_sums (hour_at, final_state, runs, duration_us, sla_breaches) "
        f"SELECT {now - now % HOUR}, 'COMPLETED', 10, 1000, 0 FROM {series(place, DELTAS)}"
    )


def _live(place: BenchDatabase, raw: Raw, now: int, processor: int, pool: int) -> None:
    """Insert a queue of live runs: half ready, half due later."""
    raw.run(
        "INSERT INTO runs (run_id, customer, processor, pool, slot, scheduled_time, priority, "
        "level, state, admission, state_at, max_execution_us, trigger_source, created_at) "
        f"SELECT 100000000 + s.i, 1 + s.i % {CUSTOMERS}, {processor}, {pool}, {now}, {now}, 5, 5, "
        f"'PENDING', s.i % 2, {now}, {HOUR}, 'manual', {now} FROM {series(place, LIVE)}"
    )


def _fold(store: Store, now: int) -> None:
    """Fold with Penstock's statements, a week at a time.

    In production it runs every few minutes.
    """
    store.write(lambda tx: tx.rows("aggregate_horizon"))
    after = 0
    until = now - DAYS * DAY
    while after < now - 10 * MINUTE:
        until = min(until + WEEK, now - 10 * MINUTE)
        params = {"after": after, "until": until}
        store.write(lambda tx, params=params: tx.run("history_aggregate", params))  # type: ignore[misc]
        after = until
