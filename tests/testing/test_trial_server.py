"""`python -m penstock.testing.postgres`: the server for trials that the tutorial starts."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from penstock.testing.postgres.process import port_free

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


@contextlib.contextmanager
def served(folder: Path, *more: str) -> Iterator[str]:
    """Run a server and yield its URL."""
    command = [sys.executable, "-m", "penstock.testing.postgres", str(folder), *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.stdout.readline().partition("=")[2].strip()
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_folder_keeps_its_address(folder: Path) -> None:
    """A second start while it is served says where; a restart keeps the port."""
    again = [sys.executable, "-m", "penstock.testing.postgres", str(folder)]
    with served(folder, "--port", str(port_free())) as url:
        second = subprocess.run(again, capture_output=True, text=True, timeout=60, check=True)
        assert second.stdout == f"PostgreSQL is already running at {url}\n"
        other = [*again[:-1], str(folder.with_name("other")), "--port", str(urlsplit(url).port)]
        refused = subprocess.run(other, capture_output=True, text=True, timeout=60, check=False)
        assert refused.returncode == 1
        assert "is in use. Pass another --port" in refused.stderr
    with served(folder) as later:
        assert later == url


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts the server as another user")
def test_a_folder_that_only_root_can_enter(folder: Path) -> None:
    closed = folder.with_name("closed")
    closed.mkdir(mode=0o700)
    command = [sys.executable, "-m", "penstock.testing.postgres", str(closed / "pgdata")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == (
        "Error: PostgreSQL refuses to run as root, so it runs as nobody, which cannot enter "
        f"{closed.resolve()}: keep the data in a folder that every user can enter.\n"
    )


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
