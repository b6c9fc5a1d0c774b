"""Migrations: forward only, applied once, verified; an incompatible database is refused."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.access.store import registry
from penstock.core.errors import SchemaMismatch
from penstock.db import migrate
from penstock.db.postgres.store import PostgresStore
from penstock.db.sqlite.store import SqliteStore
from penstock.db.statements import Engine
from penstock.db.store import Store, Tx

POLICIES = """
SELECT tablename::text, policyname::text, roles::text, cmd, qual, with_check FROM pg_policies
ORDER BY 1, 2
"""
PRIVILEGES = """
SELECT c.relname::text, c.relrowsecurity, c.relacl::text, a.attname::text, a.attacl::text
FROM pg_class c
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attacl IS NOT NULL
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'S')
    AND NOT c.relispartition
ORDER BY 1, 4
"""

OpenEmpty = Callable[[], Store]


@pytest.fixture
def open_empty(engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenEmpty]:
    """Open stores on one database that is not migrated yet."""
    opened: list[Store] = []
    dsn = request.getfixturevalue("pg_dsn") if engine == "postgres" else ""

    def open_one() -> Store:
        store: Store
        store = PostgresStore(dsn) if dsn else SqliteStore(tmp_path / "empty.db")
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


def names(store: Store) -> list[str]:
    """Return every migration of Penstock, as a store names them."""
    engine: Engine = store.capabilities.engine
    return [f"{m.number:04d}_{m.name}" for m in migrate.migrations(engine)]


def raw(store: Store, text: str) -> Any:
    """Run raw SQL in a transaction; return its rows."""

    def body(tx: Tx) -> Any:
        result = tx._connection.execute(text)  # type: ignore[attr-defined]
        return result.fetchall() if result.description else None

    return store.write(body)


def test_once(open_empty: OpenEmpty) -> None:
    """A fresh database lacks every migration, gets them in order, and then lacks none.

    Until then its error asks the user to migrate it.
    """
    store = open_empty()
    assert store.verify() == names(store)
    for call in (store.read, store.write):
        with pytest.raises(SchemaMismatch, match="penstock db migrate"):
            call(lambda tx: registry.customer_get(tx, "x"))
    assert store.migrate() == names(store)
    assert store.read(lambda tx: registry.customer_get(tx, "x")) is None
    assert store.migrate() == []
    assert store.verify() == []
    assert open_empty().verify() == []


def test_changed_text(store: Store) -> None:
    """A migration that was applied with different contents is refused, and nothing is run."""
    raw(store, "UPDATE schema_migrations SET checksum = 'other' WHERE number = 1")
    for call in (store.verify, store.migrate):
        with pytest.raises(SchemaMismatch, match="0001_foundation"):
            call()


@pytest.mark.parametrize("breaking", [True, False])
def test_newer_database(store: Store, breaking: bool) -> None:
    """A newer breaking migration is refused; a newer compatible one is accepted."""
    raw(store, f"INSERT INTO schema_migrations VALUES (9999, 'later', 'x', {breaking}, 1)")
    if breaking:
        for call in (store.verify, store.migrate):
            with pytest.raises(SchemaMismatch, match="9999_later"):
                call()
    else:
        assert store.verify() == []
        assert store.migrate() == []


def test_two_at_once(open_empty: OpenEmpty) -> None:
    """Of two processes migrating at once, one does the work and the other finds it done."""
    stores = [open_empty() for _ in range(3)]
    barrier = threading.Barrier(3)
    done: list[list[str]] = []
    errors: list[BaseException] = []

    def run(store: Store) -> None:
        try:
            barrier.wait(60)
            done.append(store.migrate())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert sorted(done) == [[], [], names(stores[0])]


def test_a_failed_migration_is_rolled_back(
    open_empty: OpenEmpty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration that fails halfway leaves nothing behind."""
    store = open_empty()
    engine: Engine = store.capabilities.engine
    good = migrate.migrations(engine)
    script = "CREATE TABLE half (a integer);\nCREATE TABLE half (b integer);\n"
    bad = migrate.Migration(number=9998, name="bad", script=script, checksum="c", breaking=False)
    monkeypatch.setattr(migrate, "migrations", lambda _: (*good[:3], bad))
    with pytest.raises(Exception, match="half"):
        store.migrate()
    monkeypatch.undo()
    assert store.verify() == names(store)
    assert store.migrate() == names(store)
    with pytest.raises(SchemaMismatch):
        raw(store, "SELECT * FROM half")


@pytest.mark.postgres
def test_a_migration_has_no_time_limit(pg_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index over a large table takes longer than a statement of a service may."""
    engine: Engine = "postgres"
    script = "CREATE TABLE seen AS SELECT current_setting('statement_timeout') AS value;\n"
    long = migrate.Migration(number=9998, name="long", script=script, checksum="c", breaking=False)
    good = migrate.migrations(engine)
    with contextlib.closing(PostgresStore(pg_dsn)) as store:
        store.migrate()
        monkeypatch.setattr(migrate, "migrations", lambda _: (*good, long))
        assert store.migrate() == ["9998_long"]
        assert raw(store, "SELECT value FROM seen") == [("0",)]
        assert raw(store, "SELECT current_setting('statement_timeout')") == [("2min",)]


@pytest.mark.postgres
def test_rights_are_granted_once(
    pg_dsn: str, pg_migrated_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Migrations applied together give the tenant role what those applied one by one give it."""
    every = migrate.migrations("postgres")
    granting = [m.number for m in every if migrate.GRANTING in m.script]
    store = PostgresStore(pg_dsn)
    for last in (*granting[-3:], every[-1].number):
        until = tuple(m for m in every if m.number <= last)
        monkeypatch.setattr(migrate, "migrations", lambda _, until=until: until)
        store.migrate()
    together = PostgresStore(pg_migrated_dsn)
    assert rights(store) == rights(together)
    together.close()
    store.close()
    assert sum(migrate.GRANTING in script for script in migrate.scripts(every)) == 1


def rights(store: Store) -> list[Any]:
    """Return the policies and privileges of all tables that are no partition."""
    found: list[Any] = []

    def body(tx: Tx) -> None:
        for text in (POLICIES, PRIVILEGES):
            found.extend(tx._connection.execute(text).fetchall())  # type: ignore[attr-defined]

    store.write(body)
    assert len(found) > 100
    return found
