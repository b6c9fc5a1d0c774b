"""PostgreSQL driver: a small pool, READ COMMITTED transactions, LISTEN/NOTIFY for hints.

It differs from SQLite as follows. Writers run concurrently, so a body is repeated after a deadlock
or a serialization failure. A connection that turns out to be dead before anything was sent is
replaced transparently. Hints are sent by NOTIFY on a separate connection, never inside a
transaction. Sessions carry settings and prepared statements, so a connection pooler in between must
use session pooling, not transaction pooling. Built only by `assembly` and `testing`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import psycopg
from psycopg import errors as pgerrors
from psycopg import sql

from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import SchemaMismatch, StoreBusy, StoreError, StoreUnavailable
from penstock.core.ids import new_boot_id, stable_fraction
from penstock.core.naming import CustomerKey
from penstock.db import migrate
from penstock.db.close_hooks import CloseHooks
from penstock.db.notifier import HintSender, HubWaiter, WakeHub, after_commit
from penstock.db.postgres.pipeline import PostgresSession
from penstock.db.postgres.plain import PlainSession
from penstock.db.postgres.pool import ConnectionPool, connect, has_no_input
from penstock.db.postgres.transaction import DeadConnection, PostgresTx
from penstock.db.scoped import ScopedStore, tenant_statements
from penstock.db.store import Capabilities, Single, StoreView, Tx
from penstock.db.tenant_isolation import tenant_isolation_get

log = logging.getLogger(__name__)
T = TypeVar("T")

CHANNEL = "penstock"
NOTIFY = "SELECT pg_notify(%(channel)s, %(note)s)"
ATTEMPTS_MAX = 8
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
SESSION = (
    "-c idle_in_transaction_session_timeout=60000 -c statement_timeout=120000 "
    "-c lock_timeout=30000 -c jit=off -c random_page_cost=1.1 "
    "-c enable_seqscan=off -c plan_cache_mode=force_generic_plan"
)


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
    ) -> None:
        """Connect lazily to `dsn`. An injected `clock` replaces the database's time.

        `is_pipelined`: send several statements in one flush; otherwise use psycopg's cursors.
        """
        self.events: object | None = None
        self._dsn = dsn
        self._clock = clock
        self._system = SystemClock()
        self._name = name
        self._id = new_boot_id()
        self._closed = False
        self._inside = threading.local()
        self._hub = WakeHub()
        self._close_hooks = CloseHooks()
        self._hint_sender = HintSender(self._send_hints, "penstock-notify")
        self._notify_connection: PostgresSession | None = None
        self._listener: threading.Thread | None = None
        self._listener_lock = threading.Lock()
        self._children: list[PostgresStore] = []
        self._has_isolation: bool | None = None
        self._is_pipelined = is_pipelined
        self._session = PostgresSession if is_pipelined else PlainSession
        self._pool = ConnectionPool(lambda: open_session(dsn, name, self._session), size=pool_max)

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do."""
        return Capabilities(
            engine="postgres",
            concurrent_writers=True,
            cross_process_wake=True,
            partitioned_history=True,
            row_level_security=True,
        )

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in a read-only snapshot."""
        return self._attempt(body, BEGIN_READ)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in one durable transaction."""
        return self._attempt(body, BEGIN_WRITE)

    def reserved(self) -> PostgresStore:
        """Return a store with its own connection, which no other caller can use."""
        child = PostgresStore(
            self._dsn,
            self._clock,
            pool_max=1,
            name=f"{self._name}-reserved",
            is_pipelined=self._is_pipelined,
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
        begin_read, begin_write = BEGIN_READ + confined, BEGIN_WRITE + confined
        return ScopedStore(
            self,
            customer_key,
            read=lambda body: self._attempt(body, begin_read, confined=True),
            write=lambda body: self._attempt(body, begin_write, confined=True),
        )

    def wake(self, channels: Iterable[str]) -> None:
        """Wake waiters in this and other processes; there may be work."""
        names = list(channels)
        self._hint_sender.send(names, has_local_waiter=self._hub.notify(names))

    def listen(self, channels: Iterable[str]) -> HubWaiter:
        """Return a waiter for wake-ups on the channels."""
        with self._listener_lock:
            if self._listener is None:
                self._listener = threading.Thread(
                    target=self._listen_loop, name="penstock-listen", daemon=True
                )
                self._listener.start()
        return self._hub.listen(channels)

    def migrate(self) -> list[str]:
        """Apply missing migrations; return their names."""
        try:
            with self._pool.connection() as connection, connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
                connection.execute(migrate.BOOKKEEPING)
                applied = connection.execute(migrate.APPLIED).fetchall()
                pending = migrate.missing("postgres", cast("Any", applied))
                for migration in pending:
                    connection.execute(migration.script)
                    record = migrate.record_sql(migration, self._system.now())
                    connection.execute(record)
                (has_entered,) = connection.execute("SELECT enter_cluster()").fetchone() or (False,)
        except psycopg.Error as error:
            raise _translated(error) from error
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
                # Were the rows written in another cluster, with other transaction ids?
                restored = connection.execute("SELECT is_restored()").fetchone()
        except psycopg.Error as error:
            raise _translated(error) from error
        return [ENTER_CLUSTER] if restored == (True,) else []

    def vacuum(self, tables: Sequence[str]) -> None:
        """Vacuum tables on a connection without a time limit; skips those that others lock.

        Files keep their size: giving pages back would lock the table, and it grows again soon.
        """
        try:
            with connect(self._dsn, f"{self._name}-vacuum") as connection:
                for table in tables:
                    text = sql.SQL("VACUUM (SKIP_LOCKED, TRUNCATE FALSE) {}")
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
        self._hint_sender.close()
        if self._listener is not None:
            self._listener.join(timeout=5)
        if self._notify_connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._notify_connection.close()
        self._pool.close()

    def _attempt(
        self, body: Callable[[Tx], T], begin: tuple[str, ...], *, confined: bool = False
    ) -> T:
        """Run the body; retry after deadlocks, serialization failures and dead connections."""
        assert not getattr(self._inside, "body", False), "a transaction body must not open another"
        is_single = isinstance(body, Single) and begin is BEGIN_WRITE
        open_tx = partial(PostgresTx, wake=self.wake, events=self.events)
        last: Exception | None = None
        for attempt in range(ATTEMPTS_MAX):
            injected = None if self._clock is None else self._clock.now()
            self._inside.body = True
            try:
                with self._pool.connection(confined=confined) as connection:
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
            except (pgerrors.DeadlockDetected, pgerrors.SerializationFailure) as error:
                last = error
                # Jitter the backoff so that two deadlocked transactions do not collide again.
                jitter = stable_fraction(f"{threading.get_ident()}:{attempt}")
                self._system.sleep(0.002 * 2**attempt * (0.5 + jitter))
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

    def _send_hints(self, channels: list[str]) -> None:
        """Send one NOTIFY for many hints, on the sender's own thread and connection."""
        try:
            if self._notify_connection is None:
                # A hint need not survive a crash, so do not wait for the disk.
                options = "-c synchronous_commit=off"
                self._notify_connection = connect(
                    self._dsn, f"{self._name}-notify", self._session, options=options
                )
            note = {"channel": CHANNEL, "note": ",".join([self._id, *channels])}
            wire = self._notify_connection.statement_pipeline
            wire.send([wire.prepared("notify", NOTIFY, note)])
        except psycopg.Error:
            if self._notify_connection is not None:
                with contextlib.suppress(psycopg.Error):
                    self._notify_connection.close()
            self._notify_connection = None
            raise

    def _listen_loop(self) -> None:
        """Pass hints from other processes to local waiters; reconnect until the store closes."""
        while not self._closed:
            try:
                with connect(self._dsn, f"{self._name}-listen") as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    while not self._closed:
                        for note in connection.notifies(timeout=0.5, stop_after=1):
                            sender, *channels = note.payload.split(",")
                            if sender != self._id:
                                self._hub.notify(channels)
            except psycopg.Error as error:
                log.debug("lost the LISTEN connection, reconnecting: %s", error)
                self._system.sleep(0.2)


def open_session(
    dsn: str, name: str, session: type[PostgresSession] = PostgresSession
) -> PostgresSession:
    """Open a connection with the store's timeouts and planner settings."""
    return connect(dsn, name, session, options=SESSION)


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
    """Return our error for a psycopg error, or the error unchanged."""
    if isinstance(error, pgerrors.UndefinedTable | pgerrors.UndefinedColumn):
        return SchemaMismatch(f"{error}: run `penstock db migrate`")
    if isinstance(error, pgerrors.LockNotAvailable | pgerrors.QueryCanceled):
        return StoreBusy(f"PostgreSQL: {error}")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreUnavailable(f"PostgreSQL: {error}")
    # Not the statement's fault: a standby after a failover, changed privileges, a stalled body.
    if isinstance(
        error,
        pgerrors.ReadOnlySqlTransaction
        | pgerrors.InsufficientPrivilege
        | pgerrors.IdleInTransactionSessionTimeout,
    ):
        return StoreUnavailable(f"PostgreSQL: {error}")
    return error
