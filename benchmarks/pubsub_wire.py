"""Google's client library against the Pub/Sub front end, and against Google's emulator."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.result import Result, print_progress
from benchmarks.site import BenchDatabase, Site

FOLDER = Path("/usr/lib/google-cloud-sdk/platform/pubsub-emulator/lib")


def pubsub_wire(site: Site, *, quick: bool) -> Iterator[Result]:
    """Publish, deliver and ack through gRPC, in a process beside the server's."""
    n = 5_000 if quick else 40_000
    ordered = 1_000 if quick else 10_000
    place = site.create("pubsub_wire")
    with _front_end(place) as address:
        _client(address, "throughput", 500)
        through = _client(address, "throughput", n)
        kept = _client(address, "ordered", ordered)
    extra = {
        "published": through["published"],
        "ordered_n": ordered,
        "ordered_seconds": kept["seconds"],
        "nacked": kept["nacked"],
        "poison_attempts": len(kept["attempts"]),
    }
    jar = _jar()
    if jar is not None and site.engine == "sqlite":
        with _emulator(jar) as address:
            _client(address, "throughput", 500)
            extra["emulator"] = _client(address, "throughput", n)["rate"]
    yield Result(
        bench="pubsub_wire", engine=site.engine, value=through["rate"], unit="messages/s", n=n,
        extra=extra,
    )  # fmt: skip


def _client(address: str, mode: str, n: int) -> dict[str, Any]:
    environment = {**os.environ, "PUBSUB_EMULATOR_HOST": address}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.pubsub_client", mode, str(n)],
        env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=900,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print_progress(f"{mode} {n}: {found}")
    return found


@contextlib.contextmanager
def _front_end(place: BenchDatabase) -> Iterator[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")},
        "PENSTOCK_DATABASE_URL": place.url,
        "PENSTOCK_API_PORT": "0",
        "PENSTOCK_LOG_LEVEL": "error",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "api", "--pubsub-port", "0", "--json"],
        env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["pubsub"]
    finally:
        process.terminate()
        process.wait(30)


def _jar() -> str | None:
    found = sorted(FOLDER.glob("cloud-pubsub-emulator-*-all.jar"))
    return str(found[0]) if found and shutil.which("java") else None


@contextlib.contextmanager
def _emulator(jar: str) -> Iterator[str]:
    """Google's own emulator, which keeps messages in memory."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        ["java", "-jar", jar, "--host=127.0.0.1", f"--port={port}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "Server started" in line:
                break
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)
