"""Real PostgreSQL servers for tests and trials, launched from binaries; not for production.

`PostgresServer` launches a private server; `ConfiguredServer` uses a running one; `open_server`
chooses the second if `PENSTOCK_TEST_DATABASE_URL` is set. A launched server passes through these
states: new → running (`start`) → stopped (`stop`, `kill`) → running again (`start`, data kept) →
closed (`close`: processes ended, directory removed). Invariants: at most one postmaster per object;
`stop` and `close` may be called any number of times; no process outlives the test session, even one
ended by SIGKILL (a watchdog holds a pipe to this process and stops the server when it breaks).
"""

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Literal, Self

from penstock.testing.postgres.binaries import (
    PostgresUnavailable,
    binaries_copy_if_closed,
    binaries_find,
    is_open_to_others,
    server_user,
)
from penstock.testing.postgres.databases import (
    ConfiguredServer,
    DatabaseServer,
    database_accepts_connections,
    database_create,
    database_drop,
)
from penstock.testing.postgres.process import children_of, port_free, watchdog_start

__all__ = [
    "DATABASE_VARIABLE",
    "ConfiguredServer",
    "DatabaseServer",
    "PostgresServer",
    "PostgresUnavailable",
    "open_server",
    "server_dsn",
]

DATABASE_VARIABLE = "PENSTOCK_TEST_DATABASE_URL"

StopMode = Literal["smart", "fast", "immediate"]

_SUPERUSER = "postgres"
_POLL_SECONDS = 0.02
_START_POLLS_MAX = 3_000
_STOP_SECONDS_MAX = 30
_START_TRIES_MAX = 5
# A port taken in the meantime, or shared memory of a killed server that is not released yet.
_TRANSIENT_ERRORS = ("could not bind", "pre-existing shared memory block")
_SOCKET_PATH_BYTES_MAX = 90  # the system's limit is about 105, less the name of the socket
_SIGNALS: Mapping[StopMode, int] = {
    # smart waits for every client to disconnect, so a leftover LISTEN connection blocks it.
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": getattr(signal, "SIGQUIT", signal.SIGTERM),
}
_QUICK = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}
_DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}


class PostgresServer:
    """A private PostgreSQL server on 127.0.0.1, on `port` or a free one, with trust authentication.

    `durable` turns on fsync, synchronous commits and full-page writes (crash tests, benchmarks);
    without it, a database costs milliseconds. `options` are server settings and override every
    default. `bin_dir` is the directory of the binaries. `data_dir` keeps the data after `close`;
    the default is a temporary directory that `close` removes.
    """

    def __init__(
        self,
        *,
        durable: bool = False,
        options: Mapping[str, str | int] | None = None,
        bin_dir: Path | str | None = None,
        data_dir: Path | str | None = None,
        port: int | None = None,
    ) -> None:
        self._durable = durable
        self._options = {key: str(value) for key, value in (options or {}).items()}
        self._bin_origin = self._bin_dir = binaries_find(bin_dir)
        self._data_dir = Path(data_dir).resolve() if data_dir is not None else None
        self._base: Path | None = None
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._user = server_user()
        self._owner_pid = os.getpid()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def port(self) -> int:
        """The port, kept across `stop`, `kill` and `restart`."""
        if self._port is None:
            raise PostgresUnavailable("the server was never started: call start() first")
        return self._port

    @property
    def pid(self) -> int | None:
        """Process id of the postmaster, or None while the server is stopped."""
        return self._process.pid if self._process is not None else None

    def dsn(self, dbname: str = "postgres") -> str:
        """Return the connection URL of a database."""
        return server_dsn(self.port, dbname)

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database, as a copy of `template` if given, and return its URL."""
        database_create(self.dsn(), name, template)
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop a database and end its connections; do nothing if it does not exist."""
        database_drop(self.dsn(), name)

    def log(self) -> str:
        """Return the server's log so far."""
        path = self._base / "server.log" if self._base is not None else None
        return path.read_text(errors="replace") if path is not None and path.exists() else ""

    def start(self) -> None:
        """Create the cluster if necessary, start the server and wait until it accepts connections.

        Returns immediately if it is running. After `kill` this includes crash recovery.
        """
        if self._process is not None and self._process.poll() is None:
            return
        self._release()
        try:
            base = self._prepare()
            fixed_port = self._port
            for attempt in range(_START_TRIES_MAX):
                self._port = fixed_port or port_free()
                if self._launch(base):
                    return
                if not any(words in self.log()[-2_000:] for words in _TRANSIENT_ERRORS):
                    break
                threading.Event().wait(_POLL_SECONDS * 10 * (attempt + 1))
        except BaseException:
            self.close()
            raise
        tail = self.log()[-2_000:]
        self.close()
        raise PostgresUnavailable(f"PostgreSQL in {self._bin_dir} did not start; its log:\n{tail}")

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server and keep its data; do nothing if it is stopped."""
        if self._process is None or os.getpid() != self._owner_pid:
            return
        for number in (_SIGNALS[mode], _SIGNALS["immediate"]):
            if self._process.poll() is None:
                self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS_MAX)
                break
        else:
            self.kill()
        self._release()

    def kill(self) -> None:
        """Kill postmaster and backends with SIGKILL, like a crash; `start` then recovers."""
        if self._process is None or os.getpid() != self._owner_pid:
            return
        children = children_of(self._process.pid)
        self._process.kill()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._process.wait()
        self._release()

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start on the same port with the same data; connections break."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop the server and remove its temporary directory; calling it again does nothing."""
        if os.getpid() != self._owner_pid:
            return
        # Data that is removed immediately need not be flushed to disk.
        self.stop("fast" if self._data_dir is not None else "immediate")
        atexit.unregister(self.close)
        if self._base is not None:
            self._bin_dir = self._bin_origin
            shutil.rmtree(self._base, ignore_errors=True)
            self._base = None

    def _prepare(self) -> Path:
        """Create the private directory and the cluster inside it, once; return the directory."""
        if self._base is not None:
            return self._base
        base = self._base = Path(tempfile.mkdtemp(prefix="penstock-pg-")).resolve()
        atexit.register(self.close)
        data = self._data_dir or base / "data"
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._user is not None:
            kept = self._data_dir or base
            for folder, fix in ((base, "set TMPDIR to"), (kept, "keep the data in")):
                if not is_open_to_others(folder):
                    raise PostgresUnavailable(
                        "PostgreSQL refuses to run as root, so it runs as nobody, which cannot "
                        f"enter {folder.parent}: {fix} a folder that every user can enter"
                    )
            self._bin_dir = binaries_copy_if_closed(self._bin_dir, base / "install")
            for entry in (base, data, *data.rglob("*")):
                os.chown(entry, self._user.uid, self._user.gid)
        if not (data / "PG_VERSION").exists():
            self._initdb(data)
        return base

    def _initdb(self, data: Path) -> None:
        command = [str(self._bin_dir / "initdb"), "-D", str(data), "-U", _SUPERUSER]
        command += ["-A", "trust", "-E", "UTF8", "--locale=C"]
        if not self._durable:
            command.append("--no-sync")
        with self._spawn(command, subprocess.PIPE) as process:
            output = process.communicate()[0].decode(errors="replace")
        if process.returncode != 0:
            raise PostgresUnavailable(f"initdb of {self._bin_dir} failed:\n{output[-2_000:]}")

    def _launch(self, base: Path) -> bool:
        """Start the postmaster and wait; return False if it exited (its log says why)."""
        sockets = str(base) if len(os.fsencode(base)) <= _SOCKET_PATH_BYTES_MAX else ""
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": sockets,
            "max_connections": "200",
            "timezone": "UTC",
            **(_DURABLE if self._durable else _QUICK),
            **self._options,
            "port": str(self.port),
        }
        data = self._data_dir or base / "data"
        command = [str(self._bin_dir / "postgres"), "-D", str(data)]
        for key, value in settings.items():
            command += ["-c", f"{key}={value}"]
        with (base / "server.log").open("ab") as log:
            self._process = self._spawn(command, log)
        self._watchdog = watchdog_start(self._process.pid, base)
        for _ in range(_START_POLLS_MAX):
            if self._process.poll() is not None:
                self._release()
                return False
            if database_accepts_connections(self.dsn()):
                return True
            threading.Event().wait(_POLL_SECONDS)
        self.kill()
        return False

    def _spawn(self, command: list[str], output: int | IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a program in its own session, as `nobody` when running as root.

        Its own session keeps a terminal's Ctrl-C from reaching the server before the tests end.
        """
        user = self._user
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=self._base,
            start_new_session=True,
            user=user.uid if user else None,
            group=user.gid if user else None,
            extra_groups=[] if user else None,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
        )

    def _release(self) -> None:
        """Clear the ended postmaster and stop its watchdog."""
        self._process = None
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            watchdog.kill()
            watchdog.wait()
            if watchdog.stdin is not None:
                watchdog.stdin.close()


def server_dsn(port: int, dbname: str) -> str:
    """Return the connection URL of a database of a launched server."""
    return f"postgresql://{_SUPERUSER}@127.0.0.1:{port}/{dbname}"


@contextlib.contextmanager
def open_server(
    environ: Mapping[str, str] = os.environ, options: Mapping[str, str | int] | None = None
) -> Iterator[DatabaseServer]:
    """Yield the server named by `PENSTOCK_TEST_DATABASE_URL`, otherwise launch one with options."""
    url = environ.get(DATABASE_VARIABLE)
    if url:
        yield ConfiguredServer(url)
        return
    with PostgresServer(options=options) as server:
        yield server
