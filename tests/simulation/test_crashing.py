"""Processes that are really killed: at every commit of a flow on SQLite, at some on PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_TWO_STEPS = """
import penstock.flows.orchestrator as service
from tests.harness.crashing import main

taken = service.nudge_take


def own_transaction(self, seen, _stepped=service.Orchestrator._stepped):
    nudges = self._store.write(lambda tx: taken(tx, 100))
    service.nudge_take = lambda tx, n: nudges
    return _stepped(self, seen)


service.Orchestrator._stepped = own_transaction
raise SystemExit(main(["--engine", "sqlite", "--every", "3"]))
"""
"""Nudges are taken in a transaction before the one that acts on them."""


def _tried(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the harness in a process of its own: it forks, and this one has threads."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)


def test_sqlite(tmp_path: Path) -> None:
    """Killed right before and after every second commit (`make crash`: each), the next goes on."""
    where = str(tmp_path / "crash.db")
    done = _tried("-m", "tests.harness.crashing", "--engine", "sqlite", "--where", where,
                  "--every", "2")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing lost or doubled" in done.stdout


@pytest.mark.postgres
def test_postgres(pg_migrated_dsn: str) -> None:
    """The same at some of the points; `make crash` tries all of them."""
    done = _tried("-m", "tests.harness.crashing", "--engine", "postgres",
                  "--where", pg_migrated_dsn, "--every", "11")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_hint_that_is_taken_before_it_is_acted_on() -> None:
    """The harness notices a completion that is lost between two transactions."""
    done = _tried("-c", _TWO_STEPS)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Wrong: killed right" in done.stderr
