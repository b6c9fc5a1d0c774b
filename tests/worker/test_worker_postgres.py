"""The worker on PostgreSQL survives killed connections and a restarted server."""

import collections
import threading
from collections.abc import Iterator

import psycopg
import pytest

from penstock.audit.telemetry import RunEnded, ServiceError
from penstock.db.postgres.store import PostgresStore
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.store.leases import session_list
from penstock.testing.postgres.server import DatabaseServer, PostgresServer
from penstock.worker.context import RunContext
from tests.worker.kit import Running, run_of, submit

pytestmark = [pytest.mark.postgres, pytest.mark.chaos]


@pytest.fixture
def store(pg_dsn: str) -> Iterator[PostgresStore]:
    made = PostgresStore(pg_dsn)
    made.migrate()
    yield made
    made.close()


def kill_connections(dsn: str) -> int:
    """Kill every other connection of the database; return how many."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
    return len(rows)


def counting(name: str) -> tuple[Pipeline, collections.Counter[int]]:
    pipeline, seen = Pipeline(name), collections.Counter[int]()

    @pipeline.processor
    def work(run: RunContext) -> None:
        seen[run.held.run_id] += 1

    return pipeline, seen


def test_killed_connections_lose_and_duplicate_nothing(store: PostgresStore, pg_dsn: str) -> None:
    pipeline, seen = counting("killed")
    ids: list[int] = []
    for _ in range(3):
        ids += submit(store, pipeline, 1000)
    killed = 0
    with Running(store, [pipeline], batch_max=200) as running:
        # By progress, not by time: a busy machine would do nothing between two kills.
        for ended in range(100, 900, 100):
            killed += kill_connections(pg_dsn)
            running.events.until(RunEnded, ended)
        # An end whose response was lost is reported as refused, so ends cannot be counted.
        pause = threading.Event()
        for _ in range(3_000):
            if len(seen) == len(ids) and running.worker.steps.is_idle:
                break
            pause.wait(0.02)
    assert killed > 0
    assert set(seen) == set(ids)
    assert set(seen.values()) == {1}
    assert {run_of(store, run_id).state for run_id in ids} == {"COMPLETED"}
    assert store.read(session_list) == []


def test_the_worker_reconnects_after_a_server_restart(
    store: PostgresStore, pg_server: DatabaseServer
) -> None:
    if not isinstance(pg_server, PostgresServer):
        pytest.skip("a configured server is not ours to restart")
    pipeline, seen = counting("restarted")
    with Running(store, [pipeline]) as running:
        submit(store, pipeline, 5)
        running.events.until(RunEnded, 5)
        pg_server.stop("fast")
        running.events.until(ServiceError)
        pg_server.start()
        ids = submit(store, pipeline, 5)
        running.events.until(RunEnded, 10)
        assert [run_of(store, run_id).state for run_id in ids] == ["COMPLETED"] * 5
    assert set(seen.values()) == {1}
