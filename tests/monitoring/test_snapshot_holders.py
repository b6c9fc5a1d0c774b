"""`penstock doctor` names what keeps dead rows although no session shows it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from penstock.cli.root import cli
from penstock.db.postgres.store import PostgresStore
from penstock.monitoring.cli import doctor
from penstock.services import store as services
from penstock.testing.postgres.server import PostgresServer
from tests.kits.standby import REPLICATED, StandbyServer, wait_for

OPTIONS = {**REPLICATED, "max_prepared_transactions": "4"}
FOLLOWS = {
    **OPTIONS,
    "primary_slot_name": "replica",
    "hot_standby_feedback": "on",
    "wal_receiver_status_interval": "1",
}


def snapshots(url: str) -> list[dict[str, Any]]:
    """Run doctor and return its checks of snapshots."""
    result = CliRunner().invoke(cli, ["--database-url", url, "doctor", "--json"])
    found = json.loads(result.stdout)["checks"]
    return [check for check in found if check["check"] == "snapshots"]


def statement(fix: str) -> str:
    """Return what the shell would send to the server."""
    command = shlex.split(fix[fix.index("psql ") :])
    return command[command.index("-c") + 1].rstrip(".")


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgresServer]:
    """Return a server that standbys can follow."""
    with PostgresServer(options=OPTIONS) as server:
        yield server


@pytest.fixture(scope="module")
def dsn(primary: PostgresServer) -> str:
    """Return a migrated database."""
    url = primary.create_database("snapshots")
    store = PostgresStore(url)
    store.migrate()
    store.close()
    return url


@pytest.mark.postgres
@pytest.mark.parametrize("name", ["waiting", "a 'b' \"$(c)\" \\d"])
def test_a_prepared_transaction(dsn: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It outlives its session; doctor names it and the command that ends it."""
    monkeypatch.setattr(doctor, "OLD_SNAPSHOT_US", 0)
    assert snapshots(dsn) == []
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute("BEGIN")
        session.execute("SELECT pg_current_xact_id()")
        session.execute(psycopg.sql.SQL("PREPARE TRANSACTION {}").format(name).as_string(session))
        (found,) = snapshots(dsn)
        assert found["verdict"] == "WARN"
        assert f"prepared transaction {name!r} (postgres) has waited for" in found["says"]
        assert "Ask its transaction manager first" in found["fix"]
        session.execute(statement(found["fix"]).encode())
    assert snapshots(dsn) == []


@pytest.mark.postgres
def test_a_replication_slot(
    primary: PostgresServer, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby that is gone keeps holding its last snapshot; one that follows is not named."""
    with psycopg.connect(primary.dsn(), autocommit=True) as session:
        session.execute("SELECT pg_create_physical_replication_slot('replica', true)")
        assert snapshots(dsn) == [], "a slot without a snapshot keeps no dead rows"
        with StandbyServer(primary, options=FOLLOWS):
            wait_for(primary, "SELECT 1 FROM pg_replication_slots WHERE xmin IS NOT NULL")
            assert snapshots(dsn) == []
            monkeypatch.setattr(services, "SLOT_BEHIND_MIN", -1)
            (found,) = snapshots(dsn)
            assert "replication slot 'replica' (active)" in found["says"]
            assert "End the long query on its standby" in found["fix"]
            assert "pg_drop_replication_slot" not in found["fix"]
        monkeypatch.undo()
        wait_for(primary, "SELECT 1 FROM pg_replication_slots WHERE NOT active")
        for _ in range(3):
            session.execute("SELECT pg_current_xact_id()")
        (found,) = snapshots(dsn)
        assert "replication slot 'replica' (unused) is " in found["says"]
        assert " transactions behind and keeps " in found["says"]
        assert "a standby that needs it must be copied again" in found["fix"]
        session.execute(statement(found["fix"]).encode())
    assert snapshots(dsn) == []
