"""A dump restored into a fresh cluster: it is noticed, nothing is lost, and work continues."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from penstock.assembly.database import open_store
from penstock.assembly.settings import load
from penstock.client import Client
from penstock.core.errors import SchemaMismatch
from penstock.db.postgres.store import ENTER_CLUSTER, PostgresStore
from penstock.services.upkeep import Sealer
from penstock.testing.clock import VirtualClock
from penstock.testing.postgres.binaries import binaries_find
from penstock.testing.postgres.server import PostgresServer
from tests.conftest import CLOCK_START
from tests.kits.client_harness import Harness

pytestmark = pytest.mark.postgres

BURN = """DO $$ BEGIN
    CREATE TEMP TABLE burnt (n integer);
    FOR i IN 1..4000 LOOP
        BEGIN INSERT INTO burnt VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END;
    END LOOP;
END $$"""
"""Use up transaction ids, so that the fresh cluster is behind."""


@pytest.fixture(scope="module")
def fresh() -> Iterator[PostgresServer]:
    """A cluster of its own: no roles, low transaction ids."""
    with PostgresServer() as server:
        yield server


def work(harness: Harness, n: int) -> None:
    """Run and end some runs; each writes journal entries."""
    for _ in range(n):
        harness.submit()
        harness.complete(harness.take())


def copy_to(dsn: str, server: PostgresServer, name: str, folder: Path) -> str:
    """Dump a database and restore it on another server, as the documentation says."""
    tools, dump = binaries_find(None), folder / "penstock.sql"
    subprocess.run([tools / "pg_dump", "--no-owner", "--file", dump, dsn], check=True)
    server.create_database(name)
    target = server.dsn(name)
    psql: list[str | Path] = [tools / "psql", "--quiet", "--no-psqlrc", "--dbname", target]
    done = subprocess.run([*psql, "--file", dump], check=True, capture_output=True, text=True)
    # The role does not exist on the fresh server; `migrate` creates it, its rights and policies.
    errors = [line for line in done.stderr.splitlines() if "ERROR" in line]
    assert all("penstock_tenant" in line for line in errors), errors
    return target


def test_dump_restore_verify_go_on(
    pg_migrated_dsn: str, fresh: PostgresServer, tmp_path: Path
) -> None:
    """Entries sealed before, unsealed ones and new ones are all sealed, in one unbroken chain."""
    clock = VirtualClock(CLOCK_START)
    with psycopg.connect(pg_migrated_dsn, autocommit=True) as connection:
        connection.execute(BURN.encode())
    source = PostgresStore(pg_migrated_dsn, clock)
    harness = Harness(source, clock)
    harness.config()
    work(harness, 5)
    Sealer(source, block=4).run_once()
    work(harness, 5)
    harness.submit()
    held = harness.take()
    before = harness.counts("history", "journal", "seals", "configs")
    source.close()
    target = copy_to(pg_migrated_dsn, fresh, "restored", tmp_path)

    settings = load({}, overrides={"database_url": target})
    with pytest.raises(SchemaMismatch, match="penstock db migrate"):
        open_store(settings)
    store = PostgresStore(target, clock)
    try:
        assert store.verify() == [ENTER_CLUSTER]
        assert store.migrate() == [ENTER_CLUSTER]
        assert store.verify() == store.migrate() == []
        again = Harness(store, clock)
        assert again.counts("history", "journal", "seals", "configs") == before
        views = Client(store).views
        assert views.verify_journal().problem is None
        assert views.tenant_isolation().stands
        assert again.complete(held)
        again.submit()
        # Tokens of the time after the dump, which sinks may have stored, are lower.
        assert again.take().token > held.token + 1_000_000
        work(again, 5)
        (sealed,) = again.column("SELECT sum(entries)::bigint FROM seals")
        (entries,) = again.column("SELECT count(*) FROM journal")
        # A pass ends with the entries of the earlier cluster.
        counts = [Sealer(store, block=4).run_once().entries for _ in range(2)]
        assert sum(counts) == entries - sealed
        assert views.verify_journal().problem is None
        assert views.verify_journal().entries == entries
    finally:
        store.close()


def test_changes_are_found_after_a_restore(
    pg_migrated_dsn: str, fresh: PostgresServer, tmp_path: Path
) -> None:
    """An entry of the earlier cluster, and one of the present cluster, cannot be changed unseen."""
    clock = VirtualClock(CLOCK_START)
    source = PostgresStore(pg_migrated_dsn, clock)
    work(Harness(source, clock), 3)
    Sealer(source).run_once()
    source.close()
    target = copy_to(pg_migrated_dsn, fresh, "changed", tmp_path)
    store = PostgresStore(target, clock)
    try:
        store.migrate()
        again = Harness(store, clock)
        work(again, 3)
        Sealer(store).run_once()
        views = Client(store).views
        again.sql("ALTER TABLE journal DISABLE TRIGGER USER")
        for cluster in (0, 1):
            row = f"(SELECT max(seq) FROM journal WHERE cluster = {cluster})"
            again.sql(f"UPDATE journal SET actor = actor || 'x' WHERE seq = {row}")
            assert views.verify_journal().problem is not None
            again.sql(f"UPDATE journal SET actor = rtrim(actor, 'x') WHERE seq = {row}")
            assert views.verify_journal().problem is None
    finally:
        store.close()


def test_same_cluster(pg_migrated_dsn: str) -> None:
    """A database that stayed in its cluster needs nothing."""
    store = PostgresStore(pg_migrated_dsn)
    try:
        assert store.verify() == []
        assert store.migrate() == []
    finally:
        store.close()


def test_unknown_identifier(pg_migrated_dsn: str, fresh: PostgresServer, tmp_path: Path) -> None:
    """Without the cluster's identifier, transaction ids that are not reached yet tell."""
    clock = VirtualClock(CLOCK_START)
    with psycopg.connect(pg_migrated_dsn, autocommit=True) as connection:
        connection.execute(BURN.encode())
        connection.execute("UPDATE clusters SET system_id = NULL")
    source = PostgresStore(pg_migrated_dsn, clock)
    work(Harness(source, clock), 1)
    assert source.verify() == []
    source.close()
    target = copy_to(pg_migrated_dsn, fresh, "unknown", tmp_path)
    store = PostgresStore(target, clock)
    try:
        assert store.verify() == [ENTER_CLUSTER]
    finally:
        store.close()
