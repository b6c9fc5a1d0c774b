"""PostgreSQL sink: READ COMMITTED transactions on a few pooled connections.

A transaction body is run again after a deadlock or serialization failure. If a connection breaks,
it is closed together with all idle ones and the caller gets the error. The message is then
redelivered, and its mark shows whether the transaction was committed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.core.clock import Clock, Micros, SystemClock
from penstock.core.errors import SettingsError
from penstock.core.redact import redact_text
from penstock.db.postgres_url import connection_options
from penstock.sinks import sql as shared
from penstock.sinks import statements as sql
from penstock.sinks.protocol import Arrival, AuditRecord, Document, Fate, SinkTx, is_conflict

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

T = TypeVar("T")

READ_ONLY: Final = "25006"
"""SQLSTATE of a write that a server refuses because it is a standby."""
TRIES: Final = 8
LOCK: Final = 8_207_315
"""Key of the advisory lock that serializes the creation of tables."""
SESSION: Final = (
    "-c idle_in_transaction_session_timeout=300000 -c statement_timeout=120000 "
    "-c lock_timeout=60000 -c jit=off"
)
# Messages are acked after the commit, so a commit that a crash can undo would lose a message.
_DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') = 'off'"
)
_SETTINGS: Final = (
    "authentication failed", "no pg_hba.conf entry", "does not exist", "invalid connection option",
    "missing \"=\"", "permission denied",
)  # fmt: skip


class PostgresSink:
    """A sink in a PostgreSQL database; its tables can share the database with others."""

    def __init__(
        self, url: str, *, prefix: str = sql.PREFIX_DEFAULT, clock: Clock | None = None
    ) -> None:
        """Create the sink; it connects on first use."""
        self._url = url
        self._prefix = sql.check_prefix(prefix)
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._setup_lock = threading.Lock()
        self._is_ready = False
        self._idle: list[Connection] = []
        self._text = lru_cache(maxsize=None)(lambda text: sql.for_postgres(text, self._prefix))
        self._own = lru_cache(maxsize=256)(sql.pyformat)

    @property
    def marks_table(self) -> str:
        """Name of the table that stores the marks."""
        return f"{self._prefix}marks"

    def transact(self, body: Callable[[SinkTx], T]) -> T:
        """Run a body in one durable transaction; repeat it after a deadlock."""
        tries = 0
        while True:
            tries += 1
            try:
                with self._connected() as connection, connection.transaction():
                    tx = shared.SqlTx(
                        partial(self._run, connection),
                        partial(self._run_own, connection),
                        connection,
                        self._clock.now(),
                    )
                    value = body(tx)
                    tx.finish()
                    return value
            except Exception as error:
                if not is_conflict(error) or tries == TRIES:
                    raise

    def fate(self, subscription: str, message_id: str) -> Fate | None:
        """Return the mark of a message, or None."""
        key = {"subscription": subscription, "message_id": message_id}
        return shared.fate_of(self._read(sql.FATE, key))

    def document(self, path: str) -> Document | None:
        """Return a document as currently stored, or None."""
        return shared.document_of(self._read(sql.DOCUMENT, {"path": path}))

    def counters(self, subscription: str) -> dict[str, int]:
        """Return the exact counters of a subscription by name."""
        return dict(self._read(sql.COUNTERS, {"subscription": subscription}))

    def audits(self, subscription: str, *, limit: int = 100) -> Sequence[AuditRecord]:
        """Return audit records of dropped messages, newest first."""
        return shared.audits_of(self._read(sql.AUDITS, {"subscription": subscription, "n": limit}))

    def arrivals(self, subscription: str, *, limit: int = 100) -> Sequence[Arrival]:
        """Return visibility records, newest first."""
        return shared.arrivals_of(
            self._read(sql.ARRIVALS, {"subscription": subscription, "n": limit})
        )

    def forget(self, subscription: str, message_ids: Sequence[str]) -> int:
        """Delete marks, so that these messages are handled again; return the number deleted."""
        with self._connected() as connection, connection.transaction():
            return shared.forget(partial(self._run, connection), subscription, message_ids)

    def prune(self, kept: Micros) -> int:
        """Delete marks, audit and visibility records older than `kept`, in batches."""
        before = self._clock.now() - kept
        total = 0
        while True:
            with self._connected() as connection, connection.transaction():
                removed = shared.prune(partial(self._run, connection), before)
            total += removed
            if removed < shared.PRUNE_BATCH:
                return total

    def check(self) -> None:
        """Raise if the sink is not available."""
        self._read(sql.APPLIED, {})

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _read(self, text: str, params: Mapping[str, Any]) -> shared.Rows:
        with self._connected() as connection:
            return self._run(connection, text, params)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """Yield a connection for the block; if it breaks, close it and all idle ones."""
        self._ensure_tables()
        connection = self._take() or self._connect()
        try:
            yield connection
        except BaseException as error:
            if getattr(error, "sqlstate", None) == READ_ONLY:
                connection.close()  # its server was demoted: connect to the promoted one
            if connection.closed or connection.broken:
                self.close()
            raise
        finally:
            self._give_back(connection)

    def _take(self) -> Connection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _give_back(self, connection: Connection) -> None:
        if connection.closed or connection.info.transaction_status != 0:
            with suppress(Exception):
                connection.close()
            return
        with self._lock:
            self._idle.append(connection)

    def _connect(self) -> Connection:
        try:
            import psycopg  # optional: only sinks in PostgreSQL need it
        except ImportError:
            raise SettingsError(
                "sink",
                "psycopg to be installed",
                "no psycopg",
                "pip install 'penstock-engine[postgres]'",
            ) from None
        try:
            connection = psycopg.connect(
                self._url,
                autocommit=True,  # transactions are explicit
                **connection_options(self._url, application_name="penstock-sink", options=SESSION),
            )
            connection.execute(_DURABLE)
            return connection
        except (psycopg.OperationalError, psycopg.ProgrammingError) as error:
            text = redact_text(str(error))[:300]
            if any(sign in text for sign in _SETTINGS):
                raise SettingsError(
                    "sink", "a database that accepts this connection", text
                ) from None
            raise

    def _ensure_tables(self) -> None:
        with self._setup_lock:
            if self._is_ready:
                return
            connection = self._connect()
            try:
                with connection.transaction():
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
                    shared.prepare(partial(self._run, connection), self._clock.now())
            finally:
                connection.close()
            self._is_ready = True

    def _run(self, connection: Connection, text: str, params: Mapping[str, Any]) -> shared.Rows:
        return _rows(connection, self._text(text), params)

    def _run_own(self, connection: Connection, text: str, params: Mapping[str, Any]) -> shared.Rows:
        return _rows(connection, self._own(text), params)


def _rows(connection: Connection, text: Any, params: Mapping[str, Any]) -> shared.Rows:
    cursor = connection.execute(text, dict(params))
    return cursor.fetchall() if cursor.description else []
