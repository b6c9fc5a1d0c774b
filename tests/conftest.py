"""Fixtures shared by all tests: a PostgreSQL server per worker process, a database per test."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.postgres import DatabaseServer, open_server
from tests.rules import tidy

_database_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def pg_server() -> Iterator[DatabaseServer]:
    """The server of this (xdist) worker process, started by the first test that asks for it."""
    with open_server() as server:
        yield server


@pytest.fixture
def pg_dsn(pg_server: DatabaseServer) -> Iterator[str]:
    """The URL of an empty database that belongs to this test alone."""
    # The process id keeps workers apart when they share a configured server.
    name = f"penstock_test_{os.getpid()}_{next(_database_numbers)}"
    yield pg_server.create_database(name)
    pg_server.drop_database(name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the modules that come close to the size limit, before they hit it."""
    for line in tidy.nearly_too_long(tidy.sources_read(Path(__file__).parents[1])):
        terminalreporter.write_line(f"close to the limit of {tidy.MODULE_LINES_MAX}: {line}")
