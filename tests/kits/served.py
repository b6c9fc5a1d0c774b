"""Fixtures that serve the API on each engine, per test or per module."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from penstock.db.postgres.store import PostgresStore
from penstock.db.sqlite.store import SqliteStore
from penstock.db.store import Store
from penstock.testing.clock import VirtualClock
from tests.conftest import CLOCK_START, ENGINES
from tests.kits.client_harness import Harness
from tests.kits.databases import Databases
from tests.server.kit import ServedApi

Serve = Callable[[str], AbstractContextManager[ServedApi]]


@pytest.fixture
def served(harness: Harness) -> Iterator[ServedApi]:
    """Return a server over the harness."""
    made = ServedApi(harness)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def serve(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Serve:
    """Return a factory that serves a harness of an engine on a separate database."""

    @contextlib.contextmanager
    def opened(engine: str) -> Iterator[ServedApi]:
        clock = VirtualClock(CLOCK_START)
        with contextlib.ExitStack() as stack:
            store: Store
            if engine == "postgres":
                databases: Databases = request.getfixturevalue("pg_databases")
                name = stack.enter_context(databases.lent())
                dsn = request.getfixturevalue("pg_server").dsn(name)
                store = databases.warm(name).lent(PostgresStore(dsn, clock))
            else:
                path = tmp_path_factory.mktemp("served") / "penstock.db"
                shutil.copy(request.getfixturevalue("sqlite_template"), path)
                store = SqliteStore(path, clock)
            stack.callback(store.close)
            made = ServedApi(Harness(store, clock))
            stack.callback(made.stop)
            yield made

    return opened


@pytest.fixture(scope="module", params=ENGINES)
def shared(request: pytest.FixtureRequest, serve: Serve) -> Iterator[ServedApi]:
    """Return one server for all tests of a module that change nothing."""
    with serve(request.param) as made:
        yield made
