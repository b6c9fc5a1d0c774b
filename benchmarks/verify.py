"""Verification: journal entries checked per second, hashes and comparisons included.

10,000,000 entries on PostgreSQL, 1,000,000 on SQLite: half are creations of runs, half their ends,
with a row of history each. They are sealed by Penstock's own sealer before the measurement.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.load import customers, declare, series, settle, unchecked, wall_now
from benchmarks.result import Result, print_progress
from benchmarks.site import BenchDatabase, Site
from penstock.core.clock import DAY
from penstock.monitoring.verify.client import JournalVerifier
from penstock.services.upkeep import Sealer

DAYS = 20


def verify(site: Site, *, quick: bool) -> Iterator[Result]:
    """Verify a long history in one pass."""
    n = 200_000 if quick else (10_000_000 if site.engine == "postgres" else 1_000_000)
    place = site.create("verify")
    began = time.perf_counter()
    _load(place, n // 2)
    store = place.store()
    sealed = Sealer(store).run_once().entries
    raw = place.raw()
    settle(place, raw)
    raw.close()
    print_progress(f"loaded and sealed {sealed:,} in {time.perf_counter() - began:.0f} s")
    began = time.perf_counter()
    found = JournalVerifier(store).run()
    seconds = time.perf_counter() - began
    assert not found.problem_count, found.problems[:3]
    entries = found.account.entries
    store.close()
    site.drop(place)
    yield Result(
        bench="verify",
        engine=site.engine,
        value=entries / seconds,
        unit="entries/s",
        n=entries,
        extra={"seconds": seconds, "blocks": found.blocks, "runs": found.runs},
    )


def _load(place: BenchDatabase, runs: int) -> None:
    raw = unchecked(place)
    customers(place, raw, 100)
    _, processor, _ = declare(place)
    start = wall_now() - DAYS * DAY
    step = DAYS * DAY // (runs + 1)
    at = f"({start} + s.i * {step})"
    if place.engine == "postgres":
        raw.run(f"SELECT ensure_partitions({start}, {DAYS // 7 + 2})")
    raw.run(
        "INSERT INTO history (run_id, customer, processor, slot, scheduled_time, priority, "
        "created_at, finished_at, final_state, token, attempt, lapses, was_retried, is_dead, "
        f"trigger_source) SELECT s.i, s.i % 100 + 1, {processor}, {at}, {at}, 5, {at}, {at} + 9, "
        f"'COMPLETED', s.i, 1, 0, FALSE, FALSE, 'manual' FROM {series(place, runs)}"
    )
    raw.run(
        "INSERT INTO journal (at, kind, subject, customer, action, actor, from_state, to_state, "
        f"token, why) SELECT {at} + e.n * 9, 'run', s.i, s.i % 100 + 1, e.action, 'bench', e.was, "
        f"e.state, CASE WHEN e.n = 1 THEN s.i END, NULL FROM {series(place, runs)}, "
        "(SELECT 0 AS n, 'created' AS action, NULL AS was, 'PENDING' AS state "
        "UNION ALL SELECT 1, 'ended', 'RUNNING', 'COMPLETED') AS e"
    )
    raw.close()
