"""Shipping: journal rows per second into Parquet files, by a process that is killed ten times.

1,000,000 entries, sealed before the measurement. A child process ships them; ten times it is
killed with SIGKILL after it has written another batch, and a new one continues. The figure is rows
over the time that children shipped, without the start of Python; `wall_seconds` includes it. Then
the sink is compared with its manifest, the seals and the database, which proves that no row is lost
or doubled.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load import customers, declare, series, settle, unchecked, wall_now
from benchmarks.result import Result, print_progress
from benchmarks.site import BenchDatabase, Site
from penstock.core.clock import DAY
from penstock.services.upkeep import Sealer
from penstock.shipping.client import SinkVerifier
from penstock.sinks.audit_parquet import ParquetSink

KILLS = 10
POLL = 0.01


def audit_ship(site: Site, *, quick: bool) -> Iterator[Result]:
    """Ship a long journal, interrupted, and verify the sink."""
    n = 200_000 if quick else 1_000_000
    place = site.create("audit_ship")
    folder = Path(tempfile.mkdtemp(prefix="audit-ship-"))
    try:
        _load(place, n)
        store = place.store()
        sealed = Sealer(store).run_once().entries
        raw = place.raw()
        settle(place, raw)
        raw.close()
        print_progress(f"loaded and sealed {sealed:,}")
        spent = _ship(place, folder)
        sink = ParquetSink(folder)
        began = time.perf_counter()
        found = SinkVerifier(store, sink).run(len(sink.unlisted()))
        verified = time.perf_counter() - began
        assert not found.problem_count, found.problems[:3]
        journal = found.logs[0]
        assert journal.rows == journal.compared == n, journal
        size = sum(path.stat().st_size for path in sink.paths("journal"))
        store.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        site.drop(place)
    yield Result(
        bench="audit_ship",
        engine=site.engine,
        value=n / spent.seconds,
        unit="rows/s",
        n=n,
        extra={
            "seconds": spent.seconds,
            "wall_seconds": spent.wall,
            "cpu_seconds": spent.cpu,
            "kills": spent.kills,
            "lost": n - journal.rows,
            "doubled": 0,
            "unlisted_files": found.unlisted_files,
            "batches": journal.batches,
            "bytes_per_row": size / n,
            "verify_seconds": verified,
        },
    )


@dataclass
class Spent:
    """What shipping took."""

    seconds: float = 0.0
    wall: float = 0.0
    cpu: float = 0.0
    kills: int = 0


def _ship(place: BenchDatabase, folder: Path) -> Spent:
    """Ship in child processes, killing them."""
    manifest = folder / "_manifest" / "journal"
    spent = Spent()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    while True:
        done = len(list(manifest.glob("*.json"))) if manifest.is_dir() else 0
        started = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.audit_shipper", place.url, str(folder)],
            env={**os.environ, "PYTHONPATH": "."},
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        began = time.perf_counter()
        while child.poll() is None:
            made = len(list(manifest.glob("*.json"))) if manifest.is_dir() else 0
            if spent.kills < KILLS and made > done:
                # Somewhere in the next batch, at another point each time.
                time.sleep(0.03 * spent.kills)
                child.kill()
                spent.kills += child.wait() != 0
                break
            time.sleep(POLL)
        ended = time.perf_counter()
        child.stdout.close()
        spent.seconds += ended - began
        spent.wall += ended - started
        if child.wait() == 0:
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            return spent


def _load(place: BenchDatabase, n: int) -> None:
    raw = unchecked(place)
    customers(place, raw, 100)
    declare(place)
    start = wall_now() - 2 * DAY
    at = f"({start} + s.i * {2 * DAY // (n + 1)})"
    if place.engine == "postgres":
        raw.run(f"SELECT ensure_partitions({start}, 2)")
    raw.run(
        "INSERT INTO journal (at, kind, subject, customer, action, actor, from_state, to_state, "
        f"token, why, detail) SELECT {at}, 'run', s.i, s.i % 100 + 1, 'ended', 'worker:host:4711', "
        "'RUNNING', 'COMPLETED', s.i, CASE WHEN s.i % 10 = 0 THEN 'took long' END, "
        f"CASE WHEN s.i % 3 = 0 THEN '{{\"records\": 120}}' END FROM {series(place, n)}"
    )
    raw.close()
