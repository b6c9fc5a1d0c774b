"""NATS servers for tests: one process each, on a free port, in a folder of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

START_SECONDS = 30.0
PAYLOAD_BYTES = 12_000_000


def binary() -> str:
    """Return the server that comes with the test dependencies, or one on the path."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    assert found, "nats-server is missing: install the extra dev"
    return found


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class NatsServer:
    """A server that can be killed and started again on the same port and folder."""

    folder: Path
    port: int = field(default_factory=free_port)
    more: Sequence[str] = ()
    payload: int = PAYLOAD_BYTES
    _process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address for clients."""
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> NatsServer:
        """Start the server and wait until it accepts connections."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "server.conf"
        lines = [
            f"listen: 127.0.0.1:{self.port}",
            f"max_payload: {self.payload}",
            f'jetstream {{ store_dir: "{self.folder}/data" }}',
            *self.more,
        ]
        config.write_text("\n".join(lines) + "\n")
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            [binary(), "-c", str(config)], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        log.close()
        waiting = threading.Event()
        for _ in range(int(START_SECONDS / 0.02)):
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return self
            except OSError:
                assert self._process.poll() is None, (self.folder / "log").read_text()[-2_000:]
                waiting.wait(0.02)
        raise AssertionError("nats-server did not start")

    def kill(self) -> None:
        """Kill the server without notice."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One NATS server for the process; every rig has a prefix of its own."""
    server = NatsServer(tmp_path_factory.mktemp("nats")).start()
    yield server
    server.kill()
