"""The cost of a gate: 20 dependencies probed, assessed and decided, uncached and cached.

The warehouse has 10,000,000 rows in 20 tables, 30,000 per table and partition, indexed by partition
(PostgreSQL) or sorted by it (DuckDB). The run on PostgreSQL measures PostgreSQL; the run on SQLite,
which is rarely a warehouse, measures DuckDB instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path

import duckdb

from benchmarks.result import Result, percentile, print_progress
from benchmarks.site import BenchDatabase, Site
from penstock.core.clock import SystemClock
from penstock.flows.gates.evidence import assess
from penstock.flows.gates.gate import decide
from penstock.flows.gates.verdict import GateInput, Verdict
from penstock.pipelines.declare.needs import historical, per, same_day
from penstock.pipelines.dependency import Dependency
from penstock.pipelines.modes import OVERNIGHT
from penstock.probes.protocol import ProbeRequest
from penstock.probes.runner import ProbeRunner

TABLES = 20
ROWS_PER_PARTITION = 30_000
GAMES = 1_500
FIRST_DAY = date(2025, 12, 1)
LOOKBACK = 10
UNCACHED = 60
CACHED = 500


def gate(site: Site, *, quick: bool) -> Iterator[Result]:
    """Evaluate one gate after another, each for another partition than the previous one."""
    n = 2_400_000 if quick else 10_000_000
    # A remainder that does not fill a partition is excluded from the probed days.
    days = n // TABLES // ROWS_PER_PARTITION
    place = site.create("gate")
    began = time.perf_counter()
    warehouse = _load_postgres(place, n) if site.engine == "postgres" else _load_duckdb(place, n)
    print_progress(f"loaded {n:,} rows in {time.perf_counter() - began:.0f} s")
    needs = [need.with_defaults("game_date", warehouse) for need in _needs(min(LOOKBACK, days - 1))]
    clock = SystemClock()
    probes = ProbeRunner(clock)
    try:
        figures = _measure(probes, needs, days, clock)
    finally:
        probes.close()
    site.drop(place)
    yield Result(
        bench="gate",
        engine=warehouse.partition(":")[0].removesuffix("ql"),
        value=figures["uncached_p95_ms"],
        unit="ms",
        n=n,
        extra=figures,
    )


def _needs(lookback: int) -> list[Dependency]:
    """Return the needs of a phase with many processors, with every kind of probe."""
    found = []
    for n in range(TABLES):
        table = f"stats_{n}"
        if n % 5 == 4:
            found.append(historical(table, days=lookback))
        elif n % 5 == 3:
            query = "SELECT count(*) * 20 FROM games WHERE game_date = :partition"
            negative = f"SELECT 1 FROM {table} WHERE game_date = :partition AND points < 0"
            found.append(same_day(table, expect=query, checks={"no negative points": negative}))
        else:
            found.append(
                same_day(
                    table,
                    expect=per(20, "games"),
                    max_age="52w",
                    not_null=["player_id", "points"],
                )
            )
    return found


def _measure(
    probes: ProbeRunner, needs: list[Dependency], days: int, clock: SystemClock
) -> dict[str, float]:
    # The last days, each with a full look-back before it if there are enough.
    partitions = [
        (FIRST_DAY + timedelta(days=day)).isoformat()
        for day in range(min(LOOKBACK, days - 1), days)
    ]
    uncached = [
        _ms(lambda day=day: _gate(probes, needs, day, clock, fresh=True))  # type: ignore[misc]
        for day in (partitions[n % len(partitions)] for n in range(UNCACHED))
    ]
    cached = [
        _ms(lambda day=day: _gate(probes, needs, day, clock, fresh=False))  # type: ignore[misc]
        for day in (partitions[n % len(partitions)] for n in range(CACHED))
    ]
    return {
        "uncached_p95_ms": percentile(uncached, 0.95),
        "cached_p95_ms": percentile(cached, 0.95),
        "uncached_p50_ms": percentile(uncached, 0.5),
        "cached_p50_ms": percentile(cached, 0.5),
        "first_ms": uncached[0],
    }


def _gate(
    probes: ProbeRunner, needs: list[Dependency], partition: str, clock: SystemClock, *, fresh: bool
) -> None:
    now = clock.now()
    seen = probes.probe(
        ProbeRequest(dependencies=needs, partition=partition, since=now if fresh else None)
    )
    assessed = [assess(need, found, judged_at=now) for need, found in zip(needs, seen, strict=True)]
    decision = decide(
        GateInput(mode=OVERNIGHT, now=now, partition=partition, assessments=tuple(assessed))
    )
    assert decision.verdict is Verdict.PROCEED, decision
    assert {found.rows for found in seen} == {None, ROWS_PER_PARTITION}, seen


def _ms(call: Callable[[], None]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1_000


# --- loading --------------------------------------------------------------------------------------

_GAME = f"CAST(i % {GAMES} AS INTEGER)"


def _stats(numbers: str) -> str:
    day = f"DATE '{FIRST_DAY.isoformat()}' + CAST(floor(i / {ROWS_PER_PARTITION}.0) AS INTEGER)"
    return (
        f"SELECT {day} AS game_date, {_GAME} AS game_id, CAST(i % 450 AS INTEGER) AS player_id, "
        "CAST(i % 61 AS INTEGER) AS points, CAST(i % 48 AS INTEGER) AS minutes, "
        "'team ' || CAST(i % 30 AS VARCHAR(9)) AS team, "
        f"CAST({day} AS TIMESTAMPTZ) + INTERVAL '6 hours' AS updated_at FROM {numbers}"
    )


def _games(numbers: str) -> str:
    day = f"DATE '{FIRST_DAY.isoformat()}' + CAST(floor(i / {GAMES}.0) AS INTEGER)"
    return f"SELECT {day} AS game_date, {_GAME} AS game_id FROM {numbers}"


def _load_postgres(place: BenchDatabase, n: int) -> str:
    raw = place.raw()
    for table in range(TABLES):
        numbers = f"generate_series(0, {n // TABLES - 1}) AS s(i)"
        raw.run(f"CREATE TABLE stats_{table} AS {_stats(numbers)}")
        raw.run(f"CREATE INDEX stats_{table}_by_partition ON stats_{table} (game_date)")
    raw.run(f"CREATE TABLE games AS {_games('generate_series(0, 99999) AS s(i)')}")
    raw.run("CREATE INDEX games_by_partition ON games (game_date)")
    raw.run("VACUUM ANALYZE")
    raw.run("CHECKPOINT")
    raw.close()
    return place.where


def _load_duckdb(place: BenchDatabase, n: int) -> str:
    path = Path(place.where).with_suffix(".db.duckdb")
    with duckdb.connect(str(path)) as connection:
        for table in range(TABLES):
            numbers = f"range({n // TABLES}) AS s(i)"
            connection.execute(f"CREATE TABLE stats_{table} AS {_stats(numbers)}")
        connection.execute(f"CREATE TABLE games AS {_games('range(100000) AS s(i)')}")
    return f"duckdb:{path}"
