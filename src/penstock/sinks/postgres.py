"""The SQL sink in PostgreSQL: READ COMMITTED transactions on a few connections kept between uses.

A body is repeated after a deadlock or a serialization failure. A connection that breaks is thrown
away with everything idle, and the error goes to the caller, who takes the message again: the mark
tells whether the transaction was committed after all.
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
from penstock.sinks import sql as shared
from penstock.sinks import statements as sql
from penstock.sinks.protocol import AuditRecord, Document, Fate, SinkTx, is_conflict

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

T = TypeVar("T")

CONNECT_SECONDS: Final = 10
TRIES: Final = 8
LOCK: Final = 8_207_315
"""The advisory lock under which tables are made."""
SESSION: Final = (
    "-c idle_in_transaction_session_timeout=300000 -c statement_timeout=120000 "
    "-c lock_timeout=60000 -c jit=off"
)
# A message is acknowledged after its commit: a commit that a crash may undo would lose it.
_DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') = 'off'"
)
_SETTINGS: Final = (
    "authentication failed", "no pg_hba.conf entry", "does not exist", "invalid connection option",
    "missing \"=\"", "permission denied",
)  # fmt: skip


class PostgresSink:
    """Documents in a PostgreSQL database, in tables of their own beside whatever else is in it."""

    def __init__(
        self, url: str, *, prefix: str = sql.PREFIX_DEFAULT, clock: Clock | None = None
    ) -> None:
        """Nothing is opened before the first use."""
        self._url = url
        self._prefix = sql.check_prefix(prefix)
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._is_made = False
        self._idle: list[Connection] = []
        self._text = lru_cache(maxsize=None)(lambda text: sql.for_postgres(text, self._prefix))
        self._own = lru_cache(maxsize=256)(sql.pyformat)

    @property
    def mark_place(self) -> str:
        """Where marks are kept."""
        return f"{self._prefix}marks"

    def transact(self, body: Callable[[SinkTx], T]) -> T:
        """Run a body in one durable transaction, again after a deadlock."""
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
        """The mark of a message, if there is one."""
        key = {"subscription": subscription, "message_id": message_id}
        return shared.fate_of(self._read(sql.FATE, key))

    def document(self, path: str) -> Document | None:
        """A document as it is now."""
        return shared.document_of(self._read(sql.DOCUMENT, {"path": path}))

    def counters(self, subscription: str) -> dict[str, int]:
        """The exact counters of a subscription."""
        return dict(self._read(sql.COUNTERS, {"subscription": subscription}))

    def audits(self, subscription: str, *, limit: int = 100) -> Sequence[AuditRecord]:
        """Messages that were given up, the latest first."""
        return shared.audits_of(self._read(sql.AUDITS, {"subscription": subscription, "n": limit}))

    def forget(self, subscription: str, message_ids: Sequence[str]) -> int:
        """Remove marks, so that these messages are handled again."""
        with self._connected() as connection, connection.transaction():
            return shared.forget(partial(self._run, connection), subscription, message_ids)

    def prune(self, kept: Micros) -> int:
        """Remove what is older than so many microseconds, a batch per transaction."""
        before = self._clock.now() - kept
        total = 0
        while True:
            with self._connected() as connection, connection.transaction():
                removed = shared.prune(partial(self._run, connection), before)
            total += removed
            if removed < shared.PRUNE_BATCH:
                return total

    def check(self) -> None:
        """Raise when the sink cannot be used now."""
        self._read(sql.APPLIED, {})

    def close(self) -> None:
        """Close the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _read(self, text: str, params: Mapping[str, Any]) -> shared.Rows:
        with self._connected() as connection:
            return self._run(connection, text, params)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """A connection for the block; one that failed is closed, and the idle ones with it."""
        self._make_tables()
        connection = self._take() or self._connect()
        try:
            yield connection
        except BaseException:
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
                "sink", "psycopg to be installed", "none", "pip install 'penstock[postgres]'"
            ) from None
        try:
            connection = psycopg.connect(
                self._url,
                autocommit=True,  # transactions are begun by name
                connect_timeout=CONNECT_SECONDS,
                application_name="penstock-sink",
                options=SESSION,
            )
            connection.execute(_DURABLE)
            return connection
        except (psycopg.OperationalError, psycopg.ProgrammingError) as error:
            text = redact_text(str(error))[:300]
            if any(sign in text for sign in _SETTINGS):
                raise SettingsError("sink", "a database that lets this service in", text) from None
            raise

    def _make_tables(self) -> None:
        with self._making:
            if self._is_made:
                return
            connection = self._connect()
            try:
                with connection.transaction():
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
                    shared.prepare(partial(self._run, connection), self._clock.now())
            finally:
                connection.close()
            self._is_made = True

    def _run(self, connection: Connection, text: str, params: Mapping[str, Any]) -> shared.Rows:
        return _rows(connection, self._text(text), params)

    def _run_own(self, connection: Connection, text: str, params: Mapping[str, Any]) -> shared.Rows:
        return _rows(connection, self._own(text), params)


def _rows(connection: Connection, text: Any, params: Mapping[str, Any]) -> shared.Rows:
    cursor = connection.execute(text, dict(params))
    return cursor.fetchall() if cursor.description else []
