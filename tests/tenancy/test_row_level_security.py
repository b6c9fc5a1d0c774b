"""Tenant isolation in the database itself: every table, missing and forged settings, writes.

The privileges of a tenant transaction are read from the catalog: a new table fails here until it
has a policy, or is listed below as one without customers' rows.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from penstock.access.api_keys import Role
from penstock.access.client.keys import Principal
from penstock.client import Client
from penstock.core.errors import StoreError
from penstock.core.naming import CustomerKey
from penstock.db.postgres.store import PostgresStore
from penstock.db.scoped import tenant_statements
from penstock.db.store import Single, Store
from penstock.db.tenant_isolation import TenantIsolation, tenant_isolation_get
from penstock.runs.records import Submission
from penstock.testing.clock import VirtualClock
from penstock.testing.postgres.server import DatabaseServer
from tests.conftest import CLOCK_START
from tests.kits.client_harness import pipelines
from tests.kits.databases import Admin
from tests.kits.dump import raw, tables
from tests.tenancy.tenants import Tenants, dsn_as, plain_user

pytestmark = pytest.mark.postgres

NOBODYS = {
    "alert_changes": {"INSERT"},
    "cadences": {"SELECT", "INSERT"},
    "cohort_sums": {"INSERT"},
    "counters": {"SELECT"},
    "definitions": {"SELECT"},
    "freshness": set[str](),
    "outbox": {"INSERT"},
    "pipelines": {"SELECT"},
    "pools": {"SELECT"},
    "processors": {"SELECT"},
    "revisions": {"SELECT"},
    "run_sums": {"INSERT"},
    "schema_migrations": set[str](),
    "shipments": set[str](),
}
"""Tables without customers' rows, or insert-only ones, with the privileges of a tenant."""
CLOSED = {
    "alert_channels", "alert_conditions", "alert_notice_items", "alert_notices", "alert_rules",
    "backlog_samples", "pool_minutes", "process_minutes",
    "api_keys", "clusters", "logins", "seals", "secrets", "sessions",
}  # fmt: skip
"""Row-level security without a policy: a tenant never sees a row of these."""
SHARED = {
    "pauses": "scope IN ('all', 'pipeline')",
    **dict.fromkeys(
        ("turns", "fair_ranks", "topics", "limits", "limit_leases", "limit_tickets", "run_limits",
         "limit_history", "limit_capacities", "slo_targets"),
        "customer = 0",
    ),
}  # fmt: skip
"""Rows that every tenant sees: the fairness clock, global pauses, system topics, system limits.

A tenant also sees who holds system limits.
"""
PRIVILEGES = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")


KINDS = ("postgres", "plain")


@pytest.fixture(params=KINDS)
def tenants(request: pytest.FixtureRequest, clock: VirtualClock) -> Iterator[Tenants]:
    """Two customers, on a database of a superuser or of an ordinary user."""
    fixture = "pg_plain_dsn" if request.param == "plain" else "pg_migrated_dsn"
    store = PostgresStore(request.getfixturevalue(fixture), clock)
    yield Tenants(store, clock)
    store.close()


@pytest.fixture(scope="module", params=KINDS)
def unchanged(request: pytest.FixtureRequest, pg_server: DatabaseServer) -> Iterator[Tenants]:
    """The same for all tests that change nothing."""
    clock = VirtualClock(CLOCK_START)
    with contextlib.ExitStack() as stack:
        if request.param == "plain":
            user, databases = request.getfixturevalue("pg_plain")
            dsn = dsn_as(pg_server.dsn(stack.enter_context(databases.lent())), user)
        else:
            databases = request.getfixturevalue("pg_databases")
            dsn = pg_server.dsn(stack.enter_context(databases.lent()))
        store = PostgresStore(dsn, clock)
        stack.callback(store.close)
        yield Tenants(store, clock)


def guarded(store: Store) -> list[str]:
    """Return the tables with a policy for tenants."""
    text = (
        "SELECT DISTINCT c.relname::text FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid "
        "JOIN pg_roles r ON r.oid = ANY(p.polroles) WHERE r.rolname = 'penstock_tenant' "
        "AND c.relrowsecurity ORDER BY 1"
    )
    return [row[0] for row in raw(store, text)]


def as_tenant(store: Store, setting: str | None, text: str) -> list[Any]:
    """Run SQL as the tenant role with an arbitrary setting, like an attacker would."""
    begin = "SET LOCAL ROLE penstock_tenant"
    if setting is not None:
        begin += f"; SET LOCAL penstock.customer = '{setting}'"

    def body(tx: Any) -> list[Any]:
        tx._connection.execute(begin)
        cursor = tx._connection.execute(text)
        return list(cursor.fetchall()) if cursor.description else []

    return store.write(body)


def test_every_table_is_accounted_for(unchanged: Tenants) -> None:
    """A table has a policy, or row-level security without a policy, or no customers' rows."""
    store = unchanged.store
    known = set(guarded(store)) | CLOSED | set(NOBODYS)
    assert set(tables(store)) == known
    assert not set(guarded(store)) & (CLOSED | set(NOBODYS))
    secured = {row[0] for row in raw(store, "SELECT relname FROM pg_class WHERE relrowsecurity")}
    assert secured == set(guarded(store)) | CLOSED


def test_privileges(unchanged: Tenants) -> None:
    """Tables without customers' rows are open only as far as stated; partitions are closed."""

    def may(table: str, word: str) -> bool:
        text = f"SELECT has_table_privilege('penstock_tenant', '{table}', '{word}')"
        return bool(raw(unchanged.store, text)[0][0])

    for table, allowed in NOBODYS.items():
        assert {word for word in PRIVILEGES if may(table, word)} == allowed, table
    for table in guarded(unchanged.store):
        for word in ("TRUNCATE", "REFERENCES", "TRIGGER"):
            assert not may(table, word), (table, word)
    parts = raw(unchanged.store, "SELECT relname::text FROM pg_class WHERE relispartition "
                               "AND relkind = 'r'")  # fmt: skip
    assert parts
    for (part,) in parts:
        with pytest.raises(StoreError, match="permission denied"):
            as_tenant(unchanged.store, str(unchanged.acme.number), f"SELECT 1 FROM {part}")


def test_rows(unchanged: Tenants) -> None:
    """Each tenant sees rows in every guarded table, and never a row of another tenant."""
    for table in guarded(unchanged.store):
        shared = SHARED.get(table, "FALSE")
        text = f"SELECT tableoid::text, ctid::text FROM {table} WHERE NOT ({shared})"
        acme = set(as_tenant(unchanged.store, str(unchanged.acme.number), text))
        bravo = set(as_tenant(unchanged.store, str(unchanged.bravo.number), text))
        everything = set(raw(unchanged.store, text))
        assert not acme & bravo, table
        assert acme | bravo <= everything, table
        if table not in ("customer_days", "nudges", "turns"):
            assert acme, table
            assert bravo, table
        if table not in ("journal", "turns", "fair_ranks"):
            assert acme | bravo == everything, table


def test_closed_tables(tenants: Tenants) -> None:
    """Keys, secrets, sessions and seals are invisible to a tenant."""
    tenants.client.keys.create("k", Role.ADMIN, customer="acme")
    tenants.client.keys.server_secret("s")
    tenants.harness.session()
    number = str(tenants.acme.number)
    for table in CLOSED - {"sessions"}:
        with pytest.raises(StoreError, match="permission denied"):
            as_tenant(tenants.store, number, f"SELECT 1 FROM {table}")
    assert as_tenant(tenants.store, number, "SELECT 1 FROM sessions") == []


@pytest.mark.parametrize("setting", [None, "", "0", "-1", "999999"])
def test_missing_and_wrong_settings(unchanged: Tenants, setting: str | None) -> None:
    """Without a customer, or with an unknown one, no row is visible."""
    for table in guarded(unchanged.store):
        shared = SHARED.get(table, "FALSE")
        text = f"SELECT count(*) FROM {table} WHERE NOT ({shared})"
        assert as_tenant(unchanged.store, setting, text) == [(0,)], table


def test_nonsense_settings(unchanged: Tenants) -> None:
    """A setting that is not a number is an error and opens nothing."""
    for setting in ("x", "1 OR TRUE", "1.5"):
        with pytest.raises(psycopg.Error):
            as_tenant(unchanged.store, setting, "SELECT * FROM runs")


@pytest.mark.parametrize("customer", [0, -1, True, "1", None, 1.5, "1'; RESET ROLE; --"])
def test_only_customer_keys_become_sql(customer: Any) -> None:
    """The text sent with BEGIN is built from a customer key and nothing else."""
    with pytest.raises(ValueError, match="customer key"):
        tenant_statements(customer)


def test_roles_do_not_leak(unchanged: Tenants) -> None:
    """Tenant and other transactions share connections, but never the role."""
    who = (
        "SELECT current_user::text, current_setting('penstock.customer', true), count(*) FROM runs"
    )
    plain = raw(unchanged.store, who)
    for _ in range(3):
        confined = raw(unchanged.store.scoped(CustomerKey(unchanged.acme.number)), who)
        assert confined[0][:2] == ("penstock_tenant", str(unchanged.acme.number))
        after = raw(unchanged.store, who)
        assert (after[0][0], after[0][2]) == (plain[0][0], plain[0][2])
        assert after[0][1] in (None, "")
        with pytest.raises(psycopg.Error):
            raw(unchanged.store.scoped(CustomerKey(unchanged.acme.number)), "SELECT 1 / 0")


@pytest.mark.parametrize(("pool_max", "connections"), [(1, 1), (2, 2), (10, 2)])
def test_connections_keep_their_kind(pg_migrated_dsn: str, pool_max: int, connections: int) -> None:
    """Tenant transactions have a connection of their own, as far as the limit allows."""
    store = PostgresStore(pg_migrated_dsn, pool_max=pool_max)
    kinds = (store, store.scoped(CustomerKey(1)))
    seen = [[raw(view, "SELECT pg_backend_pid()")[0][0] for view in kinds] for _ in range(5)]
    assert len(set(map(tuple, seen))) == 1
    assert len(set(seen[0])) == connections
    store.close()


def test_bodies_of_one_statement(unchanged: Tenants) -> None:
    """A body that needs no BEGIN of its own is restricted like any other."""

    def body(tx: Any) -> Any:
        return tx._connection.execute("SELECT current_user::text").fetchone()[0]

    assert (
        unchanged.store.scoped(CustomerKey(unchanged.acme.number)).write(Single(body))
        == "penstock_tenant"
    )
    assert unchanged.store.write(Single(body)) != "penstock_tenant"


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE runs SET customer = {other}",
        "UPDATE configs SET customer = {other}",
        "INSERT INTO audit (customer, n, at, action, actor, previous, hash) "
        "VALUES ({other}, 99, 1, 'X', 'x', '', '')",
        "INSERT INTO journal (at, kind, subject, customer, action, actor) "
        "VALUES (1, 'run', 1, {other}, 'x', 'x')",
        "INSERT INTO journal (at, kind, subject, action, actor) VALUES (1, 'run', 1, 'x', 'x')",
        "INSERT INTO pauses VALUES ('all', 0, 1, 'x', '')",
        "INSERT INTO pauses VALUES ('customer', {other}, 1, 'x', '')",
        "INSERT INTO pauses VALUES ('config', {config}, 1, 'x', '')",
        "INSERT INTO requests VALUES ('submit:x', 'k', '', NULL, 1, 1)",
        "INSERT INTO requests VALUES ('customer:{other}:x', 'k', '', NULL, 1, 1)",
        "INSERT INTO leases VALUES ('run', {run}, 9999, 'x', 1)",
        "INSERT INTO leases VALUES ('delivery', 1, 1, 'x', 1)",
        "INSERT INTO fair_ranks VALUES (1, 1, {other}, 5)",
        "INSERT INTO customers (customer_id, created_at) VALUES ('new', 1)",
        "UPDATE customers SET customer_id = 'x'",
        "DELETE FROM audit",
        "DELETE FROM journal",
        "DELETE FROM configs",
        "UPDATE audit SET reason = 'x'",
        "UPDATE history SET result = 'x'",
        "INSERT INTO pipelines (name, digest, definition, has_flow, updated_at) "
        "VALUES ('x', '', '', FALSE, 1)",
        "TRUNCATE runs",
        "ALTER TABLE runs DISABLE ROW LEVEL SECURITY",
        "SELECT drop_partitions('history', 9223372036854775807)",
    ],
)  # fmt: skip
def test_refused_writes(unchanged: Tenants, text: str) -> None:
    """A tenant cannot write for another customer, nor change append-only rows."""
    other = unchanged.bravo
    wanted = text.format(other=other.number, config=other.config_id, run=other.waiting)
    with pytest.raises((psycopg.Error, StoreError)):
        as_tenant(unchanged.store, str(unchanged.acme.number), wanted)


def test_writes_touch_own_rows_only(tenants: Tenants) -> None:
    """Updates and deletes without any filter leave other customers' rows unchanged."""
    bravo = tenants.bravo.number
    tables_of = ("runs", "configs", "alerts", "dead_letters", "leases", "progress", "schedule")
    before = {table: as_tenant(tenants.store, str(bravo), f"SELECT * FROM {table}")
              for table in tables_of}  # fmt: skip
    confined = tenants.store.scoped(CustomerKey(tenants.acme.number))
    for text in (
        "UPDATE runs SET priority = 1", "UPDATE configs SET priority = 1",
        "UPDATE alerts SET state = 'resolved'", "UPDATE dead_letters SET status = 'discarded'",
        "DELETE FROM leases", "DELETE FROM progress", "DELETE FROM schedule", "DELETE FROM runs",
        "DELETE FROM pauses",
    ):  # fmt: skip
        raw(confined, text)
    for table, rows in before.items():
        assert rows, table
        assert as_tenant(tenants.store, str(bravo), f"SELECT * FROM {table}") == rows
    assert raw(tenants.store, f"SELECT count(*) FROM runs WHERE customer <> {bravo}") == [(0,)]


def test_without_the_right_to_the_role(
    pg_server: DatabaseServer, pg_admin: Admin, pg_template: str, clock: VirtualClock
) -> None:
    """A user without the role has only the filters, and isolation can be enabled later."""
    assert pg_template, "the role exists"
    user = plain_user(pg_admin, "bare")
    pg_admin.execute(f"CREATE DATABASE {user} TEMPLATE template0 OWNER {user}")
    store = PostgresStore(dsn_as(pg_server.dsn(user), user), clock)
    try:
        store.migrate()
        assert store.read(tenant_isolation_get) == TenantIsolation(
            stands=False, restricts_all=False
        )
        client = Client(store)
        client.register(pipelines())
        client.runs.submit(Submission(pipeline="nightly"))
        own = client.scoped("default").runs.list()
        assert [run.customer for run in own.items] == ["default"]
        pg_admin.execute(f"GRANT penstock_tenant TO {user}")
        assert raw(store, "SELECT tenant_wall()") == [(True,)]
        assert store.read(tenant_isolation_get).stands
        again = PostgresStore(dsn_as(pg_server.dsn(user), user), clock)
        text = "SELECT current_user::text FROM runs"
        assert raw(again.scoped(CustomerKey(1)), text) == [("penstock_tenant",)]
        again.close()
    finally:
        store.close()
        pg_admin.execute(f"DROP DATABASE {user} WITH (FORCE)")
        pg_admin.execute(f"DROP ROLE {user}")


def test_a_user_who_does_not_own_the_tables(
    pg_server: DatabaseServer, pg_admin: Admin, pg_migrated_dsn: str
) -> None:
    """A user that does not own the tables is subject to row-level security; doctor reports it."""
    user = plain_user(pg_admin, "guest")
    name = pg_migrated_dsn.rpartition("/")[2]
    with psycopg.connect(pg_migrated_dsn, autocommit=True) as owner:
        owner.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {user}")
    store = PostgresStore(dsn_as(pg_server.dsn(name), user))
    try:
        assert store.read(tenant_isolation_get) == TenantIsolation(stands=False, restricts_all=True)
    finally:
        store.close()
        with psycopg.connect(pg_migrated_dsn, autocommit=True) as owner:
            owner.execute(f"DROP OWNED BY {user}")
        pg_admin.execute(f"DROP ROLE {user}")


def test_databases_migrated_together(pg_server: DatabaseServer) -> None:
    """The role is shared by the whole server: databases migrated at the same time share it."""
    names = [f"penstock_many_{n}" for n in range(4)]
    isolated: list[bool] = []

    def build(dsn: str) -> None:
        store = PostgresStore(dsn)
        store.migrate()
        isolated.append(store.read(tenant_isolation_get).stands)
        store.close()

    dsns = [pg_server.create_database(name) for name in names]
    threads = [threading.Thread(target=build, args=(dsn,)) for dsn in dsns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in names:
        pg_server.drop_database(name)
    assert isolated == [True] * len(names)


def test_principal_of_a_bound_key(tenants: Tenants) -> None:
    """A tenant's key leads to a client whose transactions are all restricted."""
    made = tenants.client.keys.create("k", Role.OPERATOR, customer="acme")
    principal = tenants.client.keys.authenticate(made.key)
    assert isinstance(principal, Principal)
    assert principal.customer_id == "acme"
    client = tenants.client.scoped(principal.customer_id, actor=principal.actor)
    assert raw(client.store, "SELECT DISTINCT customer FROM runs") == [(tenants.acme.number,)]
