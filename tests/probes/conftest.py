"""A filled warehouse of each kind, and probes under the test's clock."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.probes.runner import ProbeRunner
from penstock.testing.clock import VirtualClock
from tests.probes.kit import DuckDbSite, ParquetSite, PostgresSite, Site, SqliteSite, fill

SITES = (
    pytest.param("duckdb", id="duckdb"),
    pytest.param("parquet", id="parquet"),
    pytest.param("sqlite", id="sqlite"),
    pytest.param("postgres", id="postgres", marks=pytest.mark.postgres),
)


@pytest.fixture(params=SITES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """Each kind of warehouse in turn."""
    made: SqliteSite | DuckDbSite | PostgresSite
    if request.param == "postgres":
        made = PostgresSite(request.getfixturevalue("pg_dsn"))
    elif request.param == "sqlite":
        made = SqliteSite(tmp_path / "season.db")
    elif request.param == "parquet":
        made = ParquetSite(tmp_path / "season.duckdb", folder=tmp_path / "la [ke] 'x")
    else:
        made = DuckDbSite(tmp_path / "season.duckdb")
    fill(made)
    return made


@pytest.fixture
def probes(clock: VirtualClock) -> Iterator[ProbeRunner]:
    """Probes that use the test's clock."""
    made = ProbeRunner(clock)
    yield made
    made.close()
