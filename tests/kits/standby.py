"""A streaming standby of a PostgreSQL server that a test launched, copied with pg_basebackup."""

import contextlib
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg

from penstock.testing.postgres.binaries import PostgresUnavailable
from penstock.testing.postgres.server import PostgresServer

REPLICATED = {"wal_level": "replica", "max_wal_senders": "4", "synchronous_commit": "on"}
"""Options of a primary that standbys can follow."""
NAME = "standby"
_POLLS_MAX = 3_000
_POLL_SECONDS = 0.02


class StandbyServer(PostgresServer):
    """A copy of another server that follows it, until it is promoted."""

    def __init__(
        self,
        primary: PostgresServer,
        *,
        durable: bool = False,
        options: Mapping[str, str | int] | None = None,
    ) -> None:
        super().__init__(durable=durable, options={**REPLICATED, **(options or {})})
        self._primary = primary

    def _initdb(self, data: Path) -> None:
        """Copy the primary instead of creating a cluster; it stays configured to follow it."""
        place = f"host=127.0.0.1 port={self._primary.port} user=postgres application_name={NAME}"
        command = [str(self._bin_dir / "pg_basebackup"), "-d", place, "-D", str(data)]
        command += ["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
        with self._spawn(command, subprocess.PIPE) as process:
            output = process.communicate()[0].decode(errors="replace")
        if process.returncode != 0:
            raise PostgresUnavailable(f"pg_basebackup failed:\n{output[-2_000:]}")

    def promote(self) -> None:
        """Make it a primary, and wait until it accepts writes."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute("SELECT pg_promote(true, 60)")


def urls_of(first: PostgresServer, second: PostgresServer, database: str) -> str:
    """Return the URL of a database on either server."""
    hosts = f"127.0.0.1:{first.port},127.0.0.1:{second.port}"
    return f"postgresql://postgres@{hosts}/{database}?target_session_attrs=read-write"


def wait_for(server: PostgresServer, condition: str) -> None:
    """Wait until a SELECT returns a row on a server."""
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        for _ in range(_POLLS_MAX):
            if connection.execute(condition).fetchone():
                return
            threading.Event().wait(_POLL_SECONDS)
    raise AssertionError(f"never true: {condition}")


def require_standby(primary: PostgresServer, standby: PostgresServer) -> None:
    """Make commits of the primary wait for the standby."""
    with psycopg.connect(primary.dsn(), autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{NAME}'")
        connection.execute("SELECT pg_reload_conf()")
    assert standby.pid is not None
    wait_for(primary, "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'")


@contextlib.contextmanager
def replicated_pair(
    *, durable: bool = False, is_synchronous: bool = True
) -> Iterator[tuple[PostgresServer, StandbyServer]]:
    """Yield a primary and a standby that follows it."""
    with (
        PostgresServer(durable=durable, options=REPLICATED) as primary,
        StandbyServer(primary, durable=durable) as standby,
    ):
        if is_synchronous:
            require_standby(primary, standby)
        yield primary, standby
