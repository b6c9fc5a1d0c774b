"""SQLite files: odd paths, writers at work, files that are none."""

import sqlite3
from pathlib import Path

import pytest

from penstock.pipelines.declare.needs import same_day
from penstock.probes.runner import Probes
from tests.probes.kit import SqliteSite, fill, look_at

BOX = same_day("boxscores")


def test_a_path_is_no_address(probes: Probes, tmp_path: Path) -> None:
    """Question marks, hashes and percent signs in a path are part of the path."""
    site = SqliteSite(tmp_path / "a?mode=rwc#b %20;.db")
    fill(site)
    assert look_at(probes, site, BOX).rows == 40


def test_a_missing_file_is_not_created(probes: Probes, tmp_path: Path) -> None:
    """It is an error that names the file."""
    site = SqliteSite(tmp_path / "none.db")
    assert f"there is no file {site.path}" in (look_at(probes, site, BOX).error or "")
    assert not site.path.exists()
    site.path.write_text("hello" * 1_000)
    assert "not a database" in (look_at(probes, site, BOX).error or "")


@pytest.mark.parametrize(("journal", "rows"), [("wal", 40), ("delete", None)])
def test_while_somebody_writes(
    probes: Probes, tmp_path: Path, journal: str, rows: int | None
) -> None:
    """With a write-ahead log the old rows are seen; without one the lock is the error."""
    site = SqliteSite(tmp_path / "season.db")
    fill(site)
    writer = sqlite3.connect(site.path, isolation_level=None)
    writer.execute(f"PRAGMA journal_mode = {journal}")
    writer.execute("BEGIN EXCLUSIVE")
    writer.execute("DELETE FROM boxscores")
    seen = look_at(probes, site, BOX, seconds_each=0.2)
    writer.execute("ROLLBACK")
    writer.close()
    assert seen.rows == rows
    assert (seen.error is None) == (rows is not None)
    if rows is None:
        assert "locked" in (seen.error or "")
    assert look_at(probes, site, BOX).rows == 40


def test_the_look_counts_what_it_took(probes: Probes, tmp_path: Path) -> None:
    """Virtual time stands still during a look; nothing is known of bytes."""
    site = SqliteSite(tmp_path / "season.db")
    fill(site)
    seen = look_at(probes, site, BOX)
    assert (seen.took_us, seen.scanned_bytes) == (0, None)
