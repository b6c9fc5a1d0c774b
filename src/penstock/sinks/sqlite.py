"""The SQL sink in a SQLite file: one connection, one transaction at a time, durable commits.

The library is Python's own, as in most services: two copies of SQLite in a process do not see each
other's locks, and closing a file in one drops the locks of the other. So the file may be opened by
the rest of the service, but the file of a Penstock store is refused.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from penstock.core.clock import Clock, Micros, SystemClock
from penstock.core.errors import SettingsError
from penstock.sinks import sql as shared
from penstock.sinks import statements as sql
from penstock.sinks.api import AuditRecord, Document, Fate, SinkTx

T = TypeVar("T")

BUSY_SECONDS: Final = 20.0
WAL_SAFE: Final = (3, 51, 3)
"""Before this version, rewinding a write-ahead log could lose pages; then a journal is used."""

_FOREIGN = (
    "SELECT count(*) FROM sqlite_master WHERE name IN ('schema_migrations', 'journal', 'runs')"
)


class SqliteSink:
    """Documents in a SQLite file, in tables of their own beside whatever else is in it."""

    def __init__(
        self, path: str | Path, *, prefix: str = sql.PREFIX_DEFAULT, clock: Clock | None = None
    ) -> None:
        """Nothing is opened before the first use."""
        self._path = str(path)
        self._prefix = sql.check_prefix(prefix)
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._text = lru_cache(maxsize=None)(lambda text: sql.for_sqlite(text, self._prefix))

    @property
    def mark_place(self) -> str:
        """Where marks are kept."""
        return f"{self._prefix}marks"

    def transact(self, body: Callable[[SinkTx], T]) -> T:
        """Run a body in one durable transaction."""
        with self._lock, self._transaction() as connection:
            tx = shared.SqlTx(self._run, self._run_own, connection, self._clock.now())
            value = body(tx)
            tx.finish()
            return value

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
        with self._lock, self._transaction():
            return shared.forget(self._run, subscription, message_ids)

    def prune(self, kept: Micros) -> int:
        """Remove what is older than so many microseconds, a batch per transaction."""
        before = self._clock.now() - kept
        total = 0
        while True:
            with self._lock, self._transaction():
                removed = shared.prune(self._run, before)
            total += removed
            if removed < shared.PRUNE_BATCH:
                return total

    def check(self) -> None:
        """Raise when the sink cannot be used now."""
        with self._lock:
            self._opened()
            self._run(sql.APPLIED, {})

    def close(self) -> None:
        """Close the file; it is opened again when used again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _read(self, text: str, params: Mapping[str, Any]) -> shared.Rows:
        with self._lock:
            self._opened()
            return self._run(text, params)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._opened()
        with _told():
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                _undo(connection)
                raise

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            with _told():
                connection = sqlite3.connect(
                    self._path,
                    timeout=BUSY_SECONDS,
                    isolation_level=None,
                    check_same_thread=False,  # the lock lets one thread in at a time
                )
                try:
                    self._prepare(connection)
                except BaseException:
                    connection.close()
                    raise
            self._connection = connection
        return self._connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        is_new = connection.execute("PRAGMA page_count").fetchone() == (0,)
        if not is_new and connection.execute(_FOREIGN).fetchone() == (3,):
            raise SettingsError("sink", "a file of its own", self._path,
                                "This file is a Penstock store: name another one.")  # fmt: skip
        if is_new and sqlite3.sqlite_version_info >= WAL_SAFE:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")

        def run(text: str, params: Mapping[str, Any]) -> shared.Rows:
            return connection.execute(self._text(text), dict(params)).fetchall()

        try:
            shared.prepare(run, self._clock.now())
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    def _run(self, text: str, params: Mapping[str, Any]) -> shared.Rows:
        return self._run_own(self._text(text), params)

    def _run_own(self, text: str, params: Mapping[str, Any]) -> shared.Rows:
        assert self._connection is not None
        return self._connection.execute(text, dict(params)).fetchall()


def _undo(connection: sqlite3.Connection) -> None:
    # A full disk ends the transaction by itself.
    if connection.in_transaction:
        connection.execute("ROLLBACK")


@contextmanager
def _told() -> Iterator[None]:
    """Files that cannot be opened or written are a matter of settings, not of patience."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "unable to open" in text or "readonly" in text:
            raise SettingsError("sink", "a file that can be written", text) from error
        raise
    except sqlite3.DatabaseError as error:
        if "not a database" in str(error):
            raise SettingsError("sink", "a SQLite file", str(error)) from error
        raise
