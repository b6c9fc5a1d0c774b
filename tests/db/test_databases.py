"""A database used by a test is returned as the migrations left it, or dropped."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from penstock.db.postgres.store import PostgresStore
from penstock.testing.clock import VirtualClock
from penstock.testing.postgres.server import DatabaseServer
from tests.kits.databases import WORN_BYTES, Admin, Databases, _fingerprint, database_name
from tests.tenancy.tenants import Tenants

pytestmark = pytest.mark.postgres

NAMES = """
SELECT relname::text, relkind::text FROM pg_class
WHERE relkind IN ('r', 'S') AND relnamespace = 'public'::regnamespace
"""

Contents = dict[str, list[tuple[object, ...]]]


@pytest.fixture(scope="module")
def databases(pg_server: DatabaseServer, pg_admin: Admin, pg_template: str) -> Iterator[Databases]:
    """A pool of this module's own: its free databases were returned by these tests."""
    made = Databases(pg_server, pg_admin, pg_template)
    yield made
    made.close()


def run(server: DatabaseServer, name: str, *texts: str) -> None:
    """Run statements one by one."""
    with psycopg.connect(server.dsn(name), autocommit=True) as connection:
        for text in texts:
            connection.execute(text.encode())


def contents(server: DatabaseServer, name: str) -> Contents:
    """Return all rows of all tables, and the positions of all sequences."""
    with psycopg.connect(server.dsn(name), autocommit=True) as connection:
        return {
            relation: sorted(
                connection.execute(
                    f"SELECT {'last_value, is_called' if kind == 'S' else '*'} FROM {relation}"
                ).fetchall(),
                key=repr,
            )
            for relation, kind in connection.execute(NAMES).fetchall()
        }


def test_a_template_that_was_analyzed(
    pg_server: DatabaseServer, pg_admin: Admin, pg_template: str
) -> None:
    """Clones that it makes afterwards are kept too: autovacuum may analyze it at any time."""
    template = f"{database_name()}_analyzed"
    pg_admin.execute(f"CREATE DATABASE {template} TEMPLATE {pg_template}")
    made = Databases(pg_server, pg_admin, template)
    for _ in range(2):
        with made.lent():
            pass
    assert made.clones == 1
    made.close()
    run(pg_server, template, "ANALYZE")
    for _ in range(2):
        with made.lent():
            pass
    assert made.clones == 2
    made.close()
    pg_server.drop_database(template)


def test_rows_sequences_and_weeks(
    databases: Databases, pg_server: DatabaseServer, clock: VirtualClock
) -> None:
    """Rows of two customers, moved sequences, new partitions: the next test sees none of it."""
    with databases.lent() as name:
        before, new = databases.clones, contents(pg_server, name)
        store = PostgresStore(pg_server.dsn(name), clock)
        tenants = Tenants(store, clock)
        tenants.harness.sql("SELECT ensure_partitions(1763337600000000, 4)")
        tenants.harness.sql("SELECT nextval(seqrelid) FROM pg_sequence")
        tenants.harness.sql("UPDATE counters SET value = value + 1")
        store.close()
        used = contents(pg_server, name)
    changed = {relation for relation in used if used[relation] != new.get(relation)}
    weeks = used.keys() - new.keys()
    sequences = {relation for relation in new if relation.endswith("_seq")}
    assert len(weeks) >= 20, "made here"
    assert sequences <= changed, "each was moved"
    assert "counters" in changed, "rows of the migrations were changed"
    assert len(changed - weeks - sequences) >= 40, "most tables had rows"
    with databases.lent() as again:
        assert contents(pg_server, again) == new
        assert again != name
    assert databases.clones == before, "it was the same database"


def test_changes_are_seen(databases: Databases, pg_server: DatabaseServer) -> None:
    """The fingerprint of a database that was altered differs; rolled back, it is as before."""
    with (
        databases.lent() as name,
        psycopg.connect(pg_server.dsn(name), autocommit=True) as connection,
    ):
        clean = _fingerprint(connection)
        for text in (
            "ALTER TABLE runs DISABLE ROW LEVEL SECURITY",
            "ALTER TABLE runs ALTER COLUMN priority SET DEFAULT 7",
            "DROP TABLE alerts CASCADE",
            "DROP TABLE messages_rest",
            "CREATE FUNCTION more() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
            "CREATE OR REPLACE FUNCTION db_now() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
            "CREATE SCHEMA more",
            "CREATE TYPE more AS ENUM ('a')",
            "GRANT SELECT ON counters TO PUBLIC",
            "GRANT CREATE ON SCHEMA public TO PUBLIC",
            f"ALTER DATABASE {name} SET statement_timeout = 1",
            f"ALTER DATABASE {name} CONNECTION LIMIT 3",
        ):
            connection.execute("BEGIN")
            connection.execute(text.encode())
            assert _fingerprint(connection) != clean, text
            connection.execute("ROLLBACK")
            assert _fingerprint(connection) == clean, text


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE runs ADD COLUMN more integer",
        "CREATE INDEX more ON runs (priority)",
        "ANALYZE counters",
        "INSERT INTO outbox (topic, payload, created_at) "
        f"SELECT 't', 'x', n FROM generate_series(1, {WORN_BYTES // 50}) n",
    ],
)
def test_changed_databases_are_dropped(
    databases: Databases, pg_server: DatabaseServer, text: str
) -> None:
    """A database that was altered, analysed or used too often is not lent again."""
    with databases.lent() as name:
        before, new = databases.clones, contents(pg_server, name)
        run(pg_server, name, text)
    with databases.lent() as again:
        assert contents(pg_server, again) == new
    assert databases.clones == before + 1


def test_additional_tables(databases: Databases, pg_server: DatabaseServer) -> None:
    """Tables created by a test are dropped, whatever their foreign keys."""
    with databases.lent() as name:
        before, new = databases.clones, contents(pg_server, name)
        run(
            pg_server,
            name,
            "CREATE TABLE more (a bigserial PRIMARY KEY)",
            "CREATE TABLE most (a bigint REFERENCES more) PARTITION BY LIST (a)",
            "CREATE TABLE most_rest PARTITION OF most DEFAULT",
            "INSERT INTO more DEFAULT VALUES",
        )
    with databases.lent() as again:
        assert contents(pg_server, again) == new
    assert databases.clones == before


def test_connections_left_open(databases: Databases, pg_server: DatabaseServer) -> None:
    """Open connections are terminated, with their locks, and cannot reconnect."""
    with databases.lent() as name:
        before = databases.clones
        left = psycopg.connect(pg_server.dsn(name))
        left.execute("SELECT pg_advisory_lock(7)")
        left.execute("LOCK TABLE runs")
    with pytest.raises(psycopg.OperationalError):
        left.execute("SELECT 1")
    left.close()
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(pg_server.dsn(name))
    with databases.lent() as again:
        run(
            pg_server,
            again,
            "SET lock_timeout = '1s'",
            "SELECT pg_advisory_lock(7)",
            "DELETE FROM runs",
        )
    assert databases.clones == before, "it was the same database"


def test_new_databases(databases: Databases) -> None:
    """A request for a new database gets one, even if another is free."""
    with databases.lent():
        pass
    before = databases.clones
    with databases.lent(new=True):
        assert databases.clones == before + 1
    with databases.lent(), databases.lent():
        assert databases.clones == before + 1, "both are free again"


class TestWarmConnections:
    """A store leaves its connections to the next one, reset."""

    DIRTY = (
        "SET enable_seqscan = on",
        "SET ROLE penstock_tenant",
        "SELECT pg_advisory_lock(7)",
        "CREATE TEMP TABLE more (n integer)",
        "LISTEN more",
    )
    STATE = """
    SELECT current_setting('enable_seqscan'), current_user,
        (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
        to_regclass('more')::text, (SELECT count(*) FROM pg_listening_channels())
    """

    @staticmethod
    def opened(databases: Databases, server: DatabaseServer, name: str) -> PostgresStore:
        return databases.warm(name).lent(PostgresStore(server.dsn(name)))

    def test_sessions_are_reset(self, databases: Databases, pg_server: DatabaseServer) -> None:
        """The next test gets the session without settings, role, locks, tables or channels."""
        with databases.lent(new=True) as name:
            store = self.opened(databases, pg_server, name)
            with store._pool.connection() as connection:
                first = connection.info.backend_pid
                clean = connection.execute(self.STATE.encode()).fetchone()
                for text in reversed(self.DIRTY):
                    connection.execute(text.encode())
                assert connection.execute(self.STATE.encode()).fetchone() != clean
            store.close()
        with databases.lent() as name:
            store = self.opened(databases, pg_server, name)
            with store._pool.connection() as connection:
                assert connection.info.backend_pid == first, "it is the same session"
                assert connection.execute(self.STATE.encode()).fetchone() == clean
            store.close()

    def test_what_is_not_idle_is_ended(
        self, databases: Databases, pg_server: DatabaseServer
    ) -> None:
        """A connection that a test left in use, or that the server ended, is not used again."""
        with databases.lent(new=True) as name:
            store = self.opened(databases, pg_server, name)
            with store._pool.connection() as kept, store._pool.connection() as ended:
                pids = {kept.info.backend_pid, ended.info.backend_pid}
                run(pg_server, name, f"SELECT pg_terminate_backend({ended.info.backend_pid})")
                store.close()
        with databases.lent() as name:
            store = self.opened(databases, pg_server, name)
            with store._pool.connection() as connection:
                assert connection.info.backend_pid not in pids
            store.close()
