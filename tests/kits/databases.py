"""PostgreSQL databases that tests use one after another: restored, not created again.

To clone a migrated template and to drop the copy takes ten times what it takes to empty the copy
again. A test must not see the difference, so after each test:

- the database gets a new name, and every connection is ended: a thread that a test left behind
  finds no database under the old one;
- tables which the template does not have are dropped, weekly partitions above all; rows are
  deleted wherever there are any; the rows that the migrations wrote come back; sequences start
  again;
- a fingerprint of the catalogs (who wrote which row) and of the planner's statistics is compared
  with that of the new clone. Each has its own: a template that autovacuum has analyzed in the
  meantime makes others.

Where anything of this fails, or the fingerprint differs, or deleted rows have grown a table, the
database is dropped, and the next test gets a new clone.

One connection to each database stays open for that: a new one fills its caches of the catalogs
first, which takes four times what there is to do. RENAME would refuse to work beside it, so the row
of `pg_database` is updated.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from penstock.testing.postgres.server import DatabaseServer
from tests.kits.warm import WarmConnections

_numbers = itertools.count(1)

WORN_BYTES = 1 << 19
"""A table that holds this much is not emptied again: deleted rows would slow the tests."""

# PostgreSQL's own ways to wait for a connection's end look only every 100 ms.
END_CONNECTIONS = """
DO $end$
BEGIN
    FOR i IN 1..5000 LOOP
        PERFORM pg_stat_clear_snapshot();
        PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = '{name}' AND pid <> ALL ('{{{kept}}}');
        EXIT WHEN NOT FOUND;
        PERFORM pg_sleep(0.001);
    END LOOP;
END
$end$
"""

TABLES = """
SELECT relname::text FROM pg_class
WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace ORDER BY 1
"""

# Triggers rest, foreign keys among them: the order of the tables does not matter.
EMPTY = """
BEGIN;
SET LOCAL lock_timeout = '5s';
SET LOCAL session_replication_role = replica;
DO $clean$
DECLARE
    it text;
BEGIN
    FOR it IN SELECT relname FROM pg_class
        WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace
            AND relname <> ALL ('{kept}')
    LOOP
        EXECUTE format('DROP TABLE IF EXISTS %I CASCADE', it);
    END LOOP;
    FOR it IN SELECT relname FROM pg_class
        WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_relation_size(oid) > 0
    LOOP
        EXECUTE format('DELETE FROM %I', it);
    END LOOP;
    PERFORM setval(seqrelid, seqstart, false) FROM pg_sequence;
END
$clean$;
{seeds}
COMMIT;
"""

# Creating, altering or dropping an object writes a row of a catalog, whose xmin is the writer.
_CATALOGS = (
    ("pg_class", "oid"),
    ("pg_attribute", "attrelid"),
    ("pg_attrdef", "oid"),
    ("pg_index", "indexrelid"),
    ("pg_constraint", "oid"),
    ("pg_trigger", "oid"),
    ("pg_policy", "oid"),
    ("pg_proc", "oid"),
    ("pg_rewrite", "oid"),
    ("pg_type", "oid"),
    ("pg_sequence", "seqrelid"),
    ("pg_inherits", "inhrelid"),
    ("pg_statistic", "starelid"),
    ("pg_default_acl", "oid"),
    ("pg_extension", "oid"),
)
_FIRST_OID = 16_384  # smaller ones are PostgreSQL's own

FINGERPRINT = "SELECT " + ", ".join(
    [
        f"(SELECT (count(*), sum(xmin::text::bigint))::text FROM {catalog} "
        f"WHERE {key} >= {_FIRST_OID})"
        for catalog, key in _CATALOGS
    ]
    + [
        "(SELECT string_agg(nspname || coalesce(nspacl::text, ''), ' ' ORDER BY nspname) "
        "FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp_')",
        f"(SELECT (sum(reltuples), sum(relpages))::text FROM pg_class WHERE oid >= {_FIRST_OID})",
        "(SELECT (datallowconn, datconnlimit, datdba, datacl)::text FROM pg_database "
        "WHERE datname = current_database())",
        "(SELECT count(*)::text FROM pg_db_role_setting s JOIN pg_database d "
        "ON d.oid = s.setdatabase WHERE d.datname = current_database())",
        "(SELECT count(*)::text FROM pg_largeobject_metadata)",
        f"(SELECT (max(pg_relation_size(oid)) > {WORN_BYTES})::text FROM pg_class "
        "WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace)",
    ]
)


def database_name() -> str:
    """A name that no database of this session had before."""
    # The process id keeps workers apart when they share a configured server.
    return f"penstock_test_{os.getpid()}_{next(_numbers)}"


class Admin:
    """A connection that creates and drops databases; reopened when the server was stopped."""

    def __init__(self, server: DatabaseServer) -> None:
        self._server = server
        self._connection: psycopg.Connection | None = None

    def execute(self, text: str) -> psycopg.Cursor:
        """Run a statement, on a new connection if the old one is gone."""
        try:
            return self._open().execute(text)
        except psycopg.OperationalError:
            self.close()
            return self._open().execute(text)

    @property
    def server_version(self) -> int:
        """The server's version, as PostgreSQL counts."""
        return self._open().info.server_version

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _open(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._server.dsn(), autocommit=True)
        return self._connection


class Databases:
    """Copies of one template, lent to one test at a time."""

    def __init__(
        self, server: DatabaseServer, admin: Admin, template: str, owner: str | None = None
    ) -> None:
        self._server = server
        self._admin = admin
        self._origin = f"TEMPLATE {template}" + (f" OWNER {owner}" if owner else "")
        self._free: list[str] = []
        self._cleaners: dict[str, psycopg.Connection] = {}
        self._warm: dict[str, WarmConnections] = {}
        self._fingerprints: dict[str, str] = {}
        self._empty = ""
        self.clones = 0

    @contextmanager
    def lent(self, *, new: bool = False) -> Iterator[str]:
        """The name of a database like the template; `new`: one that no test had before."""
        name = self._free.pop() if self._free and not new else self._clone()
        try:
            yield name
        finally:
            self._take_back(name)

    def warm(self, name: str) -> WarmConnections:
        """Return the connections to a lent database that stores leave to the next one."""
        return self._warm.setdefault(name, WarmConnections())

    def close(self) -> None:
        """Drop what is left."""
        while self._free:
            self._drop(self._free.pop())

    def _clone(self) -> str:
        name = database_name()
        # Copying files costs two thirds of writing every page to the log (100 against 156 ms).
        quick = " STRATEGY FILE_COPY" if self._admin.server_version >= 150_000 else ""
        self._admin.execute(f"CREATE DATABASE {name} {self._origin}{quick}")
        self.clones += 1
        connection = self._cleaner(name)
        self._empty = self._empty or _emptying(connection)
        self._fingerprints[name] = _fingerprint(connection)
        return name

    def _take_back(self, used: str) -> None:
        """Keep the database under a new name if it is like new, else drop it."""
        name = database_name()
        cleaner = self._cleaners.pop(used, None)
        warm = self._warm.pop(used, None)
        kept = [] if cleaner is None else [cleaner.info.backend_pid]
        if warm is not None:
            kept += warm.reset()
            self._warm[name] = warm
        try:
            self._admin.execute(
                f"UPDATE pg_database SET datname = '{name}' WHERE datname = '{used}'"
            )
            self._admin.execute(END_CONNECTIONS.format(name=name, kept=",".join(map(str, kept))))
        except psycopg.Error:
            if cleaner is not None:
                cleaner.close()
            self._close_warm(name)
            self._drop(used)
            return
        if cleaner is not None:
            self._cleaners[name] = cleaner
        self._fingerprints[name] = self._fingerprints.pop(used)
        if self._is_cleaned(name):
            self._free.append(name)
        else:
            self._drop(name)

    def _is_cleaned(self, name: str) -> bool:
        """Empty the database; whether it is like a new clone then."""
        try:
            connection = self._cleaner(name)
            connection.execute(self._empty)
            return _fingerprint(connection) == self._fingerprints[name]
        except psycopg.Error:
            return False

    def _cleaner(self, name: str) -> psycopg.Connection:
        """Return the connection that stays open, a new one if the test ended it."""
        found = self._cleaners.get(name)
        if found is not None:
            try:
                found.execute("SELECT 1")
            except psycopg.Error:
                found.close()
            else:
                return found
        made = psycopg.connect(self._server.dsn(name), autocommit=True)
        self._cleaners[name] = made
        return made

    def _close_warm(self, name: str) -> None:
        if name in self._warm:
            self._warm.pop(name).close()

    def _drop(self, name: str) -> None:
        cleaner = self._cleaners.pop(name, None)
        if cleaner is not None:
            cleaner.close()
        self._close_warm(name)
        self._fingerprints.pop(name, None)
        self._admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _fingerprint(connection: psycopg.Connection) -> str:
    return str(connection.execute(FINGERPRINT).fetchone())


def _emptying(connection: psycopg.Connection) -> str:
    """The statements that bring a database back to what this new clone is."""
    tables = [name for (name,) in connection.execute(TABLES).fetchall()]
    seeds = [text for name in tables for text in _seeding(connection, name)]
    return EMPTY.format(kept="{" + ",".join(tables) + "}", seeds="\n".join(seeds))


def _seeding(connection: psycopg.Connection, table: str) -> Iterator[str]:
    """What writes the rows which the migrations wrote into a table; nothing if there are none."""
    rows = connection.execute(f"SELECT quote_literal(t::text) FROM {table} t").fetchall()
    if rows:
        values = ", ".join(value for (value,) in rows)
        yield (
            f"INSERT INTO {table} OVERRIDING SYSTEM VALUE "
            f"SELECT (v::{table}).* FROM unnest(ARRAY[{values}]) v;"
        )
