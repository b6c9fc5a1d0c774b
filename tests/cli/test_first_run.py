"""What goes wrong on the first day: each error is one sentence that says what to do."""

import ast
import contextlib
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from penstock import SettingsError
from penstock.cli import cli
from penstock.consumer import Consumer
from penstock.testing.postgres.databases import DatabaseServer
from tests.examples.test_workers import Process
from tests.kits.refusing_postgres import refusing_postgres
from tests.kits.shell import SHOP, CommandResult, Shell
from tests.release.wheels import versions

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


UP = ("up", "--port", "0")
SINK = ("sink", "ship")
DIFF = ("subscriptions", "diff", "mine.py", "--transport")
LOGIN = """{"oidc": {"issuer": "https://id.example.com", "client_id": "penstock",
    "roles": {"@example.com": "viewer"}}}"""
PUSH = """{"orders": {"topic": "orders", "email": "a@example.com",
    "audience": "https://penstock.example.com/pubsub/push/orders"}}"""


class Use(NamedTuple):
    """A command that needs a library which is not installed."""

    extra: str
    library: str
    line: Sequence[str]
    settings: Mapping[str, str] = {}
    user: str | None = None
    """Module of ours that imports the library at its top."""


USES = [
    Use("postgres", "psycopg", ("status", "--database-url", "postgresql://localhost/db")),
    Use("duckdb", "duckdb", ("demo", "nba")),
    Use("duckdb", "duckdb", ("export", "runs", "--format", "parquet", "--file", "runs.parquet")),
    Use("duckdb", "duckdb", SINK, {"AUDIT_SINK": "parquet:sink"}),
    Use("duckdb", "duckdb", UP, {"AUDIT_SINK": "parquet:sink"}),
    Use("bigquery", "google.cloud.bigquery", SINK, {"AUDIT_SINK": "bigquery:acme.audit"}),
    Use("bigquery", "google.cloud.bigquery", UP, {"AUDIT_SINK": "bigquery:acme.audit"}),
    Use("oidc", "jwt", UP, {"LOGIN": LOGIN}),
    Use("oidc", "jwt", UP, {"INCOMING_PUSH": PUSH}),
    Use("oidc", "jwt", ("db", "rotate-push-key")),
    Use("otel", "opentelemetry.sdk.trace", UP,
        {"TELEMETRY": '{"otlp_endpoint": "http://127.0.0.1:1"}'}, "penstock.telemetry.otlp"),
    Use("sentry", "sentry_sdk", UP,
        {"TELEMETRY": '{"sentry_dsn_secret": "sentry"}', "SECRET_SENTRY": "https://a@b.invalid/1"},
        "penstock.telemetry.sentry"),
    Use("alerts", "apprise", UP,
        {"ALERTS": '{"channels": {"phone": {"kind": "apprise", "url_secret": "phone"}}}'}),
    Use("pubsub", "penstock.pubsub_wire.handlers", (*UP, "--pubsub-port", "0")),
    Use("pubsub", "google.pubsub_v1", (*DIFF, "pubsub://acme")),
    Use("nats", "nats", (*DIFF, "nats://127.0.0.1")),
]  # fmt: skip


class TestExtras:
    """A feature whose library is not installed."""

    @pytest.mark.parametrize("use", USES, ids=lambda use: f"{use.extra}-{use.line[0]}")
    def test_missing(self, shell: Shell, monkeypatch: pytest.MonkeyPatch, use: Use) -> None:
        Path("mine.py").write_text(DECLARED)
        monkeypatch.delitem(sys.modules, "mine", raising=False)
        for name, value in use.settings.items():
            monkeypatch.setenv(f"PENSTOCK_{name}", value)
        if use.user is not None:
            monkeypatch.delitem(sys.modules, use.user, raising=False)
        monkeypatch.setitem(sys.modules, use.library, None)
        result = run(*use.line) if "--database-url" in use.line else shell(*use.line)
        check(result, 2, f"pip install 'penstock-engine[{use.extra}]'")

    def test_missing_in_a_consumer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A consumer is a program of the user; it meets the error where it is declared."""
        monkeypatch.setitem(sys.modules, "google.cloud.firestore", None)
        with pytest.raises(SettingsError) as raised:
            Consumer("beats", sink="firestore:acme")
        assert "pip install 'penstock-engine[firestore]'" in raised.value.message

    def test_every_extra_is_here(self) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        extras = set(project["optional-dependencies"]) - {"dev"}
        assert extras == {use.extra for use in USES} | {"firestore"}


def test_demo_without_extras(bare: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """`penstock demo` of a plain installation plays the demo that needs nothing else."""
    monkeypatch.setitem(sys.modules, "duckdb", None)
    small = ("--seconds", "1", "--customers", "20", "--flood", "300")
    notice, _, rest = bare.ok("demo", *small).partition("\n")
    assert notice.startswith("This is the saas demo, because the nba demo needs duckdb")
    assert "pip install 'penstock-engine[duckdb]' (in a clone: pip install '.[duckdb]')" in notice
    assert "A day of many customers' schedules" in rest
    assert "No run was lost." in rest


def test_up_says_where_the_dashboard_is(tmp_path: Path) -> None:
    """The address that `penstock up` prints is that of the login page."""
    line = (sys.executable, "-m", "penstock", "up", "--port", "0", "--pipelines", SHOP)
    process = Process(*line, cwd=tmp_path)
    try:
        printed = process.wait_for(lambda text: text.startswith("  dashboard "))
        found = re.fullmatch(r"  dashboard  (http://127\.0\.0\.1:[1-9]\d+/)", printed)
        assert found is not None, printed
        with urllib.request.urlopen(found[1], timeout=60) as page:
            assert b"API key" in page.read()
        assert process.terminate() == 0
    finally:
        process.close()


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

    @pytest.mark.parametrize("command", ["up", "worker", "scheduler", "api"])
    def test_pipelines_without_their_option(self, command: str) -> None:
        check(run(command, "sales.py"), 2, "(sales.py). Did you mean --pipelines sales.py?")
        words = "(b.py c.py). Did you mean --pipelines a.py,b.py,c.py?"
        check(run(command, "--pipelines", "a.py", "b.py", "c.py"), 2, words)
        assert "separate several with commas" in " ".join(run(command, "--help").out.split())

    def test_other_arguments_are_no_pipelines(self, tmp_path: Path) -> None:
        assert "Did you mean" not in run("up", "now").err
        (tmp_path / "now.py").touch()
        check(run("up", "now"), 2, "Did you mean --pipelines now?")

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


OLD = """
import sys

class Imports:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "penstock":
            print(name)

sys.meta_path.insert(0, Imports())
sys.version_info = (3, 9, 2, "final", 0)
import penstock.cli
"""
SENTENCE = "Penstock needs Python 3.11 or newer, and this is {}: "
OLDEST_PARSED = (3, 7)
"""Oldest Python that knows what the files use, such as annotations that are not evaluated."""


def test_old_python() -> None:
    """Started from a clone by an old Python: a sentence instead of a syntax error."""
    done = subprocess.run([sys.executable, "-c", OLD], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(SENTENCE.format("3.9"))
    assert done.stderr.count("\n") == 1
    # What is imported before the version is compared must parse in an old Python.
    loaded = done.stdout.split()
    assert loaded[0] == "penstock"
    for name in loaded:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        ast.parse(Path(spec.origin).read_text("utf-8"), name, feature_version=OLDEST_PARSED)


@pytest.mark.parametrize("name", ["python3.7", "python3.8", "python3.9", "python3.10"])
def test_a_real_old_python(name: str) -> None:
    """The same with an old interpreter, if this machine has it."""
    path, version = next(versions(name), ("", ""))
    if not path:
        pytest.skip(f"there is no {name} on this machine")
    line = [path, "-B", "-m", "penstock", "--help"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    shown = ".".join(version.split(".")[:2])
    assert done.stderr.startswith(SENTENCE.format(shown)), done.stderr
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
