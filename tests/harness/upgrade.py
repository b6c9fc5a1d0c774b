"""An upgrade without downtime: the previous release keeps working while the schema is migrated.

Processes of the previous release (scheduler, two workers, API) work on PostgreSQL under load: runs,
flows of two phases and messages over HTTP. Then, without a pause of the load: the new version
migrates the database; the old processes continue alone on the new schema; new processes join them;
the load moves to the new API; the old processes are stopped by SIGTERM. At the end every accepted
run completed once, every flow ran each phase once, every message is there once, and no request
failed.

    python -m tests.harness.upgrade [--from v1.2.0] [--seconds 12]

The previous release is the newest tag, or a commit before the latest migrations while there is no
tag. A clone without that commit reports that the proof was skipped. One JSON line.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.raw import PostgresRaw
from penstock import connect
from penstock.core.clock import SystemClock
from penstock.testing.postgres.process import port_free
from penstock.testing.postgres.server import PostgresServer
from tests.harness.chaos_load import ACCEPTED, ASKED, BATCHES, OPEN, account

ROOT: Final = Path(__file__).parents[2]
PREVIOUS: Final = "d2051ac3"
"""A commit of the day before, with the migrations up to 0041."""
CLOCK: Final = SystemClock()
START_SECONDS: Final = 90
RETRY_SECONDS: Final = 60
DRAIN_SECONDS: Final = 180
STOP_SECONDS: Final = 60
WORKERS: Final = 2
FLOWS: Final = (
    "SELECT count(*), coalesce(sum(CASE WHEN ends = 2 AND completed = 2 THEN 0 ELSE 1 END), 0) "
    "FROM (SELECT flow_id, count(*) AS ends, "
    "sum(CASE WHEN final_state = 'COMPLETED' THEN 1 ELSE 0 END) AS completed "
    "FROM history WHERE flow_id IS NOT NULL GROUP BY flow_id) AS flows"
)
UNFINISHED: Final = "SELECT count(*) FROM flows WHERE state = 'OPEN'"
HOLDERS: Final = "SELECT claimed_by, count(*) FROM history WHERE finished_at > %d GROUP BY 1"
MIGRATIONS: Final = "SELECT number FROM schema_migrations ORDER BY number"
NOW: Final = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class Wrong(Exception):
    """The proof cannot continue; the text says why."""


class Absent(Exception):
    """The previous release is not in this clone."""


def previous_release() -> str:
    """Return the newest tag before this commit, or the commit that stands for it."""
    command = ["git", "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or PREVIOUS


def unpack(commit: str, folder: Path) -> Path:
    """Write the sources of a commit to a folder; return what goes onto the path."""
    archive = folder / "previous.tar"
    command = ["git", "archive", "--output", str(archive), commit, "src"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Absent(f"the previous release, {commit}, is not in this clone (a shallow one?)")
    with tarfile.open(archive) as opened:
        opened.extractall(folder / "previous", filter="data")
    return folder / "previous" / "src"


@dataclass(slots=True)
class Release:
    """The processes of one version."""

    name: str
    source: Path
    url: str
    folder: Path
    port: int = field(default_factory=port_free)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """Return variables that select this version and the database."""
        kept = {n: v for n, v in os.environ.items() if not n.startswith("PENSTOCK_")}
        return {
            **kept,
            "PYTHONPATH": f"{self.source}{os.pathsep}{ROOT}",
            "PENSTOCK_DATABASE_URL": self.url,
            "PENSTOCK_LOG_LEVEL": "warning",
        }

    def command(self, *words: str) -> str:
        """Run a command to its end; return its output."""
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *words], cwd=self.folder, env=self.environment(),
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        if done.returncode:
            raise Wrong(f"{self.name}: penstock {' '.join(words)}: {done.stderr[-800:]}")
        return done.stdout

    def start(self) -> None:
        """Start scheduler, workers and API, and wait for the API."""
        pipelines = ("--pipelines", "tests.harness.upgrade_pipelines")
        commands = {"scheduler": ("scheduler", *pipelines)}
        commands |= {f"worker-{n}": ("worker", *pipelines) for n in range(WORKERS)}
        commands["api"] = ("api", "--port", str(self.port))
        for name, words in commands.items():
            with self.log(name).open("ab") as log:
                self.running[name] = subprocess.Popen(
                    [sys.executable, "-m", "penstock", *words],
                    cwd=self.folder, env=self.environment(), stdout=log, stderr=log,
                )  # fmt: skip
        until = CLOCK.monotonic() + START_SECONDS
        while not _is_ready(self.port):
            self.check_alive()
            if CLOCK.monotonic() > until:
                raise Wrong(f"{self.name}: the API was not ready within {START_SECONDS} s")
            CLOCK.sleep(0.2)

    def check_alive(self) -> None:
        """Raise if a process has ended by itself."""
        for name, process in self.running.items():
            if process.poll() is not None:
                tail = self.log(name).read_text(errors="replace")[-1_000:]
                raise Wrong(f"{self.name} {name} ended with {process.returncode}:\n{tail}")

    def stop(self) -> dict[str, int]:
        """Stop all processes by SIGTERM, as a deployment does; return their exit codes."""
        for process in self.running.values():
            process.terminate()
        return {name: process.wait(STOP_SECONDS) for name, process in self.running.items()}

    def close(self) -> None:
        """Kill what is left."""
        for process in self.running.values():
            process.kill()
            process.wait()

    def log(self, name: str) -> Path:
        """Return the log of a process."""
        return self.folder / f"{self.name}-{name}.log"

    def errors(self) -> list[str]:
        """Return the lines of errors in the logs."""
        lines = [one for name in self.running for one in self.log(name).read_text().splitlines()]
        return [one for one in lines if re.search(r"\b(ERROR|error|Traceback)\b", one)]

    def worker_names(self) -> set[str]:
        """Return the numbers of the workers' processes, with which their names end."""
        return {str(p.pid) for name, p in self.running.items() if name.startswith("worker")}


def _is_ready(port: int) -> bool:
    try:
        return _call(port, "GET", "/readyz", None, {})[0] == 200
    except OSError:
        return False


def _call(
    port: int, method: str, path: str, body: Any, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        return response.status, response.read()
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()


class Load:
    """Sends requests from several threads to the API that is current, until stopped."""

    def __init__(self, key: str, port: int) -> None:
        self.port = port
        self.counts: Counter[str] = Counter()
        self.history: list[str] = []
        self.failures: list[str] = []
        self.slowest = 0.0
        self._headers = {"Authorization": f"Bearer {key}"}
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._repeat, args=(kind, send), daemon=True)
            for kind, send in (
                ("run", self._run), ("run", self._run), ("flow", self._flow),
                ("message", self._message),
            )
        ]  # fmt: skip

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop after the requests that are under way."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(RETRY_SECONDS + 60)

    def request(self, method: str, path: str, body: Any, key: str = "") -> bool:
        """Send a request until it is accepted or refused permanently, as a client would."""
        headers = {**self._headers, **({"Idempotency-Key": key} if key else {})}
        began = CLOCK.monotonic()
        while CLOCK.monotonic() < began + RETRY_SECONDS:
            try:
                status, reply = _call(self.port, method, path, body, headers)
            except OSError:
                status, reply = 0, b""
            if status in (200, 201):
                self.slowest = max(self.slowest, CLOCK.monotonic() - began)
                return True
            if status not in (0, 429, 503):
                break
            self.counts["repeated"] += 1
            CLOCK.sleep(0.2)
        self.failures.append(f"{method} {path}: {status} {reply[:200]!r}")
        return False

    def _repeat(self, kind: str, send: Callable[[int], bool]) -> None:
        while not self._stopping.wait(0.01):
            with self._lock:
                self.counts[f"{kind}_numbers"] += 1
                number = self.counts[f"{kind}_numbers"]
            is_accepted = send(number)
            with self._lock:
                self.counts[f"{kind}s"] += is_accepted

    def _run(self, number: int) -> bool:
        self.history.append(f"{ASKED} {number} ")
        path = f"/api/v1/customers/c{number % 20}/pipeline-runs"
        body = {"pipeline_template": "single", "correlation_id": f"b{number}"}
        if not self.request("POST", path, body, f"run-{number}"):
            return False
        self.history.append(f"{ACCEPTED} {number} ")
        return True

    def _flow(self, number: int) -> bool:
        body = {"pipeline_template": "chain", "customer_id": f"f{number}",
                "partition": "2025-11-17"}  # fmt: skip
        return self.request("POST", "/api/v1/flows", body, f"flow-{number}")

    def _message(self, number: int) -> bool:
        body = {"messages": [{"data": "e30=", "dedupe_id": f"m{number}"}]}
        return self.request("POST", "/api/v1/topics/upgrade/publish", body)


def prove(commit: str, seconds: float) -> dict[str, Any]:
    """Run the whole upgrade; return the figures."""
    with contextlib.ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="penstock-up-")))
        source = unpack(commit, folder)
        server = opened.enter_context(PostgresServer(durable=True, options={"jit": "off"}))
        url = server.create_database("upgrade")
        old = Release("old", source, url, folder)
        new = Release("new", ROOT / "src", url, folder)
        opened.callback(old.close)
        opened.callback(new.close)
        raw = PostgresRaw(url)
        opened.callback(raw.close)
        old.command("db", "migrate")
        key = json.loads(old.command("keys", "create", "load", "--role", "admin", "--rate",
                                     "100000", "--json"))["key"]  # fmt: skip
        old.start()
        load = Load(key, old.port)
        for path, body in (
            ("/api/v1/topics", {"name": "upgrade"}),
            ("/api/v1/subscriptions", {"name": "upgrade-reader", "topic": "upgrade"}),
        ):
            load.request("POST", path, body)
        figures = _steps(old, new, load, raw, seconds)
        return {"from": commit, **figures, **_account(url, load, raw)}


def _steps(
    old: Release, new: Release, load: Load, raw: PostgresRaw, seconds: float
) -> dict[str, Any]:
    """Upgrade under load, step by step; return what each took and did."""
    before = [number for (number,) in raw.rows(MIGRATIONS)]
    load.start()
    with _stopped(load):
        CLOCK.sleep(seconds)
        began = CLOCK.monotonic()
        new.command("db", "migrate")
        migrated_in = CLOCK.monotonic() - began
        migrated_at = int(raw.rows(NOW)[0][0])
        applied = [number for (number,) in raw.rows(MIGRATIONS) if number not in before]
        CLOCK.sleep(seconds)
        old.check_alive()
        alone = _by_release(raw, migrated_at, old, new)["old"]
        new.start()
        joined_at = int(raw.rows(NOW)[0][0])
        CLOCK.sleep(seconds)
        together = _by_release(raw, joined_at, old, new)
        old.check_alive()
        load.port = new.port
        codes = old.stop()
        CLOCK.sleep(seconds)
        new.check_alive()
    _drain(raw, new)
    errors = old.errors()
    if any(codes.values()):
        load.failures.append(f"exit codes of the old processes: {codes}")
    return {
        "migrations": len(applied), "first": min(applied, default=0),
        "last": max(applied, default=0), "migrate_seconds": round(migrated_in, 1),
        "old_on_new_schema": alone, "old_beside_new": together["old"],
        "new_beside_old": together["new"], "old_errors": len(errors), "errors": errors[:5],
    }  # fmt: skip


@contextlib.contextmanager
def _stopped(load: Load) -> Iterator[None]:
    """Stop the load in any case."""
    try:
        yield
    finally:
        load.stop()


def _by_release(raw: PostgresRaw, since: int, old: Release, new: Release) -> dict[str, int]:
    """Return how many runs the workers of each version ended since a time."""
    found: Counter[str] = Counter()
    for holder, count in raw.rows(HOLDERS % since):
        number = str(holder).rpartition(":")[2]
        found["old" if number in old.worker_names() else "new"] += count
    del new
    return {"old": found["old"], "new": found["new"]}


def _drain(raw: PostgresRaw, new: Release) -> None:
    until = CLOCK.monotonic() + DRAIN_SECONDS
    while left := raw.rows(OPEN)[0][0] + raw.rows(UNFINISHED)[0][0]:
        new.check_alive()
        if CLOCK.monotonic() > until:
            raise Wrong(f"{left} runs and flows are open {DRAIN_SECONDS} s after the load ended")
        CLOCK.sleep(0.5)


def _account(url: str, load: Load, raw: PostgresRaw) -> dict[str, Any]:
    """Compare what was accepted with what is in the database."""
    ours = [row for row in raw.rows(BATCHES) if re.fullmatch(r"b\d+", str(row[0]))]
    runs = account("\n".join(load.history), ours, 1)
    flows, odd = raw.rows(FLOWS)[0]
    with connect(url) as client:
        ready = client.subscriptions.get("upgrade-reader").backlog.ready
    lost = runs["lost"] + max(0, load.counts["flows"] - flows)
    lost += max(0, load.counts["messages"] - ready)
    doubled = runs["doubled"] + max(0, flows - load.counts["flow_numbers"])
    doubled += max(0, ready - load.counts["message_numbers"])
    return {
        "runs": load.counts["runs"], "flows": load.counts["flows"],
        "messages": load.counts["messages"],
        "accepted": load.counts["runs"] + load.counts["flows"] + load.counts["messages"],
        "failed": len(load.failures), "failures": load.failures[:5], "lost": lost,
        "doubled": doubled + int(odd), "repeated_requests": load.counts["repeated"],
        "slowest_request_s": round(load.slowest, 2),
    }  # fmt: skip


def faults_of(found: Mapping[str, Any]) -> list[str]:
    """Return what the figures violate."""
    wrong = [f"{name} is {found[name]}" for name in ("failed", "lost", "doubled") if found[name]]
    wrong += [
        f"{name} is 0: nothing was shown"
        for name in ("migrations", "accepted", "old_on_new_schema", "new_beside_old")
        if not found[name]
    ]
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Prove the upgrade; print one JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--from", dest="commit", help="tag or commit of the previous release")
    parser.add_argument("--seconds", type=float, default=12, help="length of each step")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    commit = given.commit or previous_release()
    try:
        found = prove(commit, given.seconds)
        found["wrong"] = faults_of(found)
    except Absent as error:
        found = {"skipped": str(error)}
    except Wrong as error:
        found = {"from": commit, "wrong": [str(error)]}
    sys.stdout.write(json.dumps(found) + "\n")
    return 1 if found.get("wrong") else 0


if __name__ == "__main__":
    sys.exit(main())
