"""DuckDB's locks, shared databases and folders of files."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest

from penstock.pipelines.declare.needs import historical, same_day
from penstock.probes.duckdb import DuckDbWarehouse
from penstock.probes.protocol import Budget, Statement
from penstock.probes.runner import Probes
from penstock.probes.timeout import Alarm
from tests.probes.kit import DAY, DuckDbSite, ParquetSite, fill, look_at

BOX = same_day("boxscores")

# Holds the file like a pipeline's writer does, until its standard input ends.
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
    """One writing process keeps everybody else out."""

    def test_threads_that_open_and_close_at_once(self, season: DuckDbSite) -> None:
        """A connection that another thread is just closing is waited for, not reported."""
        address = f"{season.address.removeprefix('duckdb:')}?shared=true"
        warehouse = DuckDbWarehouse(address, duckdb)
        asked = [Statement(text="SELECT count(*) FROM boxscores")]

        def look(_: int) -> int:
            return int(warehouse.read(asked, Budget()).results[0][0][0])

        with ThreadPoolExecutor(6) as threads:
            assert len(set(threads.map(look, range(300)))) == 1

    def test_a_lock_is_waited_for(
        self, probes: Probes, season: DuckDbSite, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The look is made when the writer lets go."""
        met = threading.Event()
        opened = DuckDbWarehouse._is_lock

        def is_lock(error: BaseException) -> bool:
            met.set()
            return opened(error)

        monkeypatch.setattr(DuckDbWarehouse, "_is_lock", staticmethod(is_lock))
        with _writer(season) as writer, ThreadPoolExecutor(1) as flow:
            seen = flow.submit(look_at, probes, season, BOX, seconds_each=60)
            assert met.wait(30)
            assert not seen.done()
            writer.communicate(timeout=30)
            assert seen.result(60).rows == 40

    def test_a_lock_that_stays(self, probes: Probes, season: DuckDbSite) -> None:
        """At the bound of the look the lock is the error."""
        with _writer(season) as writer:
            seen = look_at(probes, season, BOX, seconds_each=0.2)
            writer.communicate(timeout=30)
        assert "lock" in (seen.error or "")

    def test_the_process_that_writes_can_look(self, probes: Probes, season: DuckDbSite) -> None:
        """Where this process has the file open for writing, the look joins it and only reads."""
        with duckdb.connect(str(season.path)) as writer:
            assert look_at(probes, season, BOX).rows == 40
            writer.execute("DELETE FROM boxscores")
            assert look_at(probes, season, BOX, since=1 << 60).rows == 0
            spoil = same_day("boxscores", expect="DELETE FROM schedule")
            assert "read-only" in (look_at(probes, season, spoil).error or "")
            assert writer.execute("SELECT count(*) FROM schedule").fetchall() == [(3,)]

    def test_shared(self, probes: Probes, season: DuckDbSite) -> None:
        """A shared file is looked at without keeping this process's own writers out."""
        warehouse = DuckDbWarehouse(f"{season.path}?shared=true", duckdb)
        with (
            Alarm(60) as alarm,
            warehouse._connected(alarm) as looking,
            duckdb.connect(str(season.path)) as writer,
        ):
            writer.execute("CREATE TABLE written AS SELECT 1 AS x")
            assert looking.execute("SELECT x FROM written").fetchall() == [(1,)]
        shared = f"{season.address}?shared=true"
        assert look_at(probes, season, BOX.resolved(None, shared)).rows == 40
        spoil = same_day("boxscores", expect="DELETE FROM schedule", warehouse=shared)
        assert "read-only" in (look_at(probes, season, spoil).error or "")

    def test_nothing_stays_locked(self, probes: Probes, season: DuckDbSite) -> None:
        """After a look, and after one that failed, another process can write."""
        look_at(probes, season, BOX)
        look_at(probes, season, same_day("nothing"))
        with _writer(season) as writer:
            writer.communicate(timeout=30)
        assert writer.returncode == 0


class TestFiles:
    """Folders of Parquet and CSV files, and files that are no database."""

    def test_csv(self, probes: Probes, lake: ParquetSite) -> None:
        """A CSV file is a table; its types are recognised."""
        (lake.folder / "raw").mkdir()
        lines = [f"{day},{n}" for day in ("2025-12-30", DAY) for n in range(5)]
        (lake.folder / "raw" / "odds.csv").write_text("\n".join(["game_date,price", *lines]))
        seen = look_at(probes, lake, same_day("raw.odds", not_null=["price"]))
        assert (seen.rows, seen.not_null_share) == (5, 1.0)
        assert look_at(probes, lake, historical("raw.odds", days=2)).days_present == 1

    def test_a_file_that_arrives_later(self, probes: Probes, lake: ParquetSite) -> None:
        """A missing file is an error that says what was looked for."""
        seen = look_at(probes, lake, same_day("raw.late"))
        assert "no raw/late.parquet, raw/late.csv or folder in" in (seen.error or "")

    def test_a_folder_is_left_by_no_name(self, probes: Probes, lake: ParquetSite) -> None:
        """Names have no slashes and no dots of their own, so files outside are out of reach."""
        outside = lake.folder.parent / "outside.csv"
        outside.write_text("a\n1\n")
        assert look_at(probes, lake, BOX.resolved("a", None)).error
        source = DuckDbWarehouse(f"{lake.folder}/", duckdb).source("boxscores", "source")
        assert str(lake.folder) not in source.text
        assert source.values == (("source_files", f"{lake.folder}/boxscores.parquet"),)

    def test_no_database(self, probes: Probes, tmp_path: Path) -> None:
        """A missing file is not created; a file of another kind is an error."""
        site = DuckDbSite(tmp_path / "none.duckdb")
        assert "there is no file" in (look_at(probes, site, BOX).error or "")
        assert not site.path.exists()
        site.path.write_text("hello" * 1_000)
        assert "not a valid DuckDB" in (look_at(probes, site, BOX).error or "")

    def test_variables_of_the_process_are_no_tables(
        self, probes: Probes, season: DuckDbSite
    ) -> None:
        """DuckDB would look a missing table up among Python's variables."""
        with duckdb.connect() as other:
            relation = other.sql("SELECT DATE '2025-12-31' AS game_date")
            counted = same_day("boxscores", expect="SELECT count(*) FROM relation")
            assert "relation" in (look_at(probes, season, counted).error or "")
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
