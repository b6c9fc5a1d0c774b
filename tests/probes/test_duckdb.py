"""DuckDB: locks, shared databases and folders of files."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

from penstock.pipelines.declare.needs import historical, same_day
from penstock.probes.duckdb import DuckDbWarehouse
from penstock.probes.protocol import ProbeBudget, ProbeStatement
from penstock.probes.runner import ProbeRunner
from penstock.probes.timeout import ProbeTimeout
from tests.probes.kit import DAY, DuckDbSite, ParquetSite, fill, probe_one

BOX = same_day("boxscores")

# Locks the file as a pipeline's writer does, until its standard input ends.
WRITER = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1])
print("writing", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def season(tmp_path: Path) -> DuckDbSite:
    made = DuckDbSite(tmp_path / "season.duckdb")
    fill(made)
    return made


@pytest.fixture
def lake(tmp_path: Path) -> ParquetSite:
    made = ParquetSite(tmp_path / "season.duckdb", folder=tmp_path / "lake")
    fill(made)
    return made


class TestLocks:
    """One writing process locks all others out."""

    def test_threads_that_open_and_close_at_once(self, season: DuckDbSite) -> None:
        """A file that another thread is just closing is waited for, not reported as locked."""
        address = f"{season.address.removeprefix('duckdb:')}?shared=true"
        warehouse = DuckDbWarehouse(address, duckdb)
        statements = [ProbeStatement(text="SELECT count(*) FROM boxscores")]

        def probe(_: int) -> int:
            return int(warehouse.read(statements, ProbeBudget()).results[0][0][0])

        with ThreadPoolExecutor(6) as threads:
            assert len(set(threads.map(probe, range(300)))) == 1

    def test_a_lock_is_waited_for(
        self, probes: ProbeRunner, season: DuckDbSite, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The probe runs when the writer releases the lock."""
        waiting = threading.Event()
        opened = DuckDbWarehouse._is_lock

        def is_lock(error: BaseException) -> bool:
            waiting.set()
            return opened(error)

        monkeypatch.setattr(DuckDbWarehouse, "_is_lock", staticmethod(is_lock))
        with _writer(season) as writer, ThreadPoolExecutor(1) as flow:
            found = flow.submit(probe_one, probes, season, BOX, dependency_timeout_s=60)
            assert waiting.wait(60)
            assert not found.done()
            writer.communicate(timeout=60)
            assert found.result(60).rows == 40

    def test_a_lock_that_stays(self, probes: ProbeRunner, season: DuckDbSite) -> None:
        """When the probe's time is up, the lock is the error."""
        with _writer(season) as writer:
            found = probe_one(probes, season, BOX, dependency_timeout_s=0.2)
            writer.communicate(timeout=60)
        assert "lock" in (found.error or "")

    def test_the_writing_process_can_probe(self, probes: ProbeRunner, season: DuckDbSite) -> None:
        """If this process has the file open for writing, the probe joins it and only reads."""
        with duckdb.connect(str(season.path)) as writer:
            assert probe_one(probes, season, BOX).rows == 40
            writer.execute("DELETE FROM boxscores")
            assert probe_one(probes, season, BOX, since=1 << 60).rows == 0
            write = same_day("boxscores", expect="DELETE FROM schedule")
            assert "read-only" in (probe_one(probes, season, write).error or "")
            assert writer.execute("SELECT count(*) FROM schedule").fetchall() == [(3,)]

    def test_shared(self, probes: ProbeRunner, season: DuckDbSite) -> None:
        """Probing a shared file does not lock out this process's own writers."""
        warehouse = DuckDbWarehouse(f"{season.path}?shared=true", duckdb)
        with (
            ProbeTimeout(60) as alarm,
            warehouse._connected(alarm) as connection,
            duckdb.connect(str(season.path)) as writer,
        ):
            writer.execute("CREATE TABLE written AS SELECT 1 AS x")
            assert connection.execute("SELECT x FROM written").fetchall() == [(1,)]
        shared = f"{season.address}?shared=true"
        assert probe_one(probes, season, BOX.with_defaults(None, shared)).rows == 40
        write = same_day("boxscores", expect="DELETE FROM schedule", warehouse=shared)
        assert "read-only" in (probe_one(probes, season, write).error or "")

    def test_nothing_stays_locked(self, probes: ProbeRunner, season: DuckDbSite) -> None:
        """After a probe, successful or not, another process can write."""
        probe_one(probes, season, BOX)
        probe_one(probes, season, same_day("nothing"))
        with _writer(season) as writer:
            writer.communicate(timeout=60)
        assert writer.returncode == 0


class TestFiles:
    """Folders of Parquet and CSV files, and files that are not a database."""

    def test_csv(self, probes: ProbeRunner, lake: ParquetSite) -> None:
        """A CSV file is a table; its types are detected."""
        (lake.folder / "raw").mkdir()
        lines = [f"{day},{n}" for day in ("2025-12-30", DAY) for n in range(5)]
        (lake.folder / "raw" / "odds.csv").write_text("\n".join(["game_date,price", *lines]))
        found = probe_one(probes, lake, same_day("raw.odds", not_null=["price"]))
        assert (found.rows, found.not_null_share) == (5, 1.0)
        assert probe_one(probes, lake, historical("raw.odds", days=2)).days_present == 1

    def test_a_file_that_arrives_later(self, probes: ProbeRunner, lake: ParquetSite) -> None:
        """The error about a missing file names the paths that were tried."""
        found = probe_one(probes, lake, same_day("raw.late"))
        assert "no raw/late.parquet, raw/late.csv or folder in" in (found.error or "")

    def test_no_name_reaches_outside_the_folder(
        self, probes: ProbeRunner, lake: ParquetSite
    ) -> None:
        """A part of a name has no slashes and no dots, so files outside are unreachable."""
        outside = lake.folder.parent / "outside.csv"
        outside.write_text("a\n1\n")
        assert probe_one(probes, lake, BOX.with_defaults("a", None)).error
        source = DuckDbWarehouse(f"{lake.folder}/", duckdb).from_clause("boxscores", "source")
        assert str(lake.folder) not in source.text
        assert source.values == (("source_files", f"{lake.folder}/boxscores.parquet"),)

    def test_no_database(self, probes: ProbeRunner, tmp_path: Path) -> None:
        """A missing file is not created; a file of another format is an error."""
        site = DuckDbSite(tmp_path / "none.duckdb")
        assert "there is no file" in (probe_one(probes, site, BOX).error or "")
        assert not site.path.exists()
        site.path.write_text("hello" * 1_000)
        assert "not a valid DuckDB" in (probe_one(probes, site, BOX).error or "")

    def test_python_variables_are_not_tables(self, probes: ProbeRunner, season: DuckDbSite) -> None:
        """By default DuckDB would resolve a missing table to a Python variable."""
        with duckdb.connect() as other:
            relation = other.sql("SELECT DATE '2025-12-31' AS game_date")
            counted = same_day("boxscores", expect="SELECT count(*) FROM relation")
            assert "relation" in (probe_one(probes, season, counted).error or "")
            assert relation.fetchall()


def _writer(season: DuckDbSite) -> subprocess.Popen[str]:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(season.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "writing\n"
    return writer
