"""Processes killed at some commits of a flow; `make crash` kills at every one of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kits.effort import effort

_TWO_STEPS = """
import penstock.flows.orchestrator as service
from tests.harness.crashing import main

take = service.flow_event_take


def own_transaction(self, seen, _stepped=service.Orchestrator._stepped):
    events = self._store.write(lambda tx: take(tx, 100))
    service.flow_event_take = lambda tx, n, aside=(): events
    return _stepped(self, seen)


service.Orchestrator._stepped = own_transaction
raise SystemExit(main(["--engine", "sqlite", "--every", "7"]))
"""
"""Flow events are taken in a transaction before the one that acts on them."""


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the harness in a separate process: it forks, and this one has threads."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)


def test_sqlite(tmp_path: Path) -> None:
    """Killed at some points, before or after a commit, a flow completes."""
    where = str(tmp_path / "crash.db")
    done = _run("-m", "tests.harness.crashing", "--engine", "sqlite", "--where", where,
                  "--every", effort("41", "23"))  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing lost or duplicated" in done.stdout


@pytest.mark.postgres
def test_postgres(pg_migrated_dsn: str) -> None:
    """The same on PostgreSQL; `make crash` tries all points of both."""
    done = _run("-m", "tests.harness.crashing", "--engine", "postgres",
                  "--where", pg_migrated_dsn, "--every", effort("41", "23"))  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.seeded
def test_flow_events_taken_in_a_separate_transaction() -> None:
    """The harness detects a completion that is lost between two transactions."""
    done = _run("-c", _TWO_STEPS)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "CrashTestFailed: killed right" in done.stderr


def test_a_backfill_is_killed_twice() -> None:
    """Killed after a third and two thirds, a backfill does each partition exactly once."""
    done = _run("-m", "tests.harness.crash_backfill", "--engine", "sqlite", "--partitions", "24")
    assert done.returncode == 0, done.stderr
    assert "24 partitions each once after 2 kills" in done.stdout
