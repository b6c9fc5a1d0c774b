"""A shipper that is killed by the operating system, repeatedly, loses and doubles nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from penstock.client import Client
from penstock.db.sqlite.store import SqliteStore
from penstock.runs.records import Submission
from penstock.services.upkeep import Sealer
from penstock.shipping.client import SinkVerifier
from penstock.shipping.shipper import Shipper
from penstock.sinks.audit_parquet import ParquetSink
from tests.kits.client_harness import pipelines

RUNS = 40
ROOT = Path(__file__).parents[2]


def test_sigkill(tmp_path: Path) -> None:
    """SIGKILL before the rename of a file and before the link of an entry, at several batches."""
    file, folder = tmp_path / "penstock.db", tmp_path / "sink"
    store = SqliteStore(file)
    store.migrate()
    client = Client(store)
    client.register(pipelines())
    for _ in range(RUNS):
        client.runs.submit(Submission(pipeline="nightly", customer="acme"))
    Sealer(store, block=3).run_once()
    for step, number in (("rename", 1), ("link", 2), ("rename", 3), ("link", 1)):
        _kill_at(file, folder, step, number)
    sink = ParquetSink(folder)
    assert Shipper(store, sink, blocks=2, rows=3).run_once().rows > 0
    found = SinkVerifier(store, sink).run(len(sink.unlisted()))
    journal = found.logs[0]
    assert found.problems == []
    assert journal.rows == journal.compared == RUNS
    assert journal.batches >= 6
    assert found.unlisted_files == 2, "files that were killed between rename and link"
    store.close()


def _kill_at(file: Path, folder: Path, step: str, number: int) -> None:
    words = [sys.executable, "-m", "tests.shipping.victim", str(file), str(folder), step]
    with subprocess.Popen([*words, str(number)], stdout=subprocess.PIPE, cwd=ROOT) as victim:
        assert victim.stdout is not None
        try:
            assert victim.stdout.readline() == b"here\n"
        finally:
            victim.kill()
