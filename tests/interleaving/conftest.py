"""One database and one arena per test module; each scene empties it."""

import os
from collections.abc import Iterator

import pytest

from penstock.testing.postgres.server import DatabaseServer
from tests.interleaving.stage import Stage


@pytest.fixture(scope="module")
def stage(pg_server: DatabaseServer, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """The stage of this module's scenes."""
    name = f"penstock_scenes_{os.getpid()}_{request.module.__name__.rsplit('_', 1)[-1]}"
    made = Stage(pg_server.create_database(name))
    yield made
    made.close()
    pg_server.drop_database(name)
