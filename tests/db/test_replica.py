"""Reads that tolerate lag use a real streaming replica; everything else uses the primary."""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from penstock.assembly import settings
from penstock.assembly.database import open_store
from penstock.assembly.process import run_pending
from penstock.audit.telemetry import Events
from penstock.client import Client
from penstock.core.clock import SECOND
from penstock.core.errors import SettingsError, StoreUnavailable
from penstock.db.postgres.store import PostgresStore
from penstock.db.replica.check import RETRY_SECONDS, ReplicaCheck
from penstock.db.replica.reads import ReplicatedStore, lagging_reads
from penstock.db.store import Transactions, Tx
from penstock.monitoring.cli.doctor import _replica
from penstock.pipelines.declare.pipeline import Pipeline
from penstock.runs.records import Submission
from penstock.telemetry.process_metrics import ProcessMetrics
from penstock.telemetry.processor_names import ProcessorPath
from penstock.testing.clock import VirtualClock
from penstock.testing.postgres.server import PostgresServer
from penstock.worker.context import RunContext
from tests.kits.standby import replicated_pair, wait_for

START = 1_767_225_600 * SECOND
LAG_MAX = 5 * SECOND


class Positions:
    """A server that has reached a position, or is down."""

    def __init__(self) -> None:
        self.position = 0
        self.is_down = False

    def read(self, body: Callable[[Any], int]) -> int:
        if self.is_down:
            raise StoreUnavailable("down")
        return body(self)

    def rows(self, name: str) -> list[tuple[int]]:
        assert name == "wal_position"
        return [(self.position,)]


class TestCheck:
    """When a replica is used, by the positions of both servers."""

    def setup_method(self) -> None:
        self.clock = VirtualClock(START)
        self.primary, self.standby = Positions(), Positions()
        both: Any = (self.primary, self.standby)
        self.check = ReplicaCheck(*both, lag_max_us=LAG_MAX, clock=self.clock)

    def used_after(self, seconds: float) -> bool:
        self.clock.advance(seconds=seconds)
        return self.check.status().is_used

    def test_lag(self) -> None:
        """It is behind by the age of the last position that it has reached."""
        assert self.used_after(0)
        for second in range(1, 6):
            self.primary.position += 10
            assert self.used_after(1)
            assert self.check.status().lag_us == second * SECOND
        self.primary.position += 10
        assert not self.used_after(1)
        assert self.check.status().problem == "it is too far behind"
        self.standby.position = 40
        assert self.used_after(1)
        assert self.check.status().lag_us == 3 * SECOND
        self.standby.position = 60
        assert self.used_after(1)
        assert self.check.status().lag_us == 0

    def test_unknown(self) -> None:
        """A lag that was never measured is not assumed to be small."""
        self.primary.position = 10
        assert not self.used_after(0)
        assert self.check.status().lag_us is None
        self.standby.position = 10
        self.primary.position = 20
        assert self.used_after(1)

    @pytest.mark.parametrize("name", ["primary", "standby"])
    def test_down(self, name: str) -> None:
        """A server that does not answer is not asked again for a while."""
        assert self.used_after(0)
        server: Positions = getattr(self, name)
        server.is_down = True
        assert not self.used_after(1)
        server.is_down = False
        assert not self.used_after(1)
        assert self.used_after(RETRY_SECONDS)


def test_settings() -> None:
    """A replica of SQLite is refused, and so is a URL that cannot be used."""
    with pytest.raises(SettingsError, match="database_read_url"):
        settings.load({"PENSTOCK_DATABASE_READ_URL": "postgresql://b/x"})
    with pytest.raises(SettingsError, match="database_read_url"):
        settings.load({"PENSTOCK_DATABASE_READ_URL": "sqlite:a.db",
                       "PENSTOCK_DATABASE_URL": "postgresql://a/x"})  # fmt: skip


def work(run: RunContext) -> None:
    """Do nothing."""


def server_of(transactions: Transactions) -> str:
    """Return the kind of server that a read reaches, as the server itself says."""

    def body(tx: Tx) -> str:
        connection = tx._connection  # type: ignore[attr-defined]
        row = connection.execute("SELECT pg_is_in_recovery(), current_user").fetchone()
        assert row is not None
        return f"{'replica' if row[0] else 'primary'} {row[1]}"

    return transactions.read(body)


def read_all(client: Client) -> None:
    """Call use cases that tolerate lag, one of each group."""
    client.analytics.dependency_health()
    client.analytics.trends()
    client.analytics.end_to_end()
    client.tracking.find("acme")
    client.slos.list()
    client.anomalies.list()
    client.exports.page("runs")
    if client.customer_id is None:
        client.reviews.health()
        client.reviews.weekly()


@pytest.mark.postgres
@pytest.mark.chaos
@pytest.mark.slow
def test_replica() -> None:
    """Figures come from the replica, with its row-level security; if it stops, from the primary."""
    with replicated_pair(is_synchronous=False) as (primary, standby):
        url = primary.create_database("replica")
        chosen = settings.load(
            {"PENSTOCK_DATABASE_URL": url, "PENSTOCK_DATABASE_READ_URL": standby.dsn("replica")}
        )
        store = open_store(chosen, migrate="always")
        assert isinstance(store, ReplicatedStore)
        store.events = events = Events()
        metrics = ProcessMetrics(lambda _: ProcessorPath("one", "main", "work"))
        metrics.subscribe(events)
        pipeline = Pipeline("one")
        pipeline.processor("work")(work)
        client = Client(store)
        client.register([pipeline])
        client.runs.submit(Submission(pipeline="one", customer="acme"))
        assert run_pending(client, [pipeline]) == 1
        assert store.check.wait().is_used
        assert [one.verdict for one in _replica(client, chosen)] == ["OK"]
        wait_for(standby, f"SELECT 1 WHERE pg_last_wal_replay_lsn() >= '{position(primary)}'")
        for one in (client, client.scoped("acme")):
            read_all(one)
            user = "penstock_tenant" if one.customer_id else "postgres"
            assert server_of(lagging_reads(one.store)) == f"replica {user}"
            assert server_of(one.store) == f"primary {user}"
            assert one.runs.list().items
        wait_for(standby, "SELECT 1 FROM pg_stat_activity WHERE application_name = 'penstock-read'")
        shown = metrics.text().decode()
        assert 'penstock_replica_reads_total{server="replica"}' in shown
        assert 'penstock_replica_reads_total{server="primary"}' not in shown
        assert "penstock_replica_lag_seconds" in shown

        standby.stop()
        read_all(client)
        assert server_of(lagging_reads(store)) == "primary postgres"
        assert 'penstock_replica_reads_total{server="primary"}' in metrics.text().decode()
        store.close()
        standby.start()
        behind(url, standby)


def behind(url: str, standby: PostgresServer) -> None:
    """Stop the replay, and check that the primary is read until it continues."""
    clock = VirtualClock(START)
    store = ReplicatedStore(
        PostgresStore(url), PostgresStore(standby.dsn("replica")), lag_max_us=LAG_MAX, clock=clock
    )
    reads = store.lagging()
    assert server_of(reads) == "replica postgres"
    with psycopg.connect(standby.dsn(), autocommit=True) as connection:
        connection.execute("SELECT pg_wal_replay_pause()")
        store.write(lambda tx: tx.run("counter_raise", {"name": "trial", "value": 1}))
        clock.advance(seconds=60)
        assert server_of(reads) == "primary postgres"
        assert store.check.status().problem == "it is too far behind"
        connection.execute("SELECT pg_wal_replay_resume()")
    with psycopg.connect(url) as primary:
        row = primary.execute("SELECT pg_current_wal_lsn()").fetchone()
    assert row is not None
    wait_for(standby, f"SELECT 1 WHERE pg_last_wal_replay_lsn() >= '{row[0]}'")
    clock.advance(seconds=60)
    assert server_of(reads) == "replica postgres"
    store.close()


def position(server: PostgresServer) -> str:
    """Return the position that a primary has written."""
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        row = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
    assert row is not None
    return str(row[0])
