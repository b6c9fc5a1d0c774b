"""`up`, `worker` and `scheduler` as real processes: they start, execute runs and stop cleanly."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.assembly.cli import stop_together
from tests.kits.shell import SHOP, Shell

SECONDS = 90.0


class Process:
    """A penstock process; tests can wait for lines of its output."""

    def __init__(self, *args: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PENSTOCK_API_PORT": "0"},
        )
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip())
                self._news.notify_all()

    def until(self, wanted: Callable[[str], bool]) -> str:
        """Wait for a line that satisfies `wanted` and return it."""

        def found() -> str | None:
            return next((line for line in self.lines if wanted(line)), None)

        with self._news:
            assert self._news.wait_for(found, SECONDS), "\n".join(self.lines)
            return found() or ""

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the process to end and return its exit code."""
        self.process.send_signal(number)
        code = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        return code

    def close(self) -> None:
        """Kill the process if it still runs, and close its output."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Return a function that starts processes; all are killed at the end of the test."""
    started: list[Process] = []

    def one(*args: str) -> Process:
        started.append(Process(*args))
        return started[-1]

    yield one
    for process in started:
        process.close()


def test_up_executes_and_stops(bare: Shell, start: Callable[..., Process]) -> None:
    """`up` creates the database, executes a run and exits with 0 on SIGTERM."""
    process = start("--database-url", bare.url, "up", "--pipelines", SHOP, "--slots", "2")
    process.until(lambda line: line.startswith("Penstock is up"))
    process.until(lambda line: "stop  Ctrl-C" in line)
    intro = "\n".join(process.lines)
    assert str(bare.path) in intro
    assert "scheduler, orchestrator, admitter, sweeper" in intro
    assert "concurrency 2" in intro
    assert "broken, hello, pair, slow" in intro
    run_id = bare.submit("hello", "--customer", "acme")
    process.until(lambda line: f"{run_id} completed: hello/greet for acme" in line)
    assert bare.json("runs", "show", run_id)["run"]["state"] == "COMPLETED"
    assert [s["slots"] for s in bare.json("status")["sessions"]] == [2]
    assert process.stop() == 0
    assert process.lines[-1] == "Stopped."
    assert bare.json("status")["sessions"] == []


def test_separate_scheduler_and_worker(bare: Shell, start: Callable[..., Process]) -> None:
    """Scheduler and worker run as two processes, print JSON lines and stop on SIGINT."""
    bare.ok("pipelines", "register", SHOP)
    scheduler = start("--database-url", bare.url, "scheduler", "--json")
    worker = start("--database-url", bare.url, "worker", "--pipelines", SHOP, "--json")
    first = json.loads(worker.until(lambda line: '"up"' in line))
    assert (first["command"], first["pipelines"][0]) == ("worker", "broken")
    bare.ok("configs", "create", "acme", "hello", "--every", "0.02")
    line = worker.until(lambda line: '"run_ended"' in line)
    ended = json.loads(line)
    assert (ended["final_state"], ended["dead"]) == ("COMPLETED", False)
    assert (ended["pipeline"], ended["processor"]) == ("hello", "greet")
    scheduler.until(lambda line: '"ticked"' in line)
    assert scheduler.stop(signal.SIGINT) == 0
    assert worker.stop(signal.SIGINT) == 0


def test_reload(bare: Shell, start: Callable[..., Process], tmp_path: Path) -> None:
    """A changed file restarts the process; one with an error does not."""
    file = tmp_path / "mine.py"
    text = Path(SHOP).read_text("utf-8")
    file.write_text(text)
    process = start("--database-url", bare.url, "up", "--pipelines", str(file), "--reload")
    process.until(lambda line: "stop  Ctrl-C" in line)
    file.write_text("def broken(:\n")
    process.until(lambda line: line.startswith("Not reloaded: mine.py:1:"))
    file.write_text(text + "\nmore = 1\n")
    process.until(lambda line: line == "A file has changed: restarting.")
    process.lines.remove(next(one for one in process.lines if "stop  Ctrl-C" in one))
    process.until(lambda line: "stop  Ctrl-C" in line)
    assert process.stop() == 0


def test_components_stop_together() -> None:
    """A process ends with the slowest of its components, not after all of them in turn."""
    together = threading.Barrier(3)

    class Part:
        def stop(self) -> None:
            together.wait(SECONDS)

    stop_together([Part(), Part(), Part()])
    assert together.n_waiting == 0


def test_second_signal_exits_immediately(bare: Shell, start: Callable[..., Process]) -> None:
    """The first signal drains, the second exits; the run stays claimed for the sweepers."""
    process = start("--database-url", bare.url, "up", "--pipelines", SHOP)
    process.until(lambda line: "stop  Ctrl-C" in line)
    run_id = bare.submit("slow")
    process.until(lambda line: f"{run_id} staying" in line)
    process.process.send_signal(signal.SIGTERM)
    process.until(lambda line: line.startswith("Stopping"))
    assert process.stop() == 128 + signal.SIGTERM
    assert bare.json("runs", "show", run_id)["run"]["state"] in ("CLAIMED", "RUNNING")


def test_a_worker_with_a_hung_run_replaces_itself(
    bare: Shell, start: Callable[..., Process]
) -> None:
    """A run that ignores its stop is ended by force; the worker drops its thread and continues."""
    bare.ok("pipelines", "register", SHOP)
    process = start("--database-url", bare.url, "worker", "--pipelines", SHOP, "--slots", "1")
    run_id = bare.submit("slow")
    process.until(lambda line: f"{run_id} staying" in line)
    assert f"penstock runs cancel --force {run_id}" in bare.ok("runs", "cancel", run_id)
    shown = bare.ok("runs", "show", run_id)
    assert "stop requested" in shown
    assert f"penstock runs cancel --force {run_id}" in shown
    assert "ended as FAILED" in bare.ok("runs", "cancel", "--force", run_id)
    process.until(lambda line: line.startswith("Replacing this process"))
    done = bare.submit("hello")
    process.until(lambda line: f"{done} completed" in line)
    up = f"Penstock worker is up (process {process.process.pid})."
    process.until(lambda _: process.lines.count(up) == 2)  # a run may end before it is printed
    assert process.stop() == 0
    assert bare.json("runs", "show", run_id)["run"]["error_type"] == "STOP_IGNORED"


def test_worker_requires_pipelines(shell: Shell, tmp_path: Path) -> None:
    """Missing pipelines and a module that fails to import are input errors."""
    result = shell("worker")
    assert result.code == 2
    assert "--pipelines" in result.err
    (tmp_path / "bad.py").write_text("1 / 0\n")
    result = shell("worker", "--pipelines", str(tmp_path / "bad.py"), "--json")
    assert result.code == 2
    assert result.error()["field"] == "pipelines"
    assert shell("up", "--slots", "0").code == 2
