"""The BigQuery emulator as a process, from the environment that `make test-gcp` makes."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENT = Path(os.environ.get("PENSTOCK_GCP_VENV", ROOT / ".venv-gcp"))
START_SECONDS = 60


class Emulator:
    """A running emulator; everything in it is gone when it ends."""

    def __init__(self, folder: Path) -> None:
        program = ENVIRONMENT / "bin" / "bqemulator"
        if not program.is_file():
            raise RuntimeError(f"there is no {program}: run `make test-gcp`")
        self.port, grpc_port = _free_port(), _free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        # DuckDB looks for its extensions below the home directory.
        home = {**os.environ, "HOME": str(ENVIRONMENT / "home")}
        self._log = (folder / "emulator.log").open("wb")
        self._process = subprocess.Popen(
            [str(program), "start", "--rest-port", str(self.port), "--grpc-port", str(grpc_port),
             "--log-level", "error"],
            env=home, stdout=self._log, stderr=subprocess.STDOUT, cwd=folder,
        )  # fmt: skip
        self._wait()

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait(60)
        self._log.close()

    def _wait(self) -> None:
        pause = threading.Event()
        for _ in range(START_SECONDS * 10):
            if self._process.poll() is not None:
                raise RuntimeError(f"the emulator ended: see {self._log.name}")
            try:
                with urllib.request.urlopen(
                    f"{self.address}/bigquery/v2/projects/acme/datasets", timeout=60
                ):
                    return
            except OSError:
                pause.wait(0.1)
        self.stop()
        raise RuntimeError(f"the emulator did not start: see {self._log.name}")


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port
