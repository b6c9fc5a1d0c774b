"""Fixtures shared by all tests: servers, databases, a store of each engine under a set clock."""

import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from penstock.core.clock import Clock
from penstock.db.postgres.store import PostgresStore
from penstock.db.sqlite.store import SqliteStore
from penstock.db.store import Store
from penstock.testing.clock import VirtualClock
from penstock.testing.memory import memory_store
from penstock.testing.postgres.server import DatabaseServer, open_server
from penstock.wiring import connect_hooks
from tests.kits.databases import Admin, Databases, database_name
from tests.kits.effort import effort
from tests.kits.fixtures import harness, world
from tests.tidy import files as tidy

__all__ = ["harness", "world"]

connect_hooks()

IS_PLAIN = os.environ.get("PENSTOCK_POSTGRES_PIPELINE") == "off"
"""Run every test on psycopg's cursors; processes that tests start read the same variable."""
if IS_PLAIN:
    assert PostgresStore.__init__.__kwdefaults__ is not None
    PostgresStore.__init__.__kwdefaults__["is_pipelined"] = False

CLOCK_START = 1_763_337_600_000_000
"""2025-11-17T00:00:00Z, a Monday."""

# The verdict of `make test` depends on the code alone: what passes here passes everywhere. `make
# explore` looks for counterexamples at random; one that it finds becomes an @example.
# Time limits of examples are off: they say how busy the machine is, or that coverage measures.
PATIENT: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", derandomize=True, max_examples=effort(50, 100), **PATIENT)
settings.register_profile("explore", max_examples=500, print_blob=True, **PATIENT)
settings.load_profile("same")

ENGINES = (
    pytest.param("sqlite", id="sqlite"),
    pytest.param("postgres", id="postgres", marks=pytest.mark.postgres),
)
BRIEF_ENGINES = (
    ENGINES[0],
    pytest.param("postgres", id="postgres", marks=(pytest.mark.postgres, pytest.mark.slow)),
)
"""For long tests of what lies above the store: `make test` runs them on SQLite alone."""
PLAIN = pytest.param("postgres-plain", id="postgres-plain", marks=pytest.mark.postgres)
"""PostgreSQL through psycopg's cursors, without the pipeline."""
ALL_ENGINES = (*ENGINES, PLAIN, pytest.param("memory", id="sqlite-memory"))

os.environ.setdefault("PENSTOCK_API_PORT", "0")
"""A process that a test starts picks a free port: the default one may be taken."""

OpenStore = Callable[..., Store]
OpenPostgres = Callable[..., PostgresStore]

MEMORY_FOLDER = Path("/dev/shm")
MEMORY_NEEDED = 1 << 30


def pytest_configure() -> None:
    """Let `tmp_path` lie in memory where there is such a folder: SQLite waits for a disk.

    A commit does the same there; it only returns immediately. What passed leaves no files behind.
    """
    is_there = os.access(MEMORY_FOLDER, os.W_OK | os.X_OK)
    if is_there and shutil.disk_usage(MEMORY_FOLDER).free >= MEMORY_NEEDED:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY_FOLDER))


def pytest_sessionfinish() -> None:
    """Store what coverage measured: a worker that takes long to exit is killed before it would."""
    if "coverage" in sys.modules and (current := sys.modules["coverage"].Coverage.current()):
        current.save()


@pytest.fixture(scope="session")
def pg_server() -> Iterator[DatabaseServer]:
    """The server of this (xdist) worker process, started by the first test that asks for it.

    Autovacuum would analyze databases between tests, and plans would depend on when.
    """
    with open_server(options={"autovacuum": "off"}) as server:
        yield server


@pytest.fixture(scope="session")
def pg_template(pg_server: DatabaseServer) -> Iterator[str]:
    """The name of a migrated database from which tests clone theirs."""
    name = f"{database_name()}_template"
    dsn = pg_server.create_database(name)
    store = PostgresStore(dsn)
    store.migrate()
    store.close()
    _drop_weeks(dsn)
    yield name
    pg_server.drop_database(name)


def _drop_weeks(dsn: str) -> None:
    """Tests live in weeks of their own clock: without today's a third fewer files are copied."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        weeks = connection.execute(
            "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
            "WHERE c.relkind = 'r' AND c.relname !~ '_rest$|^history_'"
        ).fetchall()
        for (week,) in weeks:
            connection.execute(f'DROP TABLE "{week}"')


@pytest.fixture(scope="session")
def pg_admin(pg_server: DatabaseServer) -> Iterator[Admin]:
    """What creates and drops databases."""
    admin = Admin(pg_server)
    yield admin
    admin.close()


@pytest.fixture(scope="session")
def pg_empty(pg_server: DatabaseServer, pg_admin: Admin) -> Iterator[Databases]:
    """The empty databases of this worker process."""
    databases = Databases(pg_server, pg_admin, "template1")
    yield databases
    databases.close()


@pytest.fixture
def pg_dsn(pg_server: DatabaseServer, pg_empty: Databases) -> Iterator[str]:
    """The URL of an empty database that belongs to this test alone."""
    with pg_empty.lent() as name:
        yield pg_server.dsn(name)


@pytest.fixture(scope="session")
def pg_databases(
    pg_server: DatabaseServer, pg_admin: Admin, pg_template: str
) -> Iterator[Databases]:
    """The migrated databases of this worker process."""
    databases = Databases(pg_server, pg_admin, pg_template)
    yield databases
    databases.close()


@pytest.fixture
def pg_migrated_name(pg_databases: Databases) -> Iterator[str]:
    """The name of a migrated database that belongs to this test alone."""
    with pg_databases.lent() as name:
        yield name


@pytest.fixture
def pg_migrated_dsn(pg_server: DatabaseServer, pg_migrated_name: str) -> str:
    """The URL of a migrated database that belongs to this test alone."""
    return pg_server.dsn(pg_migrated_name)


@pytest.fixture
def pg_open(pg_migrated_dsn: str, pg_migrated_name: str, pg_databases: Databases) -> OpenPostgres:
    """Open stores on this test's migrated database, with the connections of earlier ones."""

    def opened(clock: Clock | None, *, is_plain: bool = False) -> PostgresStore:
        if is_plain:
            store = PostgresStore(pg_migrated_dsn, clock, is_pipelined=False)
        else:
            store = PostgresStore(pg_migrated_dsn, clock)
        return pg_databases.warm(pg_migrated_name).lent(store)

    return opened


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file from which tests copy theirs."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    store = SqliteStore(path)
    store.migrate()
    store.close()
    return path


@pytest.fixture
def clock() -> VirtualClock:
    """A clock that stands still until the test moves it."""
    return VirtualClock(CLOCK_START)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Which engine the test runs on; a module may ask for ALL_ENGINES."""
    return str(request.param)


@pytest.fixture
def open_store(
    engine: str, clock: VirtualClock, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[OpenStore]:
    """Open stores on this test's one migrated database; all are closed at the end.

    `open_store()` runs under the test's clock, `open_store(clock=None)` under the database's.
    """
    opened: list[Store] = []
    if engine.startswith("postgres"):
        pg_open: OpenPostgres = request.getfixturevalue("pg_open")
    path = tmp_path / "penstock.db"
    if engine == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), path)

    def open_one(clock: Clock | None = clock) -> Store:
        store: Store
        if engine.startswith("postgres"):
            store = pg_open(clock, is_plain=engine == "postgres-plain")
        elif engine == "sqlite":
            store = SqliteStore(path, clock)
        else:
            store = memory_store(clock)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: OpenStore) -> Store:
    """A migrated store of the engine under test, whose time is the test's clock."""
    return open_store()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the modules that come close to the size limit, before they hit it."""
    for line in tidy.nearly_too_long(tidy.sources_read(Path(__file__).parents[1])):
        terminalreporter.write_line(f"close to the limit of {tidy.MODULE_LINES_MAX}: {line}")


def pytest_collection_finish() -> None:
    """Keep what collection made out of every later pass of the garbage collector."""
    gc.collect()
    gc.freeze()
