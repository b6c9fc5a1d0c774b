"""Runs the command of one proof: a time limit, its output in files, no process left behind.

A command prints its figures as JSON lines on standard output; its other lines are ignored. It runs
in a session of its own. This process adopts what its children leave behind (Linux), so that also a
grandchild in another session is found and killed, as after a time-out.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from penstock.core.clock import SystemClock
from penstock.testing.postgres.process import children_of

Verdict = Literal["holds", "fails", "not run"]

ROOT: Final = Path(__file__).parents[2]
SUBREAPER: Final = 36
"""The option PR_SET_CHILD_SUBREAPER of prctl(2)."""
END_SECONDS: Final = 15
"""How long a command may take to end after SIGTERM, and its helpers after it."""
TAIL_LINES: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one command did: its verdict, its figures in order, and the end of its output."""

    verdict: Verdict
    seconds: float
    figures: list[dict[str, Any]] = field(default_factory=list)
    why: str = ""
    tail: str = ""
    killed: int = 0
    """Processes that were left behind and killed."""


def adopt_orphans() -> None:
    """Become the parent of processes whose parent ends, where the system supports it."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(SUBREAPER, 1, 0, 0, 0)


def run(
    command: Sequence[str],
    timeout: float,
    log: Path,
    more: Mapping[str, str] | None = None,
    *,
    needs_figures: bool = True,
) -> Outcome:
    """Run a command to its end or its time limit; never raises because of what it does.

    `more` are further variables of its environment. A command that must print figures and prints
    none has proved nothing, and fails.
    """
    clock = SystemClock()
    began = clock.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    errors = log.with_suffix(".stderr")
    others = frozenset(children_of(os.getpid()))  # such as the database server of a test
    with log.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(more or {})},
        )
        try:
            is_late = not _ended(process, timeout)
        finally:
            _end(process)
            killed = _kill_left(clock, others)
    seconds = clock.monotonic() - began
    figures = json_lines(log.read_text(errors="replace"))
    verdict, why = judged(process.returncode, figures, timeout if is_late else None)
    if verdict == "holds" and needs_figures and not figures:
        verdict, why = "fails", "it printed no figures"
    tail = "" if verdict == "holds" else _tail(log, errors)
    return Outcome(
        verdict=verdict, seconds=seconds, figures=figures, why=why, tail=tail, killed=killed
    )


def judged(
    code: int, figures: Sequence[Mapping[str, Any]], late_after: float | None
) -> tuple[Verdict, str]:
    """Return the verdict on a command and the reason if it does not hold."""
    if late_after is not None:
        return "fails", f"it did not end within {late_after / 60:.0f} minutes and was killed"
    if code != 0:
        return "fails", f"it ended with exit code {code}"
    skipped = [str(one["skipped"]) for one in figures if isinstance(one.get("skipped"), str)]
    if skipped and len(skipped) == len(figures):
        return "not run", "; ".join(skipped)
    return "holds", ""


def json_lines(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects that stand on a line of their own."""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
    return [one for one in found if isinstance(one, dict)]


def _ended(process: subprocess.Popen[bytes], timeout: float) -> bool:
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command's session: politely, then by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        _ended(process, END_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _kill_left(clock: SystemClock, others: frozenset[int]) -> int:
    """Wait for adopted processes, then kill the rest; return how many were killed."""
    until = clock.monotonic() + END_SECONDS
    while _reap(others) and clock.monotonic() < until:
        clock.sleep(0.1)
    killed: set[int] = set()
    while left := _reap(others):
        for pid in left:
            killed.add(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        clock.sleep(0.1)
    return len(killed)


def _reap(others: frozenset[int]) -> list[int]:
    """Take the exit codes of ended children; return those that still run, without the others."""
    running = []
    for pid in set(children_of(os.getpid())) - others:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                running.append(pid)
    return running


def _tail(*logs: Path) -> str:
    """Return the last lines of the outputs, without the paths of this machine."""
    lines: list[str] = []
    for log in logs:
        lines += log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    return "\n".join(lines).replace(str(ROOT), ".")
