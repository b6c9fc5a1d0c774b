"""A crash: kill -9 a worker that holds 100 runs; measure until another holds all of them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.load import customers, settle
from benchmarks.raw import Raw
from benchmarks.result import Result, print_progress
from benchmarks.site import BenchDatabase, Site
from benchmarks.work import hold, worker
from penstock.assembly import settings
from penstock.assembly.process import build_scheduler_loops, build_supervisor
from penstock.audit.telemetry import Events
from penstock.client import Client
from penstock.db.store import Store
from penstock.runs.records import Submission
from penstock.runs.rows import RunEnd
from penstock.runs.store.finish import run_end_many

RUNS = 100
WAIT_SECONDS = 120


def crash(site: Site, *, quick: bool) -> Iterator[Result]:
    """Use default lease and heartbeat; kill right after a heartbeat, the worst moment."""
    del quick  # the lease decides how long this takes
    place = site.create("crash")
    raw = place.raw()
    customers(place, raw, 100)
    settle(place, raw)
    store = place.store()
    client = Client(store)
    client.register([hold])
    client.runs.submit_many(
        [Submission(pipeline="hold", customer=f"c{1 + i}") for i in range(RUNS)]
    )
    victim = _victim(place)
    _await(raw, "claimed_by = 'victim' AND state = 'RUNNING'", RUNS)
    old = raw.rows("SELECT run_id, token FROM runs WHERE admission = 9")
    supervisor = build_supervisor(build_scheduler_loops(store, settings.load({}), Events()))
    heir = worker(store, hold, slots=RUNS, name="heir")
    supervisor.start()
    heir.start()
    heir.started.wait(30)
    _await_heartbeat(raw)
    print_progress("killing the worker")
    victim.send_signal(signal.SIGKILL)
    killed = time.perf_counter()
    _await(raw, "claimed_by = 'heir'", RUNS)
    seconds = time.perf_counter() - killed
    victim.wait()
    stale = _finish_stale(store, old)
    claimed = int(raw.rows("SELECT count(*) FROM runs WHERE claimed_by = 'heir'")[0][0])
    heir.stop(now=True)
    supervisor.stop()
    store.close()
    raw.close()
    site.drop(place)
    yield Result(
        bench="crash",
        engine=site.engine,
        value=seconds,
        unit="s",
        n=RUNS,
        extra={"reclaimed": claimed, "finished_under_stale_token": stale},
    )


def _victim(place: BenchDatabase) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.victim", place.engine, place.where, str(RUNS)]
    )


def _await(raw: Raw, condition: str, count: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        found = int(raw.rows(f"SELECT count(*) FROM runs WHERE {condition}")[0][0])
        if found >= count:
            return
        assert time.monotonic() < deadline, f"{found} of {count} runs: {condition}"
        time.sleep(0.1)


def _await_heartbeat(raw: Raw) -> None:
    """Wait until the victim has just renewed its session."""
    query = "SELECT beat_at FROM sessions WHERE name = 'victim'"
    before = raw.rows(query)
    deadline = time.monotonic() + WAIT_SECONDS
    while raw.rows(query) == before:
        assert time.monotonic() < deadline, "the victim sends no heartbeat"
        time.sleep(0.02)


def _finish_stale(store: Store, old: list[tuple[int, int]]) -> int:
    """Report ends with the dead worker's tokens; return how many are accepted (none should be)."""
    ends = [RunEnd(run_id, token, "COMPLETED", "SUCCESS") for run_id, token in old]
    return len(store.write(lambda tx: run_end_many(tx, ends)))
