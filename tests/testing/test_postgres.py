"""The PostgreSQL launcher: starting, stopping, crashing, cleaning up, finding its binaries."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from penstock.testing.postgres.binaries import (
    binaries_copy_if_closed,
    binaries_find,
    binaries_of_debian,
    binaries_of_wheel,
    is_open_to_others,
)
from penstock.testing.postgres.server import (
    ConfiguredServer,
    DatabaseServer,
    PostgresServer,
    PostgresUnavailable,
    open_server,
)

pytestmark = pytest.mark.postgres

_ALL_BINARIES = [path for path in (binaries_of_wheel(), *binaries_of_debian()) if path is not None]


def ask(dsn: str, statement: str) -> object:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(statement.encode()).fetchone()
    return row[0] if row else None


def run(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(3_000):
        if condition():
            return
        threading.Event().wait(0.02)
    pytest.fail("the condition did not come true in a minute")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.mark.parametrize("bin_dir", _ALL_BINARIES, ids=lambda path: f"pg-in-{path.parent.name}")
def test_every_installed_version_starts_and_answers(bin_dir: Path) -> None:
    """Each set of binaries on this machine gives a working server."""
    with PostgresServer(bin_dir=bin_dir) as server:
        assert ask(server.dsn(), "SELECT 1 + 1") == 2
        assert ask(server.create_database("smoke"), "SELECT current_database()") == "smoke"


def test_a_database_copies_its_template(server: PostgresServer) -> None:
    """A database made from a template starts with the template's rows."""
    run(server.create_database("template_one"), "CREATE TABLE t AS SELECT 7 AS n")
    assert ask(server.create_database("copy_one", "template_one"), "SELECT n FROM t") == 7


def test_dropping_ends_connections_and_may_be_repeated(server: PostgresServer) -> None:
    """A dropped database is gone even with a client inside; dropping again is no error."""
    with psycopg.connect(server.create_database("doomed")) as inside:
        server.drop_database("doomed")
        server.drop_database("doomed")
        with pytest.raises(psycopg.OperationalError):
            inside.execute("SELECT 1")
    count = ask(server.dsn(), "SELECT count(*) FROM pg_database WHERE datname = 'doomed'")
    assert count == 0


def test_names_are_quoted(server: PostgresServer) -> None:
    """A database name is data, never SQL."""
    server.create_database('odd "name"; --')
    server.drop_database('odd "name"; --')


def test_quick_and_durable_differ_in_the_settings_that_cost_time() -> None:
    """A durable server syncs its commits, a quick one does not, and options override both."""
    settings = ("fsync", "synchronous_commit", "full_page_writes")
    with PostgresServer(durable=True, options={"work_mem": "7MB"}) as durable:
        values = [ask(durable.dsn(), f"SHOW {setting}") for setting in settings]
        assert values == ["on", "on", "on"]
        assert ask(durable.dsn(), "SHOW work_mem") == "7MB"
        assert ask(durable.dsn(), "SHOW max_connections") == "200"
    with PostgresServer(options={"max_connections": 20}) as quick:
        values = [ask(quick.dsn(), f"SHOW {setting}") for setting in settings]
        assert values == ["off", "off", "off"]
        assert ask(quick.dsn(), "SHOW max_connections") == "20"


def test_a_restart_keeps_port_and_data_and_breaks_connections(server: PostgresServer) -> None:
    """After a restart the same URL serves the same rows; clients must reconnect."""
    dsn = server.create_database("restarted")
    run(dsn, "CREATE TABLE t AS SELECT 1 AS n")
    with psycopg.connect(dsn) as connection:
        server.restart()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert ask(dsn, "SELECT n FROM t") == 1


def test_a_stop_does_not_wait_for_a_listening_client(server: PostgresServer) -> None:
    """A forgotten LISTEN connection does not hold up the default stop."""
    with psycopg.connect(server.dsn(), autocommit=True) as listener:
        listener.execute("LISTEN doorbell")
        server.stop()
        assert server.pid is None
    server.start()


@pytest.mark.chaos
def test_committed_rows_survive_a_kill() -> None:
    """Killed with clients connected and a transaction open, the server recovers what committed."""
    with PostgresServer(durable=True) as server:
        dsn = server.create_database("crashed")
        run(dsn, "CREATE TABLE t (n int)", "INSERT INTO t VALUES (1)")
        with psycopg.connect(dsn) as connection:
            connection.execute("INSERT INTO t VALUES (2)")
            server.kill()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
        server.start()
        assert ask(dsn, "SELECT sum(n) FROM t") == 1
        assert "was not properly shut down" in server.log()


def test_start_stop_and_close_may_be_repeated() -> None:
    """Starting a running server and stopping a stopped one do nothing."""
    server = PostgresServer()
    server.stop()
    server.close()
    server.start()
    first = server.pid
    server.start()
    assert server.pid == first
    server.stop()
    server.stop()
    server.kill()
    server.close()
    server.close()


def test_close_removes_the_folder_but_keeps_a_given_data_dir() -> None:
    """The temporary folder goes; data in a folder the caller named stays and can be reopened."""
    with PostgresServer() as outer:
        temporary = Path(str(ask(outer.dsn(), "SHOW data_directory"))).parent
        assert temporary.is_dir()
        kept = temporary.with_name(f"{temporary.name}-kept")
    assert not temporary.exists()
    try:
        with PostgresServer(data_dir=kept) as first:
            first.create_database("lasting")
        with PostgresServer(data_dir=kept) as second:
            assert ask(second.dsn("lasting"), "SELECT 1") == 1
    finally:
        shutil.rmtree(kept)


@pytest.mark.chaos
def test_no_server_outlives_a_killed_test_process() -> None:
    """Even SIGKILL of the process that launched it ends the server and removes its folder."""
    program = (
        "import sys; from penstock.testing.postgres.server import PostgresServer;"
        "s = PostgresServer();"
        "s.start(); print(s.port, s._base, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port, folder = process.stdout.readline().split()
        assert ask(f"postgresql://postgres@127.0.0.1:{port}/postgres", "SELECT 1") == 1
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_until(lambda: not Path(folder).exists())
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres", connect_timeout=2)


def test_a_failed_start_shows_the_servers_own_words_and_leaves_nothing() -> None:
    """A setting the server refuses appears in the error, and no folder stays behind."""
    server = PostgresServer(options={"shared_buffers": "nonsense"})
    with pytest.raises(PostgresUnavailable, match="shared_buffers"):
        server.start()
    assert server.pid is None


class TestBinaries:
    """Where the programs come from, and who may run them."""

    def test_a_named_folder_without_programs_is_refused(self, tmp_path: Path) -> None:
        """The error says who named the folder and what it lacks."""
        with pytest.raises(PostgresUnavailable, match=r"bin_dir .* no initdb and no postgres"):
            binaries_find(tmp_path)
        with pytest.raises(PostgresUnavailable, match="PENSTOCK_TEST_PG_BIN"):
            binaries_find(environ={"PENSTOCK_TEST_PG_BIN": str(tmp_path)})

    def test_the_argument_beats_the_environment_which_beats_the_wheel(self, tmp_path: Path) -> None:
        """The order is: argument, environment, wheel."""
        one, two = (self._fake_install(tmp_path / name) for name in ("one", "two"))
        environ = {"PENSTOCK_TEST_PG_BIN": str(two)}
        assert binaries_find(one, environ) == one
        assert binaries_find(environ=environ) == two
        assert binaries_find(environ={}) == _ALL_BINARIES[0]

    def test_debians_newest_version_is_chosen_by_number(self, tmp_path: Path) -> None:
        """Version 15 is newer than version 9, whatever the alphabet says."""
        for name in ("9", "15", "notes"):
            self._fake_install(tmp_path / name)
        folders = binaries_of_debian(tmp_path)
        assert [folder.parent.name for folder in folders] == ["15", "9"]

    def test_a_closed_tree_is_copied_and_an_open_one_is_not(self, tmp_path: Path) -> None:
        """Binaries below a private folder are copied to where every user can run them."""
        source = self._fake_install(tmp_path / "closed")
        (tmp_path / "closed").chmod(0o700)
        copy = binaries_copy_if_closed(source, tmp_path / "copy")
        assert copy.is_relative_to(tmp_path / "copy")
        assert (copy / "postgres").stat().st_mode & 0o055 == 0o055
        assert is_open_to_others(Path("/usr"))
        assert not is_open_to_others(source / "postgres")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
    def test_root_can_use_binaries_below_a_private_folder(self, tmp_path: Path) -> None:
        """A virtual environment in a 0700 home still gives a server."""
        install = _ALL_BINARIES[0].parent
        package = install.parent
        private = tmp_path / "closed" / package.name / install.name
        private.parent.mkdir(parents=True)
        shutil.copytree(install, private, symlinks=True)
        if (libraries := package.with_name(f"{package.name}.libs")).is_dir():
            shutil.copytree(libraries, tmp_path / "closed" / libraries.name)
        (tmp_path / "closed").chmod(0o700)
        with PostgresServer(bin_dir=private / "bin") as server:
            assert ask(server.dsn(), "SELECT 1") == 1

    def _fake_install(self, root: Path) -> Path:
        folder = root / "bin"
        folder.mkdir(parents=True)
        for name in ("initdb", "postgres"):
            (folder / name).touch(mode=0o700)
        return folder


class TestConfigured:
    """A server named by the environment is used instead of a launched one."""

    def test_the_environment_names_the_server(self, server: PostgresServer) -> None:
        """Databases are made on the configured server, credentials and parameters kept."""
        url = server.dsn() + "?application_name=ours"
        with open_server({"PENSTOCK_TEST_DATABASE_URL": url}) as configured:
            assert isinstance(configured, ConfiguredServer)
            dsn = configured.create_database("configured_one")
            assert ask(dsn, "SELECT current_database()") == "configured_one"
            assert ask(dsn, "SHOW application_name") == "ours"
            configured.drop_database("configured_one")

    def test_fixtures_give_each_test_its_own_database(
        self, pg_server: DatabaseServer, pg_dsn: str
    ) -> None:
        """The `pg_dsn` database is new and is not the maintenance database."""
        assert ask(pg_dsn, "SELECT count(*) FROM pg_class WHERE relname = 't'") == 0
        assert pg_dsn != pg_server.dsn()
