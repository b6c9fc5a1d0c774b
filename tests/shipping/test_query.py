"""`penstock query` reads the sink and nothing else, within bounds; `penstock sink`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.cli.root import cli
from penstock.client import Client
from penstock.core.errors import InvalidInput
from penstock.db.sqlite.store import SqliteStore
from penstock.runs.records import Submission
from penstock.services.upkeep import Sealer
from penstock.sinks.audit_query import SinkQueryBounds, query_parquet
from tests.kits.client_harness import pipelines


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database of five runs, and a sink that has their journal."""
    folder = tmp_path_factory.mktemp("yard")
    store = SqliteStore(folder / "penstock.db")
    store.migrate()
    client = Client(store)
    client.register(pipelines())
    for _ in range(5):
        client.runs.submit(Submission(pipeline="nightly", customer="acme"))
    Sealer(store).run_once()
    store.close()
    shipped = call(folder, "sink", "ship", "--json")
    assert json.loads(shipped.stdout)["rows"] == 5
    return folder


def call(folder: Path, *args: str) -> Result:
    """Run a command with the sink of the folder."""
    env = {"PENSTOCK_AUDIT_SINK": f"parquet:{folder / 'sink'}"}
    words = ["--database-url", f"sqlite:///{folder / 'penstock.db'}", *args]
    return CliRunner().invoke(cli, words, env=env)


def ask(folder: Path, text: str, **bounds: Any) -> Any:
    """Query the sink of the folder."""
    given: dict[str, Any] = {"rows_max": 100, "seconds": 20.0, "memory_mb": 256, **bounds}
    return query_parquet(folder / "sink", text, SinkQueryBounds(**given))


def test_reads(place: Path) -> None:
    """Rows by view, with the date of their partition."""
    found = ask(place, "SELECT customer_id, count(*) AS n FROM journal GROUP BY 1")
    assert (found.columns, found.rows, found.is_truncated) == (
        ["customer_id", "n"], [("acme", 5)], False
    )  # fmt: skip
    assert len(ask(place, "SELECT DISTINCT date FROM journal").rows) == 1
    assert ask(place, "SELECT * FROM phase_completion_log").rows == [], "nothing shipped yet"
    cut = ask(place, "SELECT seq FROM journal ORDER BY seq", rows_max=2)
    assert (len(cut.rows), cut.is_truncated) == (2, True)
    shown = call(place, "query", "SELECT kind, action FROM journal LIMIT 1")
    assert shown.exit_code == 0, shown.output
    assert "submitted" in shown.stdout or "run" in shown.stdout
    listed = json.loads(call(place, "query", "SELECT recorded_at FROM journal", "--json").stdout)
    assert listed["rows"][0][0].endswith("Z")


@pytest.mark.parametrize(
    "text",
    [
        "DELETE FROM journal",
        "COPY journal TO 'out.csv'",
        "SELECT 1; SELECT 2",
        "ATTACH 'x.db'",
        "SET memory_limit = '9GB'",
        "PRAGMA database_list; SELECT 1",
        "INSTALL httpfs",
        "EXPORT DATABASE 'x'",
        "not SQL",
        "",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM read_csv('/etc/hostname')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM '/etc/hostname'",
        "SELECT * FROM read_parquet('https://example.org/x.parquet')",
        "SELECT * FROM missing",
    ],
)
def test_refused(place: Path, text: str) -> None:
    """Nothing is changed, and no other file is read."""
    before = sorted(path for path in place.rglob("*"))
    with pytest.raises(InvalidInput, match="query"):
        ask(place, text)
    assert sorted(path for path in place.rglob("*")) == before


def test_bounds(place: Path) -> None:
    """A query that takes too long or too much memory is refused."""
    endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range = 7"
    with pytest.raises(InvalidInput, match="at most"):
        ask(place, endless, seconds=0.2)
    large = "SELECT list(range::VARCHAR || 'x') FROM range(50000000)"
    with pytest.raises(InvalidInput, match="DuckDB can execute"):
        ask(place, large, memory_mb=64, seconds=60)


def test_commands(place: Path) -> None:
    """Status, verification and the refusals without a sink."""
    status = json.loads(call(place, "sink", "status", "--json").stdout)
    assert status["logs"][0]["rows"] == 5
    intact = call(place, "verify", "--sink", "--json")
    assert intact.exit_code == 0, intact.output
    assert json.loads(intact.stdout)["is_intact"]
    assert "Intact" in call(place, "verify", "--sink").stdout
    unset = CliRunner().invoke(cli, ["query", "SELECT 1"], env={"PENSTOCK_AUDIT_SINK": ""})
    assert unset.exit_code == 2
    assert "PENSTOCK_AUDIT_SINK" in unset.output
    wrong = CliRunner().invoke(cli, ["query", "SELECT 1"], env={"PENSTOCK_AUDIT_SINK": "s3:x"})
    assert "parquet:DIR" in wrong.output
