"""Loading: customers, scheduled configs, runs and history, created by SQL inside the database.

Foreign keys are not checked while loading (the rows are correct by construction), which reduces a
million configs to seconds; all measurements run with them enabled.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar
from zoneinfo import ZoneInfo

from benchmarks.raw import Raw
from benchmarks.site import BenchDatabase
from penstock.access.store.registry import pipeline_put, pool_ensure, processor_put
from penstock.core.clock import DAY, HOUR, MINUTE, SECOND
from penstock.db.store import Tx
from penstock.schedules.cadence import Cadence
from penstock.schedules.store.schedule import cadence_ensure

T = TypeVar("T")

CUSTOMERS = 10_000
_ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo", "America/Sao_Paulo",
          "Australia/Brisbane", "Africa/Lagos", "Asia/Dubai")  # fmt: skip


def series(place: BenchDatabase, n: int) -> str:
    """Return a table `s` with one column `i` from 1 to n, in the engine's syntax."""
    if place.engine == "postgres":
        return f"generate_series(1::bigint, {n}) AS s(i)"
    return (
        f"(WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {n}) "
        "SELECT i FROM c) AS s"
    )


def wall_now() -> int:
    """Return microseconds since the epoch."""
    return time.time_ns() // 1_000


def unchecked(place: BenchDatabase) -> Raw:
    """Open a direct connection that does not check foreign keys."""
    raw = place.raw()
    if place.engine == "postgres":
        raw.run("SET session_replication_role = replica")
    return raw


def settle(place: BenchDatabase, raw: Raw) -> None:
    """Update statistics and truncate the log, so that measurements start from a steady state."""
    if place.engine == "postgres":
        raw.run("VACUUM ANALYZE")
        raw.run("CHECKPOINT")
    else:
        raw.run("PRAGMA wal_checkpoint(TRUNCATE)")


def declare(place: BenchDatabase) -> tuple[int, int, int]:
    """Register one pipeline with one processor; return (pipeline, processor, pool)."""

    def body(tx: Tx) -> tuple[int, int, int]:
        pool = pool_ensure(tx, "default")
        pipeline = pipeline_put(tx, name="bench", digest="0", definition="{}", has_flow=False)
        processor = processor_put(
            tx,
            {
                "pipeline": pipeline, "phase": "main", "name": "noop", "pool": pool,
                "is_entry": True, "max_execution_us": HOUR, "retry": None,
                "rate_second": 0.0, "rate_gb": 0.0,
            },
        )  # fmt: skip
        return pipeline, processor, pool

    return in_store(place, body)


def in_store(place: BenchDatabase, body: Callable[[Tx], T]) -> T:
    """Run one transaction through Penstock's store."""
    store = place.store()
    try:
        return store.write(body)
    finally:
        store.close()


def customers(place: BenchDatabase, raw: Raw, n: int = CUSTOMERS) -> None:
    """Insert customers 1 to n, named c1 to cn."""
    raw.run(
        "INSERT INTO customers (customer_id, created_at) "
        f"SELECT 'c' || s.i, {wall_now()} FROM {series(place, n)}"
    )


def configs(place: BenchDatabase, total: int, due: int) -> None:
    """Insert `total` configs of 10,000 customers, `due` of them due in the current minute.

    The due ones share 24 cadences: hourly and daily crons in eight zones, and hourly intervals.
    """
    slot = wall_now() // MINUTE * MINUTE
    pipeline, _, _ = declare(place)
    cadences = _cadences(place, slot)
    raw = unchecked(place)
    customers(place, raw)
    step = total // due
    now = slot + SECOND
    # Due configs are adjacent in the index but not in the table: every step-th one.
    cadence = f"{cadences[0]} + (s.i / {step}) % {len(cadences)}"
    raw.run(
        "INSERT INTO configs (customer, pipeline, provider, domain, schedule_type, cadence, "
        "max_execution_us, sla_us, catch_up_window_us, created_at, created_by, updated_at) "
        f"SELECT 1 + s.i % {CUSTOMERS}, {pipeline}, 'aws', 'cost', 'CRON', {cadence}, {HOUR}, "
        f"{15 * MINUTE}, {DAY}, {now}, 'bench', {now} FROM {series(place, total)}"
    )
    raw.run(
        "INSERT INTO schedule (config_id, cadence, next_run_time, evaluated_to, catch_up, "
        f"window_us) SELECT s.i, {cadence}, CASE WHEN s.i % {step} = 0 THEN {slot} "
        f"ELSE {slot + 2 * HOUR} + (s.i % 1440) * {MINUTE} END, {slot - DAY}, 'one', {DAY} "
        f"FROM {series(place, total)}"
    )
    settle(place, raw)
    raw.close()


def _cadences(place: BenchDatabase, slot: int) -> list[int]:
    """Return cadences that fire at this time; consecutive numbers in a new database."""

    def body(tx: Tx) -> list[int]:
        numbers = []
        for name in _ZONES:
            local = datetime.fromtimestamp(slot / SECOND, ZoneInfo(name))
            for cron in (f"{local.minute} * * * *", f"{local.minute} {local.hour} * * *"):
                numbers.append(cadence_ensure(tx, Cadence(cron=cron, timezone=name)))
            numbers.append(cadence_ensure(tx, Cadence(interval_us=HOUR, timezone=name)))
        return numbers

    numbers = in_store(place, body)
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), numbers
    return numbers
