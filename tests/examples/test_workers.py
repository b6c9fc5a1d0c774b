"""The example workers, each in its own process against a server in another."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Submission
from penstock.bus.records import Subscription
from penstock.client import Client
from penstock.db.sqlite.store import SqliteStore
from penstock.runs.records import Run
from penstock.runs.states import RunState

ROOT = Path(__file__).parents[2]
WORKERS = ROOT / "examples" / "workers"
PIPELINES = """
from penstock import Pipeline

resize = Pipeline("resize")
resize.phase("main").external("images", timeout="10m")
"""
PATIENCE_SECONDS = 90.0


class Process:
    """A child process whose output lines can be waited for."""

    def __init__(self, *command: str, cwd: Path, **environment: str) -> None:
        self._child = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._is_at_end = False
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, found: Callable[[str], bool]) -> str:
        """Return the first matching line, waiting for it if necessary."""
        with self._more:
            self._more.wait_for(
                lambda: self._is_at_end or any(map(found, self.lines)), PATIENCE_SECONDS
            )
            line = next(filter(found, self.lines), None)
            assert line is not None, "\n".join(self.lines)
            return line

    def terminate(self) -> int:
        """Send SIGTERM; return the exit code."""
        self._child.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """Wait until it exits; return the exit code."""
        try:
            return self._child.wait(PATIENCE_SECONDS)
        finally:
            self.close()

    def close(self) -> None:
        """Kill it if it is still running."""
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        self._reader.join()
        assert self._child.stdout is not None
        self._child.stdout.close()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            with self._more:
                self.lines.append(line.rstrip("\n"))
                self._more.notify_all()
        with self._more:
            self._is_at_end = True
            self._more.notify_all()


class Server:
    """A server on a free port, and a client on the same database."""

    def __init__(self, folder: Path) -> None:
        (folder / "pipelines.py").write_text(PIPELINES)
        database = f"sqlite:{folder}/penstock.db"
        self.folder = folder
        self.process = Process(
            sys.executable, "-m", "penstock", "--json", "--database-url", database, "up",
            "--pipelines", "pipelines.py", "--port", "0", cwd=folder,
        )  # fmt: skip
        try:
            up = json.loads(self.process.wait_for(lambda line: '"api"' in line))
            self.url, self.admin = up["api"], up["development_key"]
            self.store = SqliteStore(folder / "penstock.db")
            self.client = Client(self.store)
            self.worker_key = self.client.keys.create("images", "worker").key or ""
        except BaseException:
            self.process.close()
            raise

    def close(self) -> None:
        """Stop the server."""
        self.process.close()
        self.store.close()


class Bench:
    """A server, one of the workers, and a client on the server's database."""

    def __init__(self, server: Server, command: list[str]) -> None:
        self.server, self.client, self.command = server, server.client, command
        self._settings = {
            "PENSTOCK_URL": server.url, "PENSTOCK_API_KEY": server.worker_key,
            "WORKER_ID": "bench-1", "BEAT_SECONDS": "0.1", "WAIT_SECONDS": "1",
        }  # fmt: skip
        self.worker = self.start()

    def start(self, **other: str) -> Process:
        """Start another worker with other settings."""
        return Process(*self.command, cwd=self.server.folder, **{**self._settings, **other})

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Make one call with the development key."""
        headers = {
            "Authorization": f"Bearer {self.server.admin}",
            "Content-Type": "application/json",
        }
        request = urllib.request.Request(
            f"{self.server.url}/api/v1{path}", json.dumps(body).encode(), headers
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
            found: dict[str, Any] = json.load(response)
        return found

    def submit(self, **parameters: Any) -> str:
        """Submit a run for the worker."""
        wanted = Submission(pipeline="resize", customer="acme", parameters=parameters)
        return self.client.runs.submit(wanted).run_id

    def run(self, run_id: str) -> Run:
        """Return a run as stored."""
        return self.client.runs.get(run_id)

    def ended(self, run_id: str) -> Run:
        """Return a run after the worker has reported its end."""
        self.worker.wait_for(lambda line: line.startswith(f"{run_id} "))
        return self.run(run_id)

    def close(self) -> None:
        """Stop the worker."""
        self.worker.close()


def _node() -> list[str]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    return [node, str(WORKERS / "worker.mjs")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that several workers use one after another."""
    made = Server(tmp_path_factory.mktemp("workers"))
    yield made
    made.close()


@pytest.fixture(params=["python", "node"])
def command(request: pytest.FixtureRequest) -> list[str]:
    """The command of a worker written in one of the languages."""
    return _node() if request.param == "node" else [sys.executable, str(WORKERS / "worker.py")]


@pytest.fixture
def bench(server: Server, command: list[str]) -> Iterator[Bench]:
    """A worker written in one of the languages, on the shared server."""
    made = Bench(server, command)
    yield made
    made.close()


def test_complete_and_fail(bench: Bench) -> None:
    """A run is claimed, started and completed with its result; a failing one is retried."""
    good = bench.submit(steps=2, step_seconds=0.01)
    bad = bench.submit(steps=1, step_seconds=0.01, error="no such image")
    run = bench.ended(good)
    assert (run.state, run.status, run.claimed_by) == ("COMPLETED", "SUCCESS", "bench-1")
    assert run.result == {"steps": 2}
    run = bench.ended(bad)
    assert run.state == "FAILED"
    assert run.error_type in ("RUNTIME_ERROR", "ERROR")
    assert run.error_details["message"] == "no such image"
    (retry,) = bench.client.runs.list(
        state=RunState.PENDING, correlation_id=run.correlation_id
    ).items
    assert retry.parent_run_id == bad
    bench.client.runs.cancel(retry.run_id)
    bare = bench.start(PENSTOCK_URL="")
    assert (bare.ended(), bare.lines[0][:20]) == (1, "set PENSTOCK_URL and")
    unknown = bench.start(PENSTOCK_API_KEY="pnk_no")
    assert unknown.ended() == 1, "it retries forever"
    assert "auth." in unknown.lines[-1]


def test_heartbeat_and_cancel(bench: Bench) -> None:
    """Heartbeats report progress during the work; a cancellation stops it and is confirmed."""
    run_id = bench.submit(steps=1000, step_seconds=0.05)
    never = threading.Event()
    for _ in range(1_200):
        progress = bench.client.runs.detail(run_id).progress
        if progress is not None and progress.percent:
            break
        never.wait(0.05)
    else:
        raise AssertionError(bench.worker.lines)
    assert (progress.stage or "").startswith("step ")
    assert progress.worker == "bench-1"
    asked = bench.post(f"/pipeline-runs/{run_id}/cancel", {"reason": "wrong folder"})
    assert asked["outcome"] == "asked"
    assert bench.ended(run_id).state == "CANCELLED"


def test_drain(bench: Bench) -> None:
    """On SIGTERM a worker finishes its run, claims nothing more and exits."""
    first = bench.submit(steps=10, step_seconds=0.1)
    for _ in range(3_000):
        if bench.run(first).state == "RUNNING":
            break
        threading.Event().wait(0.02)
    second = bench.submit(steps=1, step_seconds=0.01)
    assert bench.worker.terminate() == 0, bench.worker.lines
    assert bench.run(first).state == "COMPLETED"
    assert bench.run(second).state == "PENDING"
    bench.worker = bench.start()
    assert bench.ended(second).state == "COMPLETED"


def test_an_unreachable_server(tmp_path: Path, command: list[str]) -> None:
    """A worker whose server is stopped keeps retrying and does not exit."""
    server = Server(tmp_path)
    bench = Bench(server, command)
    try:
        bench.worker.wait_for(lambda line: "waiting for work" in line)
        server.process.terminate()
        bench.worker.wait_for(lambda line: line.startswith("cannot "))
        assert bench.worker.terminate() == 0
    finally:
        bench.close()
        server.close()


def test_dispatched_by_the_broker(server: Server) -> None:
    """A message of `penstock.runs` names the run; the worker claims it by that id."""
    server.client.subscriptions.declare(Subscription(name="images", topic="penstock.runs"))
    bench = Bench(server, [sys.executable, str(WORKERS / "dispatched.py")])
    try:
        bench.worker.wait_for(lambda line: "waiting for messages" in line)
        run_id = bench.submit(steps=1, step_seconds=0.01)
        run = bench.ended(run_id)
        assert (run.state, run.claimed_by) == ("COMPLETED", "bench-1")
        cancelled = bench.submit(steps=1000, step_seconds=0.05)
        bench.client.runs.cancel(cancelled)
        bench.worker.wait_for(lambda line: line.startswith(f"{cancelled} "))
        assert bench.worker.terminate() == 0
    finally:
        bench.close()
