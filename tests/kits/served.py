"""The API served over a desk, on each engine: one for a test, or one for a whole module."""

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
from tests.kits.databases import Databases
from tests.kits.desk import Desk
from tests.server.kit import Served

Serve = Callable[[str], AbstractContextManager[Served]]


@pytest.fixture
def served(desk: Desk) -> Iterator[Served]:
    """The desk behind a server."""
    made = Served(desk)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def serve(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Serve:
    """Serve a desk of the named engine on a database of its own."""

    @contextlib.contextmanager
    def opened(engine: str) -> Iterator[Served]:
        clock = VirtualClock(CLOCK_START)
        with contextlib.ExitStack() as stack:
            store: Store
            if engine == "postgres":
                databases: Databases = request.getfixturevalue("pg_databases")
                name = stack.enter_context(databases.lent())
                store = PostgresStore(request.getfixturevalue("pg_server").dsn(name), clock)
            else:
                path = tmp_path_factory.mktemp("served") / "penstock.db"
                shutil.copy(request.getfixturevalue("sqlite_template"), path)
                store = SqliteStore(path, clock)
            stack.callback(store.close)
            made = Served(Desk(store, clock))
            stack.callback(made.stop)
            yield made

    return opened


@pytest.fixture(scope="module", params=ENGINES)
def shared(request: pytest.FixtureRequest, serve: Serve) -> Iterator[Served]:
    """One server for all tests of a module that leave what they find as it is."""
    with serve(request.param) as made:
        yield made
