"""What goes wrong on the first day: each error is one sentence that says what to do."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli import cli
from penstock.testing.postgres.databases import DatabaseServer
from tests.kits.refusing_postgres import refusing_postgres
from tests.kits.shell import SHOP, CommandResult, Shell

ROOT = Path(__file__).parents[2]
DECLARED = 'from penstock.bus import TopicSpec\n\norders = TopicSpec(name="orders")\n'
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, which is never writable")


def run(*args: str) -> CommandResult:
    result = CliRunner().invoke(cli, list(args))
    return CommandResult(result.exit_code, result.stdout, result.stderr)


def check(result: CommandResult, code: int, *words: str) -> None:
    """The command failed with one line that has all these words, and without a traceback."""
    assert result.code == code, result
    assert result.err.startswith("Error: "), result.err
    assert result.err.count("\n") == 1, result.err
    assert [word for word in words if word not in result.err] == [], result.err


@pytest.fixture
def taken() -> Iterator[str]:
    """A port of 127.0.0.1 on which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield str(other.getsockname()[1])


class TestPorts:
    """A port that is taken, an address that is not ours."""

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            (["up", "--port", "{}"], ["--port", "PENSTOCK_API_PORT (0 picks a free one)"]),
            (["api", "--port", "{}"], ["--port", "Address already in use"]),
            (["up", "--port", "0", "--pubsub-port", "{}"], ["--pubsub-port", "Choose another"]),
            (["scheduler", "--metrics-port", "{}"], ["--metrics-port", "Choose another"]),
        ],
        ids=["up", "api", "pubsub", "metrics"],
    )
    def test_taken(self, bare: Shell, taken: str, line: list[str], words: list[str]) -> None:
        check(bare(*(word.format(taken) for word in line)), 2, taken, *words)

    def test_open_to_others_without_a_key(self, bare: Shell) -> None:
        check(bare("up", "--host", "0.0.0.0"), 2, "--host", "penstock keys create")


class TestUrls:
    """A database URL that names no usable database."""

    @pytest.mark.parametrize(
        ("url", "code", "words"),
        [
            ("mysql://me@host/db", 2, ["expected sqlite:PATH or postgresql://", "got 'mysql'"]),
            ("penstock.db", 2, ["sqlite:penstock.db"]),
            (
                "postgresql://no-such-host.invalid/db",
                5,
                ["the host name cannot be resolved", "Correct the host"],
            ),
            (
                "postgresql://127.0.0.1:1/db",
                5,
                ["no server is listening there", "Start PostgreSQL"],
            ),
            ("postgresql://me:a/b@host/db", 2, ["percent-encoded", "%2F"]),
            (
                "postgresql:///x?host=/nowhere",
                5,
                ["no server is listening there", "Start PostgreSQL"],
            ),
            ("sqlite:", 2, ["a file after sqlite:"]),
            ("sqlite:no/folder/a.db", 5, ["mkdir -p no/folder"]),
            ("sqlite:.", 5, ["is a folder", "Specify a file in it"]),
        ],
    )
    def test_wrong(self, url: str, code: int, words: list[str]) -> None:
        result = run("up", "--port", "0", "--database-url", url)
        check(result, code, *words)
        assert "me@" not in result.err

    def test_no_database_of_that_name(self, pg_server: DatabaseServer) -> None:
        """A real server answers."""
        url = pg_server.dsn("no_such_database")
        check(run("status", "--database-url", url), 5,
              'no database "no_such_database"', "createdb no_such_database")  # fmt: skip

    def test_no_user_of_that_name(self, pg_server: DatabaseServer) -> None:
        url = pg_server.dsn().replace("postgres@", "no_such_user@")
        check(run("status", "--database-url", url), 5, 'no user "no_such_user"', "createuser")

    def test_wrong_password(self) -> None:
        with refusing_postgres() as port:
            url = f"postgresql://ann:cnry-secret@127.0.0.1:{port}/db"
            result = run("status", "--database-url", url)
        check(result, 5, 'rejected the password of user "ann"', "Correct the user and the password")
        assert "cnry" not in result.err

    def test_no_password(self) -> None:
        with refusing_postgres() as port:
            result = run("status", "--database-url", f"postgresql://ann@127.0.0.1:{port}/db")
        check(result, 5, "requires a password", "PGPASSWORD")

    @pytest.mark.parametrize(("version", "shown"), [("14.9", "14.9"), ("9.6.24", "9.6")])
    def test_postgresql_too_old(self, version: str, shown: str) -> None:
        """Its version is compared before anything is created."""
        with refusing_postgres(version) as port:
            result = run("db", "migrate", "--database-url", f"postgresql://ann@127.0.0.1:{port}/db")
        check(result, 2, "expected PostgreSQL 15 or newer", shown, "Upgrade that server")


class TestExtras:
    """A feature whose library is not installed."""

    @pytest.mark.parametrize(
        ("library", "line", "extra"),
        [
            ("psycopg", ["status", "--database-url", "postgresql://localhost/db"], "postgres"),
            ("duckdb", ["demo"], "duckdb"),
            (
                "penstock.pubsub_wire.handlers",
                ["up", "--port", "0", "--pubsub-port", "0"],
                "pubsub",
            ),
            (
                "nats",
                ["subscriptions", "diff", "--transport", "nats://127.0.0.1", "mine.py"],
                "nats",
            ),
        ],
    )
    def test_missing(
        self, shell: Shell, monkeypatch: pytest.MonkeyPatch, library: str, line: list[str],
        extra: str,
    ) -> None:  # fmt: skip
        Path("mine.py").write_text(DECLARED)
        monkeypatch.setitem(sys.modules, library, None)
        result = run(*line) if "--database-url" in line else shell(*line)
        check(result, 2, f"pip install 'penstock-engine[{extra}]'")


class TestSettings:
    """Misspelled settings, options and commands."""

    def test_unknown_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PENSTOCK_API_PROT", "9000")
        check(run("status"), 2, "PENSTOCK_API_PROT", "Did you mean PENSTOCK_API_PORT?")

    def test_unknown_in_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "penstock.toml").write_text('databse_url = "sqlite:a.db"\n')
        check(run("status"), 2, "databse_url", "Did you mean database_url?")

    def test_unknown_option_and_command(self) -> None:
        check(run("up", "--prot", "9000"), 2, "--port", "up --help`")
        check(run("statsu"), 2, "Did you mean 'status'?")

    def test_no_database_yet(self) -> None:
        check(run("status"), 5, "there is no database", "Start with `penstock up`")

    def test_no_such_file_of_pipelines(self, bare: Shell) -> None:
        check(bare("up", "--port", "0", "--pipelines", "mine.py"), 2, "existing file", "mine.py")


@LINUX
class TestNoPermission:
    """`/proc` admits no new files, not even of root."""

    @pytest.mark.parametrize(
        ("line", "code", "words"),
        [
            (["up", "--port", "0"], 5, ["can write to its folder", "--database-url sqlite:"]),
            (["db", "migrate"], 5, ["--database-url sqlite:PATH"]),
            (["init", "mine"], 2, ["can write to", "--folder"]),
            (["demo"], 2, ["/proc", "Set TMPDIR"]),
        ],
        ids=["up", "migrate", "init", "demo"],
    )
    def test_folder(
        self, monkeypatch: pytest.MonkeyPatch, line: list[str], code: int, words: list[str]
    ) -> None:
        monkeypatch.chdir("/proc")
        monkeypatch.setattr("tempfile.tempdir", "/proc")
        check(run(*line), code, *words)


@contextlib.contextmanager
def mounted(folder: Path, *options: str) -> Iterator[list[str]]:
    """Yield a prefix for commands that see a small file system of their own at `folder`."""
    mount = f"mount -t tmpfs -o {','.join(options)} none {folder}"
    prefix = ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("this user may not mount file systems")
    yield prefix


@pytest.mark.parametrize(
    ("options", "words"),
    [(("ro",), "cannot write to the folder"), (("size=256k",), "disk is full")],
    ids=["read-only", "full"],
)
def test_file_systems(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    """A database on a file system that is read-only or full."""
    folder = tmp_path / "small"
    folder.mkdir()
    with mounted(folder, *options) as prefix:
        line = [sys.executable, "-m", "penstock", "up", "--port", "0", "--pipelines", SHOP]
        url = f"sqlite:{folder}/penstock.db"
        done = subprocess.run([*prefix, *line, "--database-url", url],
                              capture_output=True, text=True, check=False, timeout=90)  # fmt: skip
    check(CommandResult(done.returncode, done.stdout, done.stderr), 5, words)


OLD = "import sys; sys.version_info = (3, 9, 2, 'final', 0); import penstock.cli"


def test_old_python() -> None:
    """Started from a clone by an old Python: a sentence instead of a syntax error."""
    done = subprocess.run([sys.executable, "-c", OLD], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Penstock needs Python 3.11 or newer, and this is 3.9: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_old_python_of_make(tmp_path: Path) -> None:
    """`make` refuses an old Python before it creates anything."""
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    line = ["make", "-C", str(ROOT), "demo", f"PYTHON={old}", f"VENV={tmp_path}/venv"]
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    assert "Penstock needs Python 3.11 or newer; name one with: make PYTHON=" in done.stdout
    assert not (tmp_path / "venv").exists()
