"""A served API for benchmarks: `penstock api` in a separate process."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.site import BenchDatabase
from penstock.client import Client
from penstock.pipelines.declare.pipeline import Pipeline

outside = Pipeline("outside")
outside.phase("main").external("push")


@dataclass(frozen=True, slots=True)
class Server:
    """Its port, and an admin key."""

    port: int
    key: str
    pid: int


@contextlib.contextmanager
def served(place: BenchDatabase, **settings: str) -> Iterator[Server]:
    """Serve the database until the block ends."""
    store = place.store()
    client = Client(store)
    client.register([outside])
    key = client.keys.create("bench", "admin", rate=1e5).key
    assert key is not None
    store.close()
    environment = {
        **{n: v for n, v in os.environ.items() if not n.startswith("PENSTOCK_")},
        "PENSTOCK_DATABASE_URL": place.url,
        "PENSTOCK_API_PORT": "0",
        "PENSTOCK_LOG_LEVEL": "error",
        **{f"PENSTOCK_{name.upper()}": value for name, value in settings.items()},
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "api", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        yield Server(int(started["api"].rpartition(":")[2]), key, process.pid)
    finally:
        process.terminate()
        process.wait(30)
