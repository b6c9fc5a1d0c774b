"""`penstock doctor` names what an operator would otherwise search for, with the command."""

import json
import sqlite3
from typing import Any, NoReturn

import psycopg
import pytest
from click.testing import CliRunner

from penstock import Dependency, Pipeline, same_day
from penstock.access.store.registry import processor_list
from penstock.assembly.database import connect
from penstock.cli.root import cli
from penstock.client import Client
from penstock.core.clock import HOUR, MINUTE
from penstock.core.errors import StoreUnavailable
from penstock.monitoring.cli import doctor as subject
from penstock.monitoring.system.checks import MANY_READY
from penstock.probes import warehouses
from penstock.runs.records import Submission
from penstock.runs.store.leases import session_open
from penstock.runs.store.runs import Claim, run_claim
from tests.conftest import ENGINES
from tests.kits.shell import Shell


def checks(url: str) -> dict[str, dict[str, Any]]:
    """Run doctor and return its checks by name."""
    result = CliRunner().invoke(cli, ["--database-url", url, "doctor", "--json"])
    return {check["check"]: check for check in json.loads(result.stdout)["checks"]}


def hold(client: Client, n: int) -> None:
    """Open a worker of this concurrency that holds as many runs."""
    known = client.store.read(processor_list)
    pool = next(p.pool_key for p in known if p.pool == "default")
    opened = {"boot_id": "b", "kind": "worker", "name": "w", "host": "h", "pid": 1,
              "pool": pool, "slots": n, "lease_us": 12 * HOUR}  # fmt: skip
    session_id = client.store.write(lambda tx: session_open(tx, opened))
    claim = Claim(
        pool_key=pool, processors=[p.processor_key for p in known], n=n, session_id=session_id,
        start=True,
    )  # fmt: skip
    client.store.write(lambda tx: run_claim(tx, claim))


def change(shell: Shell, text: str, **values: int) -> None:
    """Change rows directly."""
    connection = sqlite3.connect(shell.path)
    connection.execute(text, values)
    connection.commit()
    connection.close()


class TestProgress:
    """Runs wait although workers live."""

    def test_every_place_hangs(self, shell: Shell) -> None:
        """Workers full of old runs while others are ready: FAIL, with the run and the commands."""
        runs = [shell.submit() for _ in range(3)]
        with connect(shell.url) as client:
            hold(client, 2)
            now = client.views.now()
        assert "progress" not in checks(shell.url)
        text = "UPDATE runs SET claimed_at = :at, started_at = :at WHERE admission = 9"
        change(shell, text, at=now - 20 * MINUTE)
        found = checks(shell.url)["progress"]
        assert found["verdict"] == "FAIL"
        assert "concurrency of 2 is taken, for up to 20 min" in found["says"]
        assert "1 are ready" in found["says"]
        assert f"penstock runs cancel {runs[0]}" in found["fix"]

    def test_many_runs_wait(self, shell: Shell) -> None:
        """A backlog is reported by its size, not only by its age."""
        assert checks(shell.url)["backlog"]["verdict"] == "OK"
        with connect(shell.url) as client:
            client.runs.submit_many([Submission(pipeline="hello")] * MANY_READY)
        found = checks(shell.url)["backlog"]
        assert found["verdict"] == "WARN"
        assert "500 runs ready" in found["says"]
        assert "penstock worker" in found["fix"]

    def test_flows_are_counted(self, shell: Shell) -> None:
        """Without flows the check passes; tests of flows have blocked ones."""
        assert checks(shell.url)["flows"]["verdict"] == "OK"


class TestWarehouses:
    """Names of warehouses without an address in the settings."""

    @pytest.fixture(params=ENGINES)
    def url(self, shell: Shell, request: pytest.FixtureRequest) -> str:
        """The URL of a database on each engine."""
        is_postgres = request.param == "postgres"
        return str(request.getfixturevalue("pg_migrated_dsn")) if is_postgres else shell.url

    def test_a_name_without_an_address(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The check names warehouse and pipelines; the setting that it suggests passes it.

        An address is no name, and a warehouse that nothing queries is not needed.
        """
        table = same_day("t.orders", shared=True)
        built_in = ("duckdb:a.duckdb", "sqlite:a.db", "postgresql://h/a")
        used = [
            gated("one", "sales", table),
            gated("two", None, same_day("t.orders", shared=True, warehouse="sales")),
            gated("three", "depots", table),
            *(gated(f"own{n}", address, table) for n, address in enumerate(built_in)),
            gated("quiet", "unused"),
        ]
        with connect(url) as client:
            client.register(used[3:])
        assert checks(url)["warehouses"]["verdict"] == "OK"
        with connect(url) as client:
            client.register(used)
        monkeypatch.setenv("PENSTOCK_WAREHOUSES", "depots=duckdb:depots.duckdb")
        found = checks(url)["warehouses"]
        assert found["verdict"] == "WARN"
        assert "no address for sales (pipelines one, two): gates cannot query it" in found["says"]
        assert "Set PENSTOCK_WAREHOUSES=sales=postgresql://…, or warehouses = " in found["fix"]
        assert '["sales=postgresql://…"] in penstock.toml' in found["fix"]
        both = "depots=duckdb:depots.duckdb,sales=sqlite:sales.db"
        monkeypatch.setenv("PENSTOCK_WAREHOUSES", both)
        assert checks(url)["warehouses"]["verdict"] == "OK"

    def test_gates_that_cannot_query(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        """A library that is not installed, a wrong address, and no warehouse at all."""
        table = same_day("t.orders", shared=True)

        def absent(name: str) -> NoReturn:
            raise ImportError(name)

        monkeypatch.setattr(warehouses, "import_module", absent)
        found = {}
        for name, address in (("files", "duckdb:a.duckdb"), ("bare", None), ("plain", None)):
            with connect(shell.url) as client:
                client.register([gated(name, address, *([] if name == "plain" else [table]))])
            found[name] = checks(shell.url)["warehouses"]
        assert {one["verdict"] for one in found.values()} == {"WARN"}
        assert found["files"]["says"].startswith(
            "pipeline files: expected an address whose library"
        )
        assert found["files"]["fix"] == "Install it with: pip install 'penstock-engine[duckdb]'"
        assert found["bare"]["says"].startswith(
            "pipeline bare: gates need tables, but no warehouse"
        )
        assert found["plain"] == found["bare"], "it needs no table"

    def test_items_and_freshness(self, shell: Shell) -> None:
        """A query for items and the freshness of a table also read the pipeline's warehouse."""
        listed = Pipeline("listed", partition="day", warehouse="a")
        listed.phase("main").processor("each", each="SELECT 1 AS n", item_key="n")(print)
        fresh = Pipeline("fresh", partition="day", warehouse="b", freshness={"t": ("1h", "at")})
        fresh.phase("main").processor("work")(print)
        with connect(shell.url) as client:
            client.register([listed, fresh])
        says = checks(shell.url)["warehouses"]["says"]
        assert "a (pipeline listed); b (pipeline fresh): gates cannot query them" in says


def gated(name: str, warehouse: str | None, *needs: Dependency) -> Pipeline:
    """A pipeline whose only phase needs these tables."""
    given: Any = {} if warehouse is None else {"warehouse": warehouse}
    made = Pipeline(name, partition="day", **given)
    made.phase("main").processor("work", needs=list(needs))(print)
    return made


class TestDatabase:
    """Conditions of the database and the machine."""

    def test_clock_set_back(self, shell: Shell) -> None:
        """Records from the future mean that the clock was set back."""
        shell.submit()
        assert checks(shell.url)["clock"]["verdict"] == "OK"
        shell.ok("configs", "create", "acme", "hello", "--every", "5")
        columns = ("evaluated_to", "next_run_time")
        text = ", ".join(f"{column} = {column} + :by" for column in columns)
        change(shell, f"UPDATE schedule SET {text}", by=3 * HOUR)
        found = checks(shell.url)["clock"]
        assert found["verdict"] == "FAIL"
        assert "was set back: the database has records 3 h in the future" in found["says"]
        assert "NTP" in found["fix"]

    def test_full_disk(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        """A database that refuses writes fails, with the reason; little space is a warning."""
        assert checks(shell.url)["writes"]["verdict"] in ("OK", "WARN")

        def refuse(_: object) -> None:
            raise StoreUnavailable("database or disk is full")

        with monkeypatch.context() as patch:
            patch.setattr("penstock.monitoring.client.views.Views.check_write", refuse)
            found = checks(shell.url)["writes"]
        assert found["verdict"] == "FAIL"
        assert "database or disk is full" in found["says"]
        assert "penstock db path" in found["fix"]
        monkeypatch.setattr("penstock.assembly.database.free_disk", lambda _: (1_000, 10**12))
        assert checks(shell.url)["writes"]["verdict"] == "WARN"

    @pytest.mark.postgres
    def test_read_only_server(self, pg_migrated_dsn: str) -> None:
        """A standby, or a server set to read-only, is named as such."""
        name = pg_migrated_dsn.rpartition("/")[2].partition("?")[0]
        setting = f"ALTER DATABASE {name} SET default_transaction_read_only ="
        with psycopg.connect(pg_migrated_dsn, autocommit=True) as connection:
            connection.execute(f"{setting} on".encode())
            try:
                found = checks(pg_migrated_dsn)["writes"]
            finally:
                connection.execute(f"{setting} off".encode())
        assert found["verdict"] == "FAIL"
        assert "read-only" in found["says"]

    @pytest.mark.postgres
    def test_open_snapshot(self, pg_migrated_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The session that holds a snapshot is named, with the command that ends it."""
        monkeypatch.setattr(subject, "OLD_SNAPSHOT_US", 0)
        assert "snapshots" not in checks(pg_migrated_dsn)
        with psycopg.connect(pg_migrated_dsn, application_name="report") as holder:
            holder.execute("SELECT 1")
            found = checks(pg_migrated_dsn)["snapshots"]
            pid = holder.info.backend_pid
        assert found["verdict"] == "WARN"
        assert f"session {pid} (report by " in found["says"]
        assert "idle in transaction" in found["says"]
        assert f"pg_terminate_backend({pid})" in found["fix"]
