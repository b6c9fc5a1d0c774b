"""Exports: every row once, plain values, own rows only, CSV and Parquet."""

from __future__ import annotations

import csv
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from penstock import Submission, connect, run_pending
from penstock.core.clock import HOUR, to_datetime
from penstock.core.errors import InvalidInput
from penstock.db.store import Store
from penstock.monitoring.exports.columns import COLUMNS, ExportKind
from penstock.testing.clock import VirtualClock
from tests.cli.shop import hello
from tests.kits.flows import Stage, chain
from tests.kits.shell import Shell

KINDS: tuple[ExportKind, ...] = ("runs", "flows", "journal", "executions")


def test_pages(store: Store, clock: VirtualClock) -> None:
    """Pages follow each other without gaps; times bound them; a customer gets its own rows."""
    stage = Stage(store, clock, chain("raw", "predict"))
    for day in (15, 16):
        stage.open(partition=f"2025-11-{day}")
        stage.run_off()
        clock.advance(HOUR)
    exports = stage.client.exports
    for kind in KINDS:
        whole = exports.page(kind)
        assert whole.columns == [name for name, _ in COLUMNS[kind]]
        assert (len(whole.rows) > 1, whole.next_cursor) == (True, None)
        found, cursor = [], None
        while True:
            page = exports.page(kind, limit=1, cursor=cursor)
            found += page.rows
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == whole.rows, kind
        middle = to_datetime(clock.now()) - timedelta(minutes=90)
        parts = exports.page(kind, until=middle).rows + exports.page(kind, since=middle).rows
        assert sorted(map(repr, parts)) == sorted(map(repr, whole.rows)), kind
    runs = exports.page("runs")
    first: dict[str, Any] = dict(zip(runs.columns, runs.rows[0], strict=True))
    assert first["run_id"] == stage.client.runs.get(first["run_id"]).run_id
    assert (first["customer_id"], first["pipeline"]) == ("acme", "nba")
    assert (first["final_state"], first["is_dead"]) == ("COMPLETED", False)
    assert first["finished_at"].endswith("Z")
    assert exports.page("journal").rows[0][2] in ("flow", "run")
    stage.client.keys.create("other", "viewer", customer="bravo")
    assert stage.client.scoped("bravo").exports.page("runs").rows == []
    with pytest.raises(InvalidInput):
        exports.page("runs", limit=1, cursor=exports.page("flows", limit=1).next_cursor)


class TestCommand:
    """`penstock export`."""

    @pytest.fixture
    def engine(self) -> str:
        """The shell has a SQLite database."""
        return "sqlite"

    def test_files(self, shell: Shell, tmp_path: Path) -> None:
        """CSV and Parquet have the same rows; a formula is defused in CSV only."""
        shell.submit()
        with connect(shell.url) as client:
            client.runs.submit(Submission(pipeline="hello", correlation_id="=1+1"))
            run_pending(client, [hello])
        text, parquet = tmp_path / "runs.csv", tmp_path / "it's.parquet"
        assert "2 rows written" in shell.ok("export", "runs", "--file", str(text))
        record = shell.json("export", "runs", "--format", "parquet", "--file", str(parquet))
        assert record["rows"] == 2
        rows = list(csv.DictReader(text.read_text().splitlines()))
        assert {row["correlation_id"] for row in rows} >= {"'=1+1"}
        name = str(parquet).replace("'", "''")
        with duckdb.connect() as connection:
            found = connection.execute(
                f"SELECT run_id, correlation_id, attempt, is_dead, epoch(finished_at) "
                f"FROM '{name}' ORDER BY run_id"
            ).fetchall()
        assert sorted(row[0] for row in found) == sorted(row["run_id"] for row in rows)
        assert {row[1:4] for row in found} >= {("=1+1", 1, False)}
        assert all(row[4] > 1.7e9 for row in found)
        assert [path.name for path in tmp_path.glob("*part*")] == []
        lines = shell.ok("export", "journal", "--since", "1h").splitlines()
        assert lines[0].startswith("seq,at,kind")
        assert len(lines) > 2
        assert shell.ok("export", "flows").strip() == ",".join(n for n, _ in COLUMNS["flows"])

    def test_refusals(self, shell: Shell) -> None:
        """Parquet needs a file; times are checked."""
        assert "--file" in shell("export", "runs", "--format", "parquet").err
        assert shell("export", "runs", "--since", "yesterdayish").code == 2
