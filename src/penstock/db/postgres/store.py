"""PostgreSQL driver: a small pool, READ COMMITTED transactions, LISTEN/NOTIFY for hints.

It differs from SQLite as follows. Writers run concurrently, so a body is repeated after a deadlock
or a serialization failure. A connection that turns out to be dead before anything was sent is
replaced transparently. Hints are sent by NOTIFY on a separate connection, never inside a
transaction. Sessions hold settings and prepared statements; behind a pooler that assigns a session
to each transaction, settings are applied in every transaction and statements are not prepared.
Built only by `assembly` and `testing`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import psycopg
from psycopg import errors as pgerrors
from psycopg import sql

from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import (
    ReadTimeout,
    SchemaMismatch,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)
from penstock.core.ids import stable_fraction
from penstock.core.naming import CustomerKey
from penstock.db import migrate
from penstock.db.close_hooks import CloseHooks
from penstock.db.notifier import HubWaiter, after_commit
from penstock.db.postgres.connector import Connector, Pooler, set_config
from penstock.db.postgres.pipeline import PostgresSession
from penstock.db.postgres.plain import PlainSession
from penstock.db.postgres.pool import ConnectionPool, has_no_input
from penstock.db.postgres.transaction import DeadConnection, PostgresTx
from penstock.db.postgres.wakes import PostgresWakes
from penstock.db.scoped import ScopedStore, tenant_statements
from penstock.db.store import (
    CONFLICTS,
    Capabilities,
    Single,
    StoreView,
    Tx,
    are_reads_limited,
    read_seconds_left,
)
from penstock.db.tenant_isolation import tenant_isolation_get

T = TypeVar("T")

ATTEMPTS_MAX = 8
MIGRATION_ATTEMPTS_MAX = 60
LOCK_TABLES = """
SET LOCAL lock_timeout = '400ms';
SET LOCAL statement_timeout = 0;
DO $lock$
DECLARE
    found text;
BEGIN
    SELECT string_agg(oid::regclass::text, ', ' ORDER BY oid) INTO found FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
        AND relrowsecurity AND NOT relispartition AND pg_has_role(relowner, 'USAGE');
    IF found IS NOT NULL THEN
        EXECUTE 'LOCK TABLE ' || found || ' IN ACCESS EXCLUSIVE MODE';
    END IF;
END
$lock$
"""
"""Locks the tables with row-level security, which migrations change, in the order of creation.
A migration that locked them one by one over its whole length would deadlock with busy workers.
From here on a statement may take as long as it needs: an index over a large table takes minutes.
"""
BEGIN_WRITE: tuple[str, ...] = ("BEGIN",)
BEGIN_READ: tuple[str, ...] = (
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "SET LOCAL enable_seqscan = on",
    "SET LOCAL plan_cache_mode = auto",
)
MIGRATION_LOCK = 8_207_314
ENTER_CLUSTER = "enter_cluster"
"""The step that follows a restore into another cluster, listed like a migration."""
# A plan prepared while a queue table was empty must not scan the table once it has filled. Small
# statements are planned once, not at every call, because planning takes longer than running them.
SESSION: Mapping[str, str] = {
    "idle_in_transaction_session_timeout": "60000",
    "statement_timeout": "120000",
    "lock_timeout": "30000",
    "jit": "off",
    "random_page_cost": "1.1",
    "enable_seqscan": "off",
    "plan_cache_mode": "force_generic_plan",
}


class PostgresStore:
    """Penstock's state in a PostgreSQL database."""

    def __init__(
        self,
        dsn: str,
        clock: Clock | None = None,
        *,
        pool_max: int = 10,
        name: str = "penstock",
        is_pipelined: bool = True,
        pooler: Pooler = "none",
        direct: str = "",
    ) -> None:
        """Connect lazily to `dsn`. An injected `clock` replaces the database's time.

        is_pipelined: send several statements in one flush; otherwise use psycopg's cursors.
        pooler: kind of pooler behind `dsn`, if any. direct: URL that bypasses the pooler, for
        LISTEN and VACUUM.
        """
        self.events: object | None = None
        self._dsn = dsn
        self._clock = clock
        self._system = SystemClock()
        self._name = name
        self._closed = False
        self._inside = threading.local()
        self._close_hooks = CloseHooks()
        self._children: list[PostgresStore] = []
        self._has_isolation: bool | None = None
        self._is_pipelined = is_pipelined
        session = PostgresSession if is_pipelined else PlainSession
        self._pooler = pooler
        self._connector = Connector(dsn, name, session, pooler)
        self._direct = Connector(direct, name, session) if direct else self._connector
        self._wakes = PostgresWakes(self._connector, self._direct)
        self._begin_read, self._begin_write = begin_statements(pooler)
        self._pool = ConnectionPool(lambda: self._connector.open(settings=SESSION), size=pool_max)

    def adopt(self, connection: PostgresSession) -> None:
        """Use a connection that was opened with this store's settings before it existed."""
        self._pool.add(connection)

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of this engine."""
        return Capabilities(
            engine="postgres",
            concurrent_writers=True,
            cross_process_wake=self._wakes.receives,
            partitioned_history=True,
            row_level_security=True,
        )

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in a read-only snapshot."""
        return self._attempt(body, self._begin_read)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in one durable transaction."""
        return self._attempt(body, self._begin_write)

    def reserved(self) -> PostgresStore:
        """Return a store with its own connection, which no other caller can use."""
        child = PostgresStore(
            self._dsn,
            self._clock,
            pool_max=1,
            name=f"{self._name}-reserved",
            is_pipelined=self._is_pipelined,
            pooler=self._pooler,
        )
        self._children.append(child)
        return child

    def scoped(self, customer_key: CustomerKey) -> StoreView:
        """Return a view whose transactions run as `penstock_tenant`, under row-level security.

        If the database lacks that role (`penstock doctor` reports it), the callers' filters are the
        only isolation.
        """
        confined = tenant_statements(customer_key)
        if self._has_isolation is None:
            self._has_isolation = self.read(tenant_isolation_get).stands
        if not self._has_isolation:
            return ScopedStore(self, customer_key, read=self.read, write=self.write)
        begin_read, begin_write = self._begin_read + confined, self._begin_write + confined
        return ScopedStore(
            self,
            customer_key,
            read=lambda body: self._attempt(body, begin_read, confined=True),
            write=lambda body: self._attempt(body, begin_write, confined=True),
        )

    def wake(self, channels: Iterable[str]) -> None:
        """Wake waiters in this and other processes; there may be work."""
        self._wakes.wake(channels)

    def listen(self, channels: Iterable[str]) -> HubWaiter:
        """Return a waiter for wake-ups on the channels."""
        return self._wakes.listen(channels)

    def migrate(self) -> list[str]:
        """Apply missing migrations, all or none; return their names.

        Other processes may keep working. The tables are locked before anything is changed; while
        a lock is not free at once, the others go on, and the migrations start again.
        """
        last: Exception | None = None
        for attempt in range(MIGRATION_ATTEMPTS_MAX):
            try:
                return self._migrate_once()
            except (pgerrors.DeadlockDetected, pgerrors.LockNotAvailable) as error:
                last = error
                self._back_off(min(attempt, ATTEMPTS_MAX))
            except psycopg.Error as error:
                raise _translated(error) from error
        tries = f"{MIGRATION_ATTEMPTS_MAX} tries"
        raise StoreBusy(f"PostgreSQL: the tables stayed in use in {tries}: {last}") from last

    def _migrate_once(self) -> list[str]:
        with self._pool.connection() as connection, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
            connection.execute(migrate.BOOKKEEPING)
            applied = connection.execute(migrate.APPLIED).fetchall()
            pending = migrate.missing("postgres", cast("Any", applied))
            if pending:
                connection.execute(LOCK_TABLES)
            scripts = migrate.scripts(pending)
            for migration, script in zip(pending, scripts, strict=True):
                connection.execute(script)
                record = migrate.record_sql(migration, self._system.now())
                connection.execute(record)
            (has_entered,) = connection.execute("SELECT enter_cluster()").fetchone() or (False,)
        return [*(f"{m.number:04d}_{m.name}" for m in pending), *[ENTER_CLUSTER] * has_entered]

    def verify(self) -> list[str]:
        """Return the names of missing migrations, and the step that follows a restore."""
        try:
            with self._pool.connection() as connection:
                try:
                    applied = connection.execute(migrate.APPLIED).fetchall()
                except pgerrors.UndefinedTable:
                    applied = []
                pending = migrate.missing("postgres", cast("Any", applied))
                if pending:
                    return [f"{m.number:04d}_{m.name}" for m in pending]
                # Whether the rows were written in another cluster, with other transaction ids.
                restored = connection.execute("SELECT is_restored()").fetchone()
        except psycopg.Error as error:
            raise _translated(error) from error
        return [ENTER_CLUSTER] if restored == (True,) else []

    def vacuum(self, tables: Sequence[str]) -> None:
        """Vacuum tables on a connection without a time limit; skips locked tables.

        Files keep their size: truncating them would lock the table, and they soon grow again.
        """
        try:
            with self._direct.open("vacuum") as connection:
                for table in tables:
                    text = sql.SQL("VACUUM (SKIP_LOCKED, TRUNCATE FALSE, PARALLEL 0) {}")
                    connection.execute(text.format(sql.Identifier(table)))
        except psycopg.Error as error:
            raise _translated(error) from error

    def before_close(self, call: Callable[[], None]) -> None:
        """Register a hook that runs before the store closes, while it can still be written to."""
        self._close_hooks.add(call)

    def close(self) -> None:
        """Release every connection; idempotent."""
        self._close_hooks.run()
        if self._closed:
            return
        self._closed = True
        for child in self._children:
            child.close()
        self._wakes.close()
        self._pool.close()

    def _attempt(
        self, body: Callable[[Tx], T], begin: tuple[str, ...], *, confined: bool = False
    ) -> T:
        """Run the body; retry after deadlocks, serialization failures and dead connections."""
        assert not getattr(self._inside, "body", False), "a transaction body must not open another"
        is_single = isinstance(body, Single) and begin is BEGIN_WRITE
        left = read_seconds_left() if "READ ONLY" in begin[0] else None
        if left is not None:
            begin = *begin, f"SET LOCAL statement_timeout = {max(1, round(1_000 * left))}"
        open_tx = partial(PostgresTx, wake=self.wake, events=self.events)
        last: Exception | None = None
        was_read_only = False
        for attempt in range(ATTEMPTS_MAX):
            injected = None if self._clock is None else self._clock.now()
            self._inside.body = True
            try:
                with self._pool.connection(confined=confined, within=left) as connection:
                    if is_single and has_no_input(connection):
                        tx = open_tx(connection.statement_pipeline, injected, is_single=True)
                        value = _run_single(connection, tx, body)
                    else:
                        sees_all = not confined
                        tx = open_tx(
                            connection.statement_pipeline, injected, begin=begin, sees_all=sees_all
                        )
                        value = _commit(connection, tx, body)
            except DeadConnection:
                self._pool.forget_idle()
                continue
            except pgerrors.ReadOnlySqlTransaction as error:
                # After a failover, a pooler or proxy may still connect to the demoted server.
                self._pool.forget_idle()
                if was_read_only or "READ ONLY" in begin[0]:
                    raise _translated(error) from error
                was_read_only = True
                continue
            except (pgerrors.DeadlockDetected, pgerrors.SerializationFailure) as error:
                last = error
                CONFLICTS.add()
                self._back_off(attempt)
                continue
            except psycopg.Error as error:
                raise _translated(error) from error
            finally:
                self._inside.body = False
            after_commit(tx.callbacks)
            return value
        if last is None:
            raise StoreUnavailable("PostgreSQL: all connections tried were dead")
        raise StoreBusy(f"PostgreSQL: gave up after {ATTEMPTS_MAX} tries: {last}") from last

    def _back_off(self, attempt: int) -> None:
        """Wait; jitter keeps two deadlocked transactions from colliding again."""
        jitter = stable_fraction(f"{threading.get_ident()}:{attempt}")
        self._system.sleep(0.002 * 2**attempt * (0.5 + jitter))


def begin_statements(pooler: Pooler) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the statements that begin reads and writes; behind a pooler, settings last for one
    transaction.
    """
    if pooler != "transaction":
        return BEGIN_READ, BEGIN_WRITE
    local = set_config(SESSION, is_local=True)
    return (BEGIN_READ[0], local, *BEGIN_READ[1:]), (*BEGIN_WRITE, local)


def _run_single(connection: PostgresSession, tx: PostgresTx, body: Callable[[Tx], T]) -> T:
    """Run a body of one statement, which autocommits."""
    try:
        value = body(tx)
        tx.flush()
        return value
    except psycopg.OperationalError as error:
        if not connection.closed:
            raise
        raise _unknown(error) from error


def _unknown(error: psycopg.OperationalError) -> StoreUnavailable:
    return StoreUnavailable(
        f"PostgreSQL: the connection broke at COMMIT, the outcome is unknown: {error}",
        ambiguous=True,
    )


def _commit(connection: PostgresSession, tx: PostgresTx, body: Callable[[Tx], T]) -> T:
    try:
        value = body(tx)
    except BaseException:
        tx.rollback()
        raise
    try:
        is_durable = tx.commit()
    except BaseException as error:
        if connection.closed and isinstance(error, psycopg.OperationalError):
            raise _unknown(error) from error
        tx.rollback()
        raise
    if not is_durable:
        raise StoreError(
            "PostgreSQL: the transaction body suppressed a database error; nothing was written"
        )
    return value


def _translated(error: BaseException) -> BaseException:
    """Return Penstock's error for a psycopg error, or the error unchanged."""
    text = " ".join(str(error).split())  # libpq's messages have several lines
    if isinstance(error, pgerrors.UndefinedTable | pgerrors.UndefinedColumn):
        return SchemaMismatch(f"{text}: run `penstock db migrate`")
    if isinstance(error, pgerrors.QueryCanceled) and are_reads_limited():
        return ReadTimeout(f"PostgreSQL: {text}")
    if isinstance(error, pgerrors.LockNotAvailable | pgerrors.QueryCanceled):
        return StoreBusy(f"PostgreSQL: {text}")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreUnavailable(f"PostgreSQL: {text}")
    # Not the statement's fault: a standby after a failover, changed privileges, a stalled body.
    if isinstance(
        error,
        pgerrors.ReadOnlySqlTransaction
        | pgerrors.InsufficientPrivilege
        | pgerrors.IdleInTransactionSessionTimeout,
    ):
        return StoreUnavailable(f"PostgreSQL: {text}")
    return error
