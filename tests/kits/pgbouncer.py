"""A real PgBouncer in front of a PostgreSQL server that a test launched.

`PENSTOCK_TEST_PGBOUNCER` names the program; otherwise it is looked up in the usual folders. Without
one the tests are skipped; `make test-pgbouncer` fetches Debian's package.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from penstock.testing.postgres.binaries import server_user
from penstock.testing.postgres.process import port_free
from penstock.testing.postgres.server import PostgresServer

PROGRAM_VARIABLE = "PENSTOCK_TEST_PGBOUNCER"
POOL_SIZE = 3
_POLLS_MAX = 3_000
_POLL_SECONDS = 0.02
_CONFIG = """
[databases]
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 200
"""


def pgbouncer_find() -> Path:
    """Return the program, or skip the test."""
    folders = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
    found = os.environ.get(PROGRAM_VARIABLE) or shutil.which("pgbouncer", path=folders)
    if not found:
        pytest.skip(f"no pgbouncer: install it, name it in {PROGRAM_VARIABLE}, or use the target")
    return Path(found).resolve()


@contextlib.contextmanager
def pgbouncer(server: PostgresServer, mode: str, size: int = POOL_SIZE) -> Iterator[int]:
    """Yield the port of a PgBouncer in front of the server."""
    program, port, user = pgbouncer_find(), port_free(), server_user()
    libraries = program.parent.parent / "lib" / "x86_64-linux-gnu"  # of an unpacked package
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        config = folder / "pgbouncer.ini"
        config.write_text(_CONFIG.format(server=server.port, port=port, mode=mode, size=size))
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(program), "--quiet", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=user.uid if user else None,
                group=user.gid if user else None,
                extra_groups=[] if user else None,
                env={"PATH": os.defpath, "LD_LIBRARY_PATH": str(libraries)},
            )
        try:
            _await(process, port, folder / "log")
            yield port
        finally:
            process.kill()
            process.wait()


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(_POLLS_MAX):
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres").close()
            return
        threading.Event().wait(_POLL_SECONDS)
    raise AssertionError(log.read_text())
