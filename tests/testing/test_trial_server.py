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

WITHOUT_PSYCOPG = """
import runpy, sys
sys.modules["psycopg"] = None
runpy.run_module("penstock.testing.postgres", run_name="__main__")
"""


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


def test_without_the_driver_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    """No traceback: the sentence names the extra, and what to run in a clone."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PSYCOPG], cwd=tmp_path, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: PostgreSQL needs its driver (")
    for way in ("pip install 'penstock-engine[postgres]'", "pip install '.[postgres]'", "make dev"):
        assert way in line
    assert not (tmp_path / "pgdata").exists()
