"""A primary is killed and its synchronous standby promoted; every connection finds it by itself."""

import threading

import psycopg
import pytest

from penstock.assembly import settings
from penstock.assembly.database import open_store
from penstock.core.errors import StoreUnavailable
from penstock.db.postgres.connector import Connector
from penstock.db.postgres.store import PostgresStore
from penstock.testing.postgres.process import port_free
from penstock.testing.postgres.server import DatabaseServer
from tests.conftest import OpenStore
from tests.db.test_drivers import add, has
from tests.kits.standby import replicated_pair, urls_of, wait_for

pytestmark = [pytest.mark.postgres, pytest.mark.chaos]

WAITS = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
IS_LISTENING = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'penstock-listen'"


def test_failover() -> None:
    """Pool, reserved connection, wake-ups and new stores follow; acknowledged rows are there."""
    with replicated_pair() as (primary, standby):
        primary.create_database("failover")
        url = urls_of(primary, standby, "failover")
        chosen = settings.load({"PENSTOCK_DATABASE_URL": url})
        store = open_store(chosen, migrate="always")
        reserved = store.reserved()
        waiter = store.listen(["a"])
        add(store, "before")
        add(reserved, "reserved")
        wait_for(primary, IS_LISTENING)

        standby.stop()
        unknown: list[StoreUnavailable] = []

        def write() -> None:
            with pytest.raises(StoreUnavailable) as caught:
                add(store, "unknown")
            unknown.append(caught.value)

        writing = threading.Thread(target=write)
        writing.start()
        wait_for(primary, WAITS)
        with psycopg.connect(primary.dsn(), autocommit=True) as connection:
            connection.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
                               "WHERE wait_event = 'SyncRep'")  # fmt: skip
        writing.join(60)
        assert [one.ambiguous for one in unknown] == [True]
        assert "standby" in str(unknown[0])

        standby.start()
        wait_for(primary, "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
        add(store, "acknowledged")
        primary.kill()
        with pytest.raises(StoreUnavailable):
            add(store, "while down")
        standby.promote()
        for one in (store, reserved):
            add(one, "after")
            for name in ("before", "reserved", "acknowledged", "after"):
                assert has(one, name)
        wait_for(standby, IS_LISTENING)
        other = open_store(chosen)
        other.wake(["a"])
        assert waiter.wait(60)
        for one in (other, store):
            one.close()


@pytest.mark.parametrize("engine", ["postgres", "postgres-plain"], indirect=True)
def test_demoted_server(open_store: OpenStore) -> None:
    """A connection whose server no longer accepts writes is replaced; the write is not lost."""
    store = open_store(clock=None)
    assert isinstance(store, PostgresStore)
    add(store, "before")
    with store._pool.connection() as connection:
        connection.execute("SET default_transaction_read_only = on")
    add(store, "after")
    assert has(store, "after")
    with store._pool.connection() as connection:
        assert connection.execute("SHOW transaction_read_only").fetchone() == ("off",)


@pytest.mark.postgres
def test_read_only_server(
    pg_server: DatabaseServer, pg_migrated_dsn: str, pg_migrated_name: str
) -> None:
    """If no server accepts writes, they fail as unavailable; reads continue."""
    store, name = PostgresStore(pg_migrated_dsn), pg_migrated_name  # with new connections only
    add(store, "before")
    with psycopg.connect(pg_server.dsn(), autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        try:
            store._pool.forget_idle()
            with pytest.raises(StoreUnavailable, match="read-only"):
                add(store, "after")
            assert has(store, "before")
        finally:
            admin.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    add(store, "after")
    store.close()


def test_last_host_first(pg_server: DatabaseServer) -> None:
    """A dead host is passed over, and the host that accepted a connection is tried first."""
    with psycopg.connect(pg_server.dsn()) as direct:
        host, port = direct.info.host, direct.info.port
    dead = port_free()
    connector = Connector(f"postgresql://postgres@{host}:{dead},{host}:{port}/postgres", "trial")
    for _ in range(2):
        with connector.open("one") as connection:
            assert connection.info.port == port
            assert connection.info.get_parameters()["port"] == str(port)
            assert connection.info.get_parameters()["application_name"] == "trial-one"
    assert connector._last == 1
