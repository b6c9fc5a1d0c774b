"""How many connections a process has: the formula of docs/operations/capacity.md."""

import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import psycopg
import pytest

from penstock.assembly.database import connect
from penstock.db.postgres.store import PostgresStore
from penstock.runs.records import Submission
from penstock.testing.postgres.process import port_free
from penstock.testing.postgres.server import DatabaseServer, PostgresServer
from tests.conftest import OpenStore
from tests.db.test_drivers import add, together
from tests.kits.standby import wait_for

POOL_SIZE = 4
OTHERS = 3
"""Beside the pool: wake-ups sent, wake-ups received, heartbeats of a worker."""
_COUNTS = (
    "SELECT application_name, count(*) FROM pg_stat_activity WHERE datname = %s "
    "AND application_name LIKE 'penstock%%' GROUP BY 1"
)
_PIPELINE = """
from penstock import Pipeline

brief = Pipeline("brief")


@brief.processor
def work(run):
    pass
"""

pytestmark = pytest.mark.postgres


def counts(dsn: str, database: str) -> dict[str, int]:
    """Return the number of connections to a database by name."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return {str(name): int(n) for name, n in connection.execute(_COUNTS, (database,))}


def _fill(store: PostgresStore, number: int) -> None:
    for n in range(5):
        add(store, f"c{number}-{n}")


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_store(open_store: OpenStore, pg_server: DatabaseServer) -> None:
    """A store has a pool up to its maximum, however many threads use it, and three more."""
    shared = open_store(clock=None)
    assert isinstance(shared, PostgresStore)
    dsn = shared._dsn
    store = PostgresStore(dsn, pool_max=POOL_SIZE)
    try:
        calls = [partial(_fill, store, n) for n in range(5 * POOL_SIZE)]
        assert together(*calls) == []
        waiter = store.listen(["a"])
        add(store.reserved(), "beat")
        for _ in range(1_200):
            shared.wake(["a"])
            store.wake(["b"])
            if waiter.wait(0.05):
                break
        found = counts(pg_server.dsn(), dsn.rpartition("/")[2])
        assert found["penstock-reserved"] == 1
        assert found["penstock-listen"] == 1
        store.close()
        left = counts(pg_server.dsn(), dsn.rpartition("/")[2])
        pooled = found["penstock"] - left.get("penstock", 0)
        assert 1 <= pooled <= POOL_SIZE
    finally:
        store.close()


@pytest.mark.slow
@pytest.mark.parametrize("role", ["up", "worker", "scheduler"])
def test_processes(role: str, tmp_path: Path) -> None:
    """A process under load has at most `pool_size` connections, three more, and one for vacuum."""
    pipelines = tmp_path / "brief.py"
    pipelines.write_text(_PIPELINE)
    more = {"up": ["--port", str(port_free())], "worker": ["--slots", "20"], "scheduler": []}
    with PostgresServer() as server:
        url = server.create_database("load")
        with connect(url):
            pass
        environment = {**os.environ, "PENSTOCK_DATABASE_URL": url}
        environment["PENSTOCK_POOL_SIZE"] = str(POOL_SIZE)
        command = [sys.executable, "-m", "penstock", role, "--pipelines", str(pipelines)]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command, *more[role]], env=environment, stdout=log, stderr=log, cwd=tmp_path
            )
        try:
            listening = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'penstock-listen'"
            wait_for(server, listening)
            if role != "scheduler":
                with connect(url) as client:
                    load = [Submission(pipeline="brief", customer=f"c{n}") for n in range(2_000)]
                    client.runs.submit_many(load)
            most: dict[str, int] = {}
            for _ in range(100):
                found = counts(server.dsn(), "load")
                most = {name: max(n, most.get(name, 0)) for name, n in {**most, **found}.items()}
                threading.Event().wait(0.05)
        finally:
            process.terminate()
            process.wait(60)
    sys.stdout.write(f"{role}: {most}\n")
    most.pop("penstock-vacuum", None)
    assert most.pop("penstock") <= POOL_SIZE
    assert sum(most.values()) <= OTHERS
    assert max(most.values()) == 1
