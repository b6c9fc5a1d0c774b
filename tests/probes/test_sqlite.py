"""SQLite files: unusual paths, concurrent writers, missing and invalid files."""

import sqlite3
from pathlib import Path

import pytest

from penstock.pipelines.declare.needs import same_day
from penstock.probes.runner import ProbeRunner
from tests.probes.kit import SqliteSite, fill, probe_one

BOX = same_day("boxscores")


def test_a_path_is_not_parsed_as_a_url(probes: ProbeRunner, tmp_path: Path) -> None:
    """Question marks, hashes and percent signs in a path are part of the path."""
    site = SqliteSite(tmp_path / "a?mode=rwc#b %20;.db")
    fill(site)
    assert probe_one(probes, site, BOX).rows == 40


def test_a_missing_file_is_not_created(probes: ProbeRunner, tmp_path: Path) -> None:
    """The error about a missing file names it."""
    site = SqliteSite(tmp_path / "none.db")
    assert f"there is no file {site.path}" in (probe_one(probes, site, BOX).error or "")
    assert not site.path.exists()
    site.path.write_text("hello" * 1_000)
    assert "not a database" in (probe_one(probes, site, BOX).error or "")


def test_a_missing_table_gets_its_fix(probes: ProbeRunner, tmp_path: Path) -> None:
    site = SqliteSite(tmp_path / "season.db")
    fill(site)
    assert probe_one(probes, site, same_day("boxscore")).error == (
        "no such table: boxscore; create it, or correct its name in the need"
    )


@pytest.mark.parametrize(("journal", "rows"), [("wal", 40), ("delete", None)])
def test_during_a_write(
    probes: ProbeRunner, tmp_path: Path, journal: str, rows: int | None
) -> None:
    """With a write-ahead log the old rows are visible; without one the lock is the error."""
    site = SqliteSite(tmp_path / "season.db")
    fill(site)
    writer = sqlite3.connect(site.path, isolation_level=None)
    writer.execute(f"PRAGMA journal_mode = {journal}")
    writer.execute("BEGIN EXCLUSIVE")
    writer.execute("DELETE FROM boxscores")
    found = probe_one(probes, site, BOX, dependency_timeout_s=0.2)
    writer.execute("ROLLBACK")
    writer.close()
    assert found.rows == rows
    assert (found.error is None) == (rows is not None)
    if rows is None:
        assert "locked" in (found.error or "")
    assert probe_one(probes, site, BOX).rows == 40


def test_duration_and_scanned_bytes(probes: ProbeRunner, tmp_path: Path) -> None:
    """Virtual time does not pass during a probe; SQLite reports no scanned bytes."""
    site = SqliteSite(tmp_path / "season.db")
    fill(site)
    found = probe_one(probes, site, BOX)
    assert (found.took_us, found.scanned_bytes) == (0, None)
