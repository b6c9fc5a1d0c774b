"""`python -m penstock.testing.postgres`: the server for trials that the tutorial starts."""

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's user can reach, if the tests run as root."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made) / "pgdata"


def test_starts_prints_its_address_and_stops(folder: Path) -> None:
    command = [sys.executable, "-m", "penstock.testing.postgres", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(3)]
            (url,) = re.findall(r"export PENSTOCK_DATABASE_URL=(\S+)", lines[1])
            with psycopg.connect(url) as connection:
                assert connection.execute("SHOW fsync").fetchone() == ("on",)
                assert connection.execute("SELECT current_database()").fetchone() == ("penstock",)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert (folder / "PG_VERSION").exists()
