"""Real crashes of a backfill: the process that executes it is killed twice by SIGKILL.

365 partitions of three phases, eight at a time. A process with worker, orchestrator, backfiller,
admitter and sweeper is killed after about a third and two thirds of the partitions; the next one
continues. In the end every partition has exactly one flow and one completion and one completed run
per phase, what the processors recorded covers each of them, and progress never went back.

    python -m tests.harness.crash_backfill --engine sqlite
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

from penstock import Pipeline, day
from penstock.audit.telemetry import Events
from penstock.client import Client
from penstock.core.clock import SECOND, SystemClock
from penstock.db.postgres.store import PostgresStore
from penstock.db.sqlite.store import SqliteStore
from penstock.db.store import Store
from penstock.flows.orchestrator import Orchestrator
from penstock.recovery.backfiller import Backfiller
from penstock.recovery.records import Backfill, BackfillRequest
from penstock.runs.admitter import Admitter
from penstock.runs.sweeper import Sweeper
from penstock.services.supervisor import Loop, LoopSchedule
from penstock.testing.postgres.server import open_server
from penstock.worker.context import RunContext
from penstock.worker.options import WorkerOptions
from penstock.worker.worker import Worker

PHASES: Final = ("raw", "analytics", "publish")
PARALLELISM: Final = 8
KILLS: Final = 2
FIRST: Final = date(2025, 1, 1)
LEASE_US: Final = 2 * SECOND
"""Short, so that the runs of a killed process are soon picked up again."""
WAIT_SECONDS: Final = 300
CLOCK: Final = SystemClock()
NOTES: Final = "PENSTOCK_CRASH_NOTES"


class BackfillCrashed(AssertionError):
    """The outcome of a killed backfill is not as promised."""


def steps_pipeline() -> Pipeline:
    """Three phases whose processors append a line to a file."""
    made, before = Pipeline("crash_steps", partition=day("on")), None
    for name in PHASES:
        before = made.phase(name, after=before)
        before.processor(f"{name}_it")(_note)
    return made


def _note(run: RunContext) -> None:
    line = f"{run.processor} {run.partition}\n".encode()
    with Path(os.environ[NOTES]).open("ab", buffering=0) as file:
        file.write(line)  # one write in append mode: lines of several processes do not mix


def store_of(url: str) -> Store:
    """Open the store of a child or of the parent."""
    return PostgresStore(url) if "://" in url or "host=" in url else SqliteStore(Path(url))


def work(url: str) -> None:
    """Run the services until this process is killed."""
    store, jitter = store_of(url), random.Random(7).random
    services = (
        (Orchestrator(store, holder=f"crash-{os.getpid()}"), ("flows",)),
        (Backfiller(store), ("backfill",)),
        (Admitter(store), ("admit",)),
        (Sweeper(store, jitter=jitter), ()),
    )
    for service, channels in services:
        schedule = LoopSchedule(interval_us=SECOND // 2, channels=channels)
        Loop(service, schedule, store, events=Events(), jitter=jitter).start()
    options = WorkerOptions(
        name=f"crash-{os.getpid()}", pid=os.getpid(), concurrency=5, advances=True,
        lease_us=LEASE_US, heartbeat_us=LEASE_US // 4, margin_us=LEASE_US // 4,
    )  # fmt: skip
    Worker(store, [steps_pipeline()], options, clock=CLOCK, jitter=jitter).start()
    threading.Event().wait()


class Crash:
    """The parent: starts the backfill, kills the process that works on it, checks the result."""

    def __init__(self, store: Store, url: str, folder: Path, partitions: int) -> None:
        self.store, self.client, self._url = store, Client(store), url
        self._notes, self._partitions = folder / "notes.txt", partitions
        self._most = 0

    def run(self) -> None:
        """Kill, continue, check. Raises BackfillCrashed."""
        self._notes.touch()
        self.client.register([steps_pipeline()])
        request = BackfillRequest(
            pipeline="crash_steps", first=FIRST.isoformat(), parallelism=PARALLELISM,
            last=(FIRST + timedelta(days=self._partitions - 1)).isoformat(),
        )  # fmt: skip
        made = self.client.backfills.start(request).backfill
        assert made is not None
        for kill in range(1, KILLS + 1):
            self._work_until(made.backfill_id, self._partitions * kill // (KILLS + 1))
        self._work_until(made.backfill_id, None)
        self.check(made.backfill_id)

    def _work_until(self, backfill_id: str, done: int | None) -> None:
        """Let a process work until a number of partitions is done, or the end; then kill it."""
        with _process(self._url, self._notes):
            deadline = CLOCK.monotonic() + WAIT_SECONDS
            while not self._is_reached(self.client.backfills.get(backfill_id), done):
                if CLOCK.monotonic() > deadline:
                    raise BackfillCrashed(f"no progress: {self.client.backfills.get(backfill_id)}")
                CLOCK.sleep(0.01)

    def _is_reached(self, now: Backfill, done: int | None) -> bool:
        if now.done < self._most or now.done > now.total or now.total != self._partitions:
            raise BackfillCrashed(f"progress went from {self._most} to {now.done} of {now.total}")
        if now.counts.get("RUNNING", 0) > PARALLELISM:
            raise BackfillCrashed(f"more than {PARALLELISM} at a time: {now.counts}")
        self._most = now.done
        return now.ended_at is not None if done is None else now.done >= done

    def check(self, backfill_id: str) -> None:
        """Raise BackfillCrashed unless every partition was done exactly once."""
        now, n = self.client.backfills.get(backfill_id), self._partitions
        _same("the backfill", (now.state, now.counts, now.done), ("COMPLETE", {"COMPLETE": n}, n))
        flows = self._rows("SELECT partition, state FROM flows")
        _same("partitions", len({row[0] for row in flows}), n)
        _same("flows", Counter(row[1] for row in flows), {"COMPLETE": n})
        for what, query in _ONCE.items():
            found = Counter(self._rows(query))
            _same(what, (len(found), set(found.values())), (n * len(PHASES), {1}))
        noted = set(self._notes.read_text().splitlines())
        _same("what processors noted", len(noted), n * len(PHASES))

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.store.read(lambda tx: [tuple(r) for r in tx._connection.execute(query)])  # type: ignore[attr-defined]


_ONCE: Final = {
    "completions": "SELECT flow_id, processor FROM completions",
    "triggers": "SELECT flow_id, phase FROM triggers",
    "completed runs": "SELECT flow_id, processor FROM history WHERE final_state = 'COMPLETED'",
}


def _same(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise BackfillCrashed(f"{what}: expected {wanted}, got {found}")


@contextmanager
def _process(url: str, notes: Path) -> Iterator[None]:
    """Start a process that works; kill it in the end, without a chance to clean up."""
    command = [sys.executable, "-m", "tests.harness.crash_backfill", "--work", url]
    child = subprocess.Popen(command, env={**os.environ, NOTES: str(notes)})
    try:
        yield
    finally:
        child.kill()
        child.wait()


def crash(engine: str, partitions: int) -> None:
    """Run the whole scenario on one engine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if engine == "sqlite":
            _crash_on(str(folder / "crash.db"), folder, partitions)
            return
        with open_server() as server:
            _crash_on(server.create_database("crash_backfill"), folder, partitions)


def _crash_on(url: str, folder: Path, partitions: int) -> None:
    store = store_of(url)
    try:
        store.migrate()
        Crash(store, url, folder, partitions).run()
    finally:
        store.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scenario, or work as one of its processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--partitions", type=int, default=365)
    parser.add_argument("--work", metavar="DATABASE")
    parser.add_argument("--json", action="store_true", help="print a JSON line for each engine")
    given = parser.parse_args(arguments)
    if given.work:
        work(given.work)
    for engine in ("sqlite", "postgres") if given.engine == "both" else (given.engine,):
        began = CLOCK.monotonic()
        crash(engine, given.partitions)
        took = CLOCK.monotonic() - began
        if given.json:
            found = {"engine": engine, "partitions": given.partitions, "kills": KILLS}
            sys.stdout.write(json.dumps({**found, "seconds": round(took, 1)}) + "\n")
            continue
        text = (
            f"{engine}: {given.partitions} partitions each once after {KILLS} kills, {took:.0f} s"
        )
        sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
