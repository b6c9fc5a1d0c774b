"""Migrations: forward only, applied once, verified; an incompatible database is refused."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.access.store import registry
from penstock.core.errors import SchemaMismatch
from penstock.db import migrate
from penstock.db.postgres.store import PostgresStore
from penstock.db.sqlite.store import SqliteStore
from penstock.db.statements import Engine
from penstock.db.store import Store, Tx

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


def raw(store: Store, text: str) -> None:
    """Run raw SQL in a transaction."""

    def body(tx: Tx) -> None:
        tx._connection.execute(text)  # type: ignore[attr-defined]

    store.write(body)


def test_once(open_empty: OpenEmpty) -> None:
    """A fresh database lacks every migration, gets them in order, and then lacks none."""
    store = open_empty()
    assert store.verify() == names(store)
    assert store.migrate() == names(store)
    assert store.migrate() == []
    assert store.verify() == []
    assert open_empty().verify() == []


def test_unmigrated(open_empty: OpenEmpty) -> None:
    """The error of an unmigrated database asks the user to migrate it."""
    store = open_empty()
    for call in (store.read, store.write):
        with pytest.raises(SchemaMismatch, match="penstock db migrate"):
            call(lambda tx: registry.customer_get(tx, "x"))
    store.migrate()
    assert store.read(lambda tx: registry.customer_get(tx, "x")) is None


def test_changed_text(open_empty: OpenEmpty) -> None:
    """A migration that was applied with different contents is refused, and nothing is run."""
    store = open_empty()
    store.migrate()
    raw(store, "UPDATE schema_migrations SET checksum = 'other' WHERE number = 1")
    for call in (store.verify, store.migrate):
        with pytest.raises(SchemaMismatch, match="0001_foundation"):
            call()


@pytest.mark.parametrize("breaking", [True, False])
def test_newer_database(open_empty: OpenEmpty, breaking: bool) -> None:
    """A newer breaking migration is refused; a newer compatible one is accepted."""
    store = open_empty()
    store.migrate()
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
    monkeypatch.setattr(migrate, "migrations", lambda _: (*good, bad))
    with pytest.raises(Exception, match="half"):
        store.migrate()
    monkeypatch.undo()
    assert store.verify() == names(store)
    assert store.migrate() == names(store)
    with pytest.raises(SchemaMismatch):
        raw(store, "SELECT * FROM half")
