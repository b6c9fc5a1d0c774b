"""The season, generated once and copied for every test that changes it."""

import shutil
from pathlib import Path

import pytest

from penstock.demo.nba.season import season_write
from penstock.demo.nba.warehouse import Season
from tests.examples.nba_kit import KNOWN, PLAYED
from tests.kits.nats import nats_server

__all__ = ["nats_server"]


@pytest.fixture(scope="session")
def season_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A season up to the evening of 2025-12-30; never modified."""
    path = tmp_path_factory.mktemp("season") / "season.duckdb"
    season_write(Season(path=path), played_until=PLAYED, known_until=KNOWN)
    return path


@pytest.fixture
def season(season_file: Path, tmp_path: Path) -> Season:
    """A copy of the season."""
    return Season(path=Path(shutil.copy(season_file, tmp_path / "season.duckdb")))
