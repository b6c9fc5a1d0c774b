"""The roles of deploy/postgres/roles.sql have the rights that the processes need, and no others."""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import Pipeline, RunContext, Submission, run_pending
from penstock.access.api_keys import Role
from penstock.assembly.api import build_api
from penstock.assembly.process import build_services
from penstock.assembly.settings import load
from penstock.audit.telemetry import Events
from penstock.client import Client
from penstock.core.clock import SECOND
from penstock.core.naming import CustomerKey
from penstock.db.postgres.store import PostgresStore
from penstock.db.tenant_isolation import TenantIsolation, tenant_isolation_get
from penstock.testing import PostgresServer
from penstock.testing.clock import VirtualClock
from tests.assembly.test_cli import Process
from tests.kits.dump import raw
from tests.kits.shell import SHOP
from tests.server.kit import Client as Caller
from tests.tenancy.tenants import Tenants

pytestmark = pytest.mark.postgres

DEPLOY = Path(__file__).parents[2] / "deploy"
ROLES = (DEPLOY / "postgres" / "roles.sql").read_text("utf-8")
EVIDENCE = ("journal", "seals", "audit")
"""Tables to which the application role only adds."""
RIGHTS = """
SELECT c.relname::text, (SELECT string_agg(p, ' ' ORDER BY n)
    FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER'])
        WITH ORDINALITY AS one (p, n)
    WHERE has_table_privilege('penstock_app', c.oid, p))
FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
"""
PART_OF_JOURNAL = (
    "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'journal'::regclass"
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of its own, because roles belong to a whole server; it trusts every user."""
    with PostgresServer() as made:
        yield made


def make_url(url: str, user: str) -> str:
    """Return a URL with another user."""
    return re.sub(r"//[^@]*@", f"//{user}@", url)


def execute(url: str, text: str) -> list[tuple[Any, ...]]:
    """Execute statements; return the rows of the last one, if it has any."""
    with closing(psycopg.connect(url, autocommit=True)) as db:
        cursor = db.execute(text.encode())
        return cursor.fetchall() if cursor.description else []


def check_rights(admin: str) -> None:
    """The application role reads and writes rows, and only adds to the evidence."""
    rights = dict(execute(admin, RIGHTS))
    parts = [name for (name,) in execute(admin, PART_OF_JOURNAL)]
    assert len(parts) > 4
    only_adds = {name for name, given in rights.items() if given == "SELECT INSERT"}
    assert only_adds == {*EVIDENCE, *parts}
    assert {rights[name] for name in rights.keys() - only_adds} == {"SELECT INSERT UPDATE DELETE"}


def run_services(store: PostgresStore, clock: VirtualClock) -> None:
    """Run a step of every service of a scheduler process."""
    made = build_services(store, load({}), Events(), jitter=lambda: 0.5, clock=clock)
    for service, _ in made:
        service.run_once()
        clock.advance(SECOND)


def test_roles_are_enough(server: PostgresServer) -> None:
    """The owner migrates and runs the services; the application does everything else."""
    admin, logged = server.create_database("least"), len(server.log())
    execute(admin, ROLES)
    execute(admin, ROLES)
    owner, app = (make_url(admin, f"penstock_{role}") for role in ("owner", "app"))
    clock = VirtualClock(execute(admin, "SELECT (extract(epoch FROM now()) * 1e6)::bigint")[0][0])
    scheduler, worker = PostgresStore(owner, clock), PostgresStore(app, clock)
    try:
        scheduler.migrate()
        assert worker.read(tenant_isolation_get) == TenantIsolation(
            stands=True, restricts_all=False
        )
        tenants = Tenants(worker, clock)
        (last,) = execute(admin, f"{PART_OF_JOURNAL} ORDER BY 1 DESC OFFSET 1 LIMIT 1")
        execute(owner, f"DROP TABLE {last[0]}")
        run_services(scheduler, clock)
        assert last in execute(admin, PART_OF_JOURNAL), "the scheduler created the partition again"
        check_rights(admin)
        own = tenants.client.scoped("acme").runs.list().items
        assert {run.customer for run in own} == {"acme"}
        who = "SELECT DISTINCT current_user::text, customer FROM runs"
        confined = worker.scoped(CustomerKey(tenants.acme.number))
        assert raw(confined, who) == [("penstock_tenant", tenants.acme.number)]
        assert tenants.client.views.verify_journal().problem is None
        # Services continue after an error of one item, so what was refused is in the server's log.
        assert "permission denied" not in server.log()[logged:]
    finally:
        scheduler.close()
        worker.close()


_rights = Pipeline("rights")


@_rights.processor
def work(run: RunContext) -> None:
    """Do nothing."""


@pytest.fixture(scope="module")
def before(server: PostgresServer) -> str:
    """A database that another role migrated before roles.sql was executed in it."""
    admin = server.create_database("before")
    execute(admin, "CREATE ROLE former LOGIN CREATEROLE; GRANT CREATE ON SCHEMA public TO former")
    with closing(PostgresStore(make_url(admin, "former"))) as store:
        store.migrate()
        Client(store).register([_rights])
    execute(admin, ROLES)
    execute(admin, "REASSIGN OWNED BY former TO penstock_owner")
    execute(admin, ROLES)
    return admin


def test_roles_of_an_existing_database(before: str) -> None:
    """After a change of owner, tables that existed have the same rights, and a worker works."""
    check_rights(before)
    with closing(PostgresStore(make_url(before, "penstock_app"))) as store:
        client = Client(store)
        run = client.runs.submit(Submission(pipeline="rights"))
        run_pending(client, [_rights])
        assert client.runs.get(run.run_id).state == "COMPLETED"


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE runs",
        "CREATE TABLE mine (a int)",
        "UPDATE journal SET why = ''",
        "DELETE FROM journal",
        "DELETE FROM journal_rest",
        "TRUNCATE journal",
        "UPDATE seals SET root = ''",
        "DELETE FROM audit",
    ],
)
def test_the_application_is_refused(before: str, text: str) -> None:
    """The application role changes neither the schema nor what was recorded."""
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        execute(make_url(before, "penstock_app"), text)


WITHOUT_TRIGGER = "SET penstock_roles.event_trigger = off;\n"
"""What the PGOPTIONS of the file set."""


def test_without_superuser(server: PostgresServer) -> None:
    """An administrator of a managed service, who may create no event trigger, gets the same rights.

    The file is run again after the migration. A partition of the journal that the scheduler creates
    later is one that the application only adds to.
    """
    boot, logged = server.create_database("managed"), len(server.log())
    execute(boot, "CREATE ROLE boss LOGIN CREATEROLE CREATEDB BYPASSRLS")
    execute(boot, "ALTER DATABASE managed OWNER TO boss")
    # This server has the roles of other tests; in a new one, the administrator creates them.
    for role in ("owner", "app", "tenant"):
        with contextlib.suppress(psycopg.errors.DuplicateObject):
            execute(boot, f"CREATE ROLE penstock_{role}")
        execute(boot, f"GRANT penstock_{role} TO boss WITH ADMIN OPTION")
    boss, owner, app = (make_url(boot, name) for name in ("boss", "penstock_owner", "penstock_app"))
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="event trigger"):
        execute(boss, ROLES)
    execute(boss, WITHOUT_TRIGGER + ROLES)
    clock = VirtualClock(execute(boot, "SELECT (extract(epoch FROM now()) * 1e6)::bigint")[0][0])
    with closing(PostgresStore(owner, clock)) as scheduler:
        scheduler.migrate()
        execute(boss, WITHOUT_TRIGGER + ROLES)
        check_rights(boot)
        (last,) = execute(boot, f"{PART_OF_JOURNAL} ORDER BY 1 DESC OFFSET 1 LIMIT 1")
        execute(owner, f"DROP TABLE {last[0]}")
        run_services(scheduler, clock)
        assert dict(execute(boot, RIGHTS))[last[0]] == "SELECT INSERT"
        with closing(PostgresStore(app, clock)) as worker:
            tenants = Tenants(worker, clock)
            run_services(scheduler, clock)
            own = tenants.client.scoped("acme").runs.list().items
            assert {run.customer for run in own} == {"acme"}
            assert tenants.client.views.verify_journal().problem is None
    assert "permission denied for" not in server.log()[logged:]
    assert execute(boot, "SELECT count(*) FROM pg_event_trigger") == [(0,)]


STOLEN = """
CREATE FUNCTION {name}(made oid) RETURNS void LANGUAGE plpgsql AS
$$BEGIN ALTER ROLE penstock_owner SUPERUSER; EXCEPTION WHEN OTHERS THEN NULL; END$$
"""
FUNCTIONS = """
SELECT n.nspname::text, r.rolsuper FROM pg_proc p
JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_roles r ON r.oid = p.proowner
WHERE p.proname IN ('append_only', 'table_made', 'penstock_append_only', 'penstock_table_made')
"""


def test_the_owner_stays_what_it_is(server: PostgresServer) -> None:
    """The event trigger, which superusers fire as well, runs no function of the owner's.

    The owner may own the database, and it may have created a function with the name that an older
    version of the script used.
    """
    admin = server.create_database("owned")
    owner = make_url(admin, "penstock_owner")
    execute(admin, ROLES)
    execute(admin, "ALTER DATABASE owned OWNER TO penstock_owner")
    execute(owner, STOLEN.format(name="public.penstock_append_only"))
    execute(owner, "CREATE SCHEMA theirs")
    for text in (
        "DROP EVENT TRIGGER penstock_table_made",
        "DROP SCHEMA penstock_admin CASCADE",
        "ALTER SCHEMA penstock_admin RENAME TO away",
        STOLEN.format(name="penstock_admin.append_only"),
        "DROP FUNCTION penstock_admin.append_only(oid)",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            execute(owner, text)
    for _ in range(2):
        execute(admin, "CREATE TEMP TABLE anything (x int)")
        (found,) = execute(admin, "SELECT rolsuper FROM pg_roles WHERE rolname = 'penstock_owner'")
        assert found == (False,)
        execute(admin, ROLES)
    assert execute(admin, FUNCTIONS) == [("penstock_admin", True)] * 2


def test_tables_of_others(server: PostgresServer) -> None:
    """A role that uses another schema of the database creates tables as before."""
    admin = server.create_database("shared")
    execute(admin, ROLES)
    execute(admin, "REVOKE ALL ON SCHEMA public FROM PUBLIC")
    execute(admin, "CREATE ROLE other LOGIN; CREATE SCHEMA other AUTHORIZATION other")
    execute(make_url(admin, "other"), "CREATE TABLE other.mine (a int)")
    execute(make_url(admin, "penstock_owner"), "CREATE TABLE public.audit (a int)")
    assert ("audit", "SELECT INSERT") in execute(admin, RIGHTS)


def test_api_under_the_application_role(before: str) -> None:
    """A key that is bound to a customer sees that customer's runs only, through the served API."""
    settings = load({"PENSTOCK_API_PORT": "0", "PENSTOCK_DATABASE_URL": before})
    with closing(PostgresStore(make_url(before, "penstock_app"))) as store:
        client = Client(store, actor="api")
        client.runs.submit(Submission(pipeline="rights", customer="acme"))
        others = client.runs.submit(Submission(pipeline="rights", customer="bravo")).run_id
        server = build_api(client, settings, Events())
        server.start()
        try:
            key = client.keys.create("k", Role.OPERATOR, customer="acme").key
            caller = Caller(server.host, server.port, key)
            runs = caller.ok("GET", "/customers/acme/pipeline-runs")["items"]
            assert [one["customer_id"] for one in runs] == ["acme"]
            assert caller.ok("GET", f"/pipeline-runs/{runs[0]['run_id']}")["run"]
            assert caller.get(f"/pipeline-runs/{others}").status == 404
            assert caller.get("/customers/bravo/pipeline-runs").status == 404
        finally:
            server.stop()


def test_passwords_of_compose(server: PostgresServer) -> None:
    """Psql executes both files of compose.yaml, and sets the passwords of the environment."""
    psql = server._bin_dir / "psql"
    if not psql.exists():
        pytest.skip("these binaries have no psql")
    admin = server.create_database("composed")
    env = {**os.environ, "OWNER_PASSWORD": "o'ne", "APP_PASSWORD": "two"}
    secret = "SELECT rolpassword FROM pg_authid WHERE rolname = 'penstock_owner'"
    for file in ("roles.sql", "passwords.sql"):
        line = [
            *(str(psql), "-v", "ON_ERROR_STOP=1", "--no-psqlrc"),
            *("--file", str(DEPLOY / "postgres" / file), admin),
        ]
        done = subprocess.run(line, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, "ERROR" in done.stderr) == (0, False), done.stderr
    assert execute(admin, secret)[0][0].startswith("SCRAM-SHA-256$")


@pytest.mark.slow
def test_processes_of_an_installation(server: PostgresServer) -> None:
    """The three processes work in a new database, each as its role, and none is refused."""
    admin, logged = server.create_database("installed"), len(server.log())
    execute(admin, ROLES)
    owner, app = (make_url(admin, f"penstock_{role}") for role in ("owner", "app"))
    with closing(PostgresStore(owner)) as store:
        store.migrate()  # as `penstock db migrate` does
    with contextlib.ExitStack() as stack:
        started = []
        for words, url in (
            (["scheduler"], owner),
            (["worker", "--pipelines", SHOP], app),
            (["api"], app),
        ):
            one = Process("--database-url", url, *words)
            stack.callback(one.close)
            one.until(lambda line: " is up " in line)
            started.append(one)
        with closing(PostgresStore(app)) as store:
            run = Client(store).runs.submit(Submission(pipeline="hello"))
        started[1].until(lambda line: f"{run.run_id} completed" in line)
        assert [one.stop() for one in started] == [0, 0, 0]
    assert "permission denied" not in server.log()[logged:]
