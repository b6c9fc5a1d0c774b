"""Faults under full load: what the throughput is before, during and after, and what was lost.

A scheduler, two workers and a submitter, each in its own process, work on one database. A second
system like it, with a database of its own, works on the same machine at the same time; no fault
strikes it. The speed of a machine that is shared with others drifts by a tenth within a minute,
with no program of ours to blame, so that a rate says little about a fault; but the drift is the
same for both systems, and the ratio of their rates does not have it. A system that a fault has
made slower falls behind the other, which takes the rest of the machine.

After a baseline of twelve windows a fault is injected for some time; then the system has `settle`
seconds to recover. Recovery is the mean of its rates in twelve windows, each relative to that of
the reference, as a share of the same mean in the baseline; `recovery_alone` is the same without the
reference, for comparison only. Each system has half the machine, so that one scenario runs alone to
show what a fault leaves of the full throughput. Background services work in turns of 5 and 10
seconds, so a window has as many of them as any other; the tables grow first, since they slow down
most while they are small. A window in which other programs used much more or less of the CPU than
during the baseline does not count: it is measured again, and if too few can be compared, the
scenario fails and says so. At the end the submitter stops, all runs end, and the account must be
exact: nothing accepted is lost, nothing happened twice, and no process ended that was not killed.
One JSON line per scenario.

    python -m tests.harness.chaos --only restart,disk-full --seconds 20
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg

from benchmarks.raw import PostgresRaw, SqliteRaw
from penstock import connect
from penstock.core.clock import SystemClock
from penstock.testing.postgres.server import PostgresServer
from tests.harness.chaos_load import BATCHES, ENDED, OPEN, account, chaos
from tests.harness.machine_load import cpu_ticks, others_share
from tests.harness.recovered import RECOVERED, WINDOWS, Window, is_measured, recovery_of
from tests.harness.throughput import Sampler, baseline_rates, mean_rate, recovery_seconds

ROOT: Final = Path(__file__).parents[2]
CLOCK: Final = SystemClock()
WORKERS: Final = ("worker-0", "worker-1")
PROCESSES: Final = ("scheduler", *WORKERS, "submitter")
BATCH: Final = 500
BACKLOG: Final = {"postgres": 10_000, "sqlite": 5_000}
WARM_SECONDS: Final = 20
WINDOW_SECONDS: Final = 10
START_SECONDS: Final = 120
SETTLE_SECONDS: Final = 20
LEASE_SECONDS: Final = 40
"""Longer than a session's lease (30 s) and the sweep after it: work of killed workers returns."""
DRAIN_SECONDS: Final = 240
IDLE_CONNECTIONS: Final = 300
TMPFS_BYTES: Final = 9 << 30
OPTIONS: Final[dict[str, str | int]] = {
    "max_connections": 450, "shared_buffers": "512MB", "max_wal_size": "1GB", "jit": "off",
    # Autovacuum takes a tenth of the throughput for ten seconds a minute, which would fall into the
    # windows after a fault: it works a little in every window, and not on tables that only grow.
    "autovacuum_naptime": "5s", "autovacuum_vacuum_insert_threshold": -1,
}  # fmt: skip


class Wrong(Exception):
    """A scenario could not be run to its end, or a process ended by itself."""


class Impossible(Exception):
    """The machine does not allow the fault; the text says why."""


@dataclass(slots=True)
class Stage:
    """The database, its server and the processes of one scenario."""

    engine: str
    folder: Path
    url: str
    server: PostgresServer | None = None
    disk: Path | None = None
    """A file system of limited size that holds the database, if the scenario has one."""
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    kills: int = 0

    def start(self, name: str) -> None:
        """Start a process by its name."""
        command = [sys.executable, "-m", "penstock", "--database-url", self.url]
        pipelines = ["--pipelines", "tests.harness.chaos_load"]
        if name == "submitter":
            given = {"url": self.url, "history": str(self.history), "batch": BATCH,
                     "backlog": BACKLOG[self.engine]}  # fmt: skip
            command = [sys.executable, "-m", "tests.harness.chaos_load", json.dumps(given)]
        elif name == "scheduler":
            command += ["scheduler", *pipelines]
        else:
            command += ["worker", *pipelines]
        environment = {n: v for n, v in os.environ.items() if not n.startswith("PENSTOCK_")}
        environment["PENSTOCK_LOG_LEVEL"] = "warning"
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command, cwd=ROOT, stdout=log, stderr=log, env=environment
            )

    def kill(self, name: str) -> None:
        """Kill a process by SIGKILL and start it again."""
        self.running[name].kill()
        self.running[name].wait()
        self.kills += 1
        self.start(name)

    def stop(self, name: str) -> None:
        """Ask a process to end, and wait for it."""
        process = self.running.pop(name)
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Wrong(f"{name} did not end within a minute of SIGTERM") from None

    def check_alive(self) -> None:
        """Raise if a process has ended by itself."""
        for name, process in self.running.items():
            if process.poll() is not None:
                log = (self.folder / f"{name}.log").read_text(errors="replace")[-1_500:]
                raise Wrong(f"{name} ended with {process.returncode}:\n{log}")

    def close(self) -> None:
        """Kill everything that is left."""
        for process in self.running.values():
            process.kill()
            process.wait()

    @property
    def history(self) -> Path:
        """The submitter's history."""
        return self.folder / "submitter.history"

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Run a query on a new connection, outside of Penstock."""
        where = self.url.removeprefix("sqlite:")
        raw = PostgresRaw(self.url) if self.engine == "postgres" else SqliteRaw(Path(where))
        try:
            return raw.rows(text)
        finally:
            raw.close()


# --- faults: each returns when its time is over and the cause is gone ---


def _nothing(stage: Stage, until: float) -> None:
    """Wait: how the throughput drifts by itself while tables grow."""
    assert stage.running
    CLOCK.sleep(max(0.0, until - CLOCK.monotonic()))


def _restart(stage: Stage, until: float) -> None:
    """Stop and start PostgreSQL twice, as for a minor upgrade; connections break."""
    assert stage.server is not None
    pause = (until - CLOCK.monotonic()) / 2
    for _ in range(2):
        stage.server.restart()
        CLOCK.sleep(max(0.0, pause - 1))


def _crash(stage: Stage, until: float) -> None:
    """Kill PostgreSQL by SIGKILL; it stays down for a while and recovers from its log."""
    assert stage.server is not None
    stage.server.kill()
    CLOCK.sleep(max(0.0, until - CLOCK.monotonic()))
    stage.server.start()


def _connection_kills(stage: Stage, until: float) -> None:
    """Terminate all connections to the database four times a second."""
    while CLOCK.monotonic() < until:
        with psycopg.connect(stage.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        CLOCK.sleep(0.25)


def _worker_kills(stage: Stage, until: float) -> None:
    """Kill a worker by SIGKILL every other second; its successor starts immediately."""
    chance = random.Random(7)
    while CLOCK.monotonic() < until:
        stage.kill(chance.choice(WORKERS))
        CLOCK.sleep(2)


def _idle_in_transaction(stage: Stage, until: float) -> None:
    """Keep a transaction with a snapshot open, so that no dead row can be removed."""
    with psycopg.connect(stage.url, application_name="report") as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM configs")
        CLOCK.sleep(max(0.0, until - CLOCK.monotonic()))


def _idle_connections(stage: Stage, until: float) -> None:
    """Open 300 connections that do nothing."""
    with contextlib.ExitStack() as opened:
        for _ in range(IDLE_CONNECTIONS):
            opened.enter_context(psycopg.connect(stage.url))
        CLOCK.sleep(max(0.0, until - CLOCK.monotonic()))


def _disk_full(stage: Stage, until: float) -> None:
    """Fill the file system of the database; afterwards an operator frees space again."""
    assert stage.disk is not None
    ballast = stage.disk / "ballast"
    try:
        while CLOCK.monotonic() < until:
            _fill(ballast)
            CLOCK.sleep(0.5)
    finally:
        ballast.unlink(missing_ok=True)
    if stage.server is not None:
        stage.server.start()  # returns at once if the server survived


def _fill(ballast: Path) -> None:
    """Take what is free on the file system, to the last block."""
    with ballast.open("ab") as file:
        for size in (1 << 26, 1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A fault, the engine it strikes, and the share of the baseline that must be left or return."""

    about: str
    inject: Callable[[Stage, float], None]
    engine: str = "postgres"
    is_small: bool = False
    times: int = 1
    """How much longer than others the fault lasts."""
    during_min: float | None = None
    recovery_min: float | None = RECOVERED
    is_alone: bool = False
    """Whether no reference works beside it: the system has the whole machine."""
    settle: int = SETTLE_SECONDS
    """Time to recover before the throughput is measured again."""


SCENARIOS: Final[dict[str, Scenario]] = {
    "control": Scenario(about="nothing happens", inject=_nothing),
    "control-sqlite": Scenario(
        about="nothing happens to a SQLite file", inject=_nothing, engine="sqlite", is_small=True
    ),
    "restart": Scenario(about="PostgreSQL is restarted twice", inject=_restart),
    "crash": Scenario(about="PostgreSQL is killed and stays down", inject=_crash),
    "connection-kills": Scenario(
        about="all connections are terminated four times a second", inject=_connection_kills
    ),
    "worker-kills": Scenario(
        about="a worker is killed by SIGKILL every other second",
        inject=_worker_kills,
        settle=LEASE_SECONDS,
    ),
    "idle-in-transaction": Scenario(
        about="a session is idle in a transaction that holds a snapshot",
        inject=_idle_in_transaction,
        times=3,
        during_min=0.7,
    ),
    "idle-in-transaction-alone": Scenario(
        about="a session is idle in a transaction that holds a snapshot, and the whole machine "
        "works on that system",
        inject=_idle_in_transaction,
        times=3,
        during_min=0.7,
        recovery_min=None,  # only a reference can tell it from the drift of the machine
        is_alone=True,
    ),
    "idle-connections": Scenario(
        about=f"{IDLE_CONNECTIONS} connections are open and idle", inject=_idle_connections
    ),
    "disk-full": Scenario(about="the disk of PostgreSQL is full", inject=_disk_full, is_small=True),
    "disk-full-sqlite": Scenario(
        about="the disk of SQLite is full", inject=_disk_full, engine="sqlite", is_small=True
    ),
}


@contextlib.contextmanager
def _disk() -> Iterator[Path]:
    """Mount a small file system; needs root."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES},mode=0755", "tmpfs", str(folder)]
    try:
        if shutil.which("mount") is None:
            raise Impossible("there is no mount command")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Impossible(f"no file system could be mounted: {done.stderr.strip()}")
        try:
            yield folder
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
    finally:
        folder.rmdir()


@contextlib.contextmanager
def _staged(scenario: Scenario) -> Iterator[Stage]:
    """Open the database of a scenario and register its pipeline."""
    with contextlib.ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="penstock-chaos-")))
        disk = opened.enter_context(_disk()) if scenario.is_small else None
        if scenario.engine == "sqlite":
            stage = Stage("sqlite", folder, f"sqlite:{disk or folder}/chaos.db", disk=disk)
        else:
            data = disk / "data" if disk else None
            server = PostgresServer(durable=True, options=OPTIONS, data_dir=data)
            opened.enter_context(server)
            url = server.create_database("chaos")
            stage = Stage("postgres", folder, url, server=server, disk=disk)
        with connect(stage.url) as client:
            client.register([chaos])
        opened.callback(stage.close)
        yield stage


def run(name: str, seconds: int, settle: int | None = None) -> dict[str, Any]:
    """Run one scenario, whose fault takes `seconds`, beside a reference without a fault."""
    scenario = SCENARIOS[name]
    with contextlib.ExitStack() as opened:
        stage = opened.enter_context(_staged(scenario))
        stages = [stage]
        if not scenario.is_alone:
            stages.append(opened.enter_context(_staged(scenario)))
        samplers = [_started(one) for one in stages]
        for one, sampler in zip(stages, samplers, strict=True):
            _warm_up(one, sampler)
        CLOCK.sleep(WARM_SECONDS)
        began, ticks = CLOCK.monotonic(), cpu_ticks()
        CLOCK.sleep(WINDOW_SECONDS * WINDOWS)
        struck, others = CLOCK.monotonic(), others_share(ticks, cpu_ticks())
        parts = [began + WINDOW_SECONDS * number for number in range(WINDOWS + 1)]
        baselines = [baseline_rates(sampler.samples, parts) for sampler in samplers]
        scenario.inject(stage, struck + seconds * scenario.times)
        healed = CLOCK.monotonic()
        before = statistics.mean(baselines[0])
        ratio = statistics.mean(_relative(rates) for rates in zip(*baselines, strict=True))
        if not ratio:
            raise Wrong("no run ended before the fault, so there is no baseline")
        CLOCK.sleep(scenario.settle if settle is None else settle)
        after: list[Window] = []
        ended: list[list[float]] = []
        while not is_measured(after, others):
            since, ticks = CLOCK.monotonic(), cpu_ticks()
            CLOCK.sleep(WINDOW_SECONDS)
            until = CLOCK.monotonic()
            ended.append([mean_rate(sampler.samples, since, until) for sampler in samplers])
            share = _share(_relative(ended[-1]), ratio)
            after.append(Window(share, others_share(ticks, cpu_ticks())))
        end = CLOCK.monotonic()
        for one in stages:
            one.check_alive()
        for sampler in samplers:
            sampler.stop()
        for reference in stages[1:]:
            reference.close()
        stage.stop("submitter")
        _drain(stage)
        for process in (*WORKERS, "scheduler"):
            stage.stop(process)
        counted = account(stage.history.read_text(), stage.rows(BATCHES), BATCH)
    during = mean_rate(samplers[0].samples, struck, healed)
    back = recovery_seconds(samplers[0].samples, healed, end, before)
    return {
        "scenario": name, "about": scenario.about, "engine": scenario.engine,
        "before_per_s": round(before), "during_per_s": round(during),
        "before_windows_per_s": [round(one) for one in baselines[0]],
        "after_per_s": [round(one[0]) for one in ended],
        **_of_reference(baselines[1:], [one[1:] for one in ended]),
        "during": _share(during, before), "recovery": recovery_of(after, others),
        "recovery_alone": _share(statistics.mean(one[0] for one in ended), before),
        "others_cpu_before": round(others, 3),
        "others_cpu_after": [round(one.others, 3) for one in after],
        "recovered_after_s": None if back is None else round(back, 1),
        "kills": stage.kills, **counted,
    }  # fmt: skip


def _relative(rates: Sequence[float]) -> float:
    """Return the rate of the system relative to its reference, or the rate if it is alone."""
    own, *others = rates
    return own if not others else own / others[0] if others[0] else 0.0


def _of_reference(
    before: Sequence[Sequence[float]], after: Sequence[Sequence[float]]
) -> dict[str, list[int]]:
    """Return the rates of the reference, if there was one."""
    if not before:
        return {}
    return {
        "reference_before_per_s": [round(rate) for rate in before[0]],
        "reference_after_per_s": [round(rate) for rates in after for rate in rates],
    }


def _started(stage: Stage) -> Sampler:
    """Start the processes of a system, and sample its throughput."""
    sampler = Sampler(lambda: int(stage.rows(ENDED)[0][0]))
    for process in PROCESSES:
        stage.start(process)
    sampler.start()
    return sampler


def faults_of(found: dict[str, Any]) -> list[str]:
    """Return what a scenario's figures violate."""
    wrong = [
        f"{name} is {found[name]}, expected 0"
        for name in ("lost", "doubled", "partial", "unasked")
        if found[name]
    ]
    if found["recovery"] is None:
        later = ", ".join(f"{one:.0%}" for one in found["others_cpu_after"])
        wrong.append(
            f"other programs used {found['others_cpu_before']:.0%} of the CPU before the fault and "
            f"{later} after it: the throughputs cannot be compared"
        )
    scenario = SCENARIOS[found["scenario"]]
    least = scenario.recovery_min
    if least is not None and found["recovery"] is not None and found["recovery"] < least:
        wrong.append(f"recovery is {found['recovery']:.0%} of the baseline, expected {least:.0%}")
    least = scenario.during_min
    if least is not None and found["during"] < least:
        wrong.append(f"{found['during']:.0%} of the baseline was left, expected {least:.0%}")
    return wrong


def _share(rate: float, baseline: float) -> float:
    return round(rate / baseline, 3) if baseline else 0.0


def _warm_up(stage: Stage, sampler: Sampler) -> None:
    """Wait until runs end."""
    until = CLOCK.monotonic() + START_SECONDS
    while not sampler.samples or sampler.samples[-1][1] < 4 * BATCH:
        stage.check_alive()
        if CLOCK.monotonic() > until:
            raise Wrong(f"fewer than {4 * BATCH} runs ended within {START_SECONDS} s of the start")
        CLOCK.sleep(0.2)


def _drain(stage: Stage) -> None:
    """Wait until no run is open."""
    until = CLOCK.monotonic() + DRAIN_SECONDS
    while left := int(stage.rows(OPEN)[0][0]):
        stage.check_alive()
        if CLOCK.monotonic() > until:
            raise Wrong(f"{left} runs are still open {DRAIN_SECONDS} s after the last submission")
        CLOCK.sleep(0.5)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scenarios and print one JSON line for each; 1 if one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help=f"scenarios, by comma: {', '.join(SCENARIOS)}")
    parser.add_argument("--seconds", type=int, default=16, help="length of the fault")
    parser.add_argument("--settle", type=int, help="time to recover; default: by scenario")
    given = parser.parse_args(arguments)
    names = given.only.split(",") if given.only else list(SCENARIOS)
    if unknown := [name for name in names if name not in SCENARIOS]:
        parser.error(f"no scenario {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that everything is cleaned up
    failed = 0
    for name in names:
        wrong: list[str] = []
        try:
            found = run(name, given.seconds, given.settle)
            wrong = found["wrong"] = faults_of(found)
        except Impossible as error:
            found = {"scenario": name, "skipped": str(error)}
        except Wrong as error:
            wrong = [str(error)]
            found = {"scenario": name, "wrong": wrong}
        failed += bool(wrong)
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
