"""SQLite sink: one connection, durable commits, group commit for concurrent callers.

One caller leads: it runs the bodies of all waiting callers, each under a savepoint, commits them
together and makes the next waiting caller the leader. Committing twenty bodies costs the same as
committing one.

The sink uses Python's own SQLite library, as most services do: two copies of SQLite in a process do
not see each other's locks, and closing a file in one drops the locks of the other. The rest of the
service may therefore open the sink's file, but the file of a Penstock store is rejected as a sink.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from penstock.core.clock import Clock, Micros, SystemClock
from penstock.core.errors import SettingsError
from penstock.sinks import sql as shared
from penstock.sinks import statements as sql
from penstock.sinks.protocol import Arrival, AuditRecord, Document, Fate, SinkTx

T = TypeVar("T")

BUSY_SECONDS: Final = 20.0
GROUP_MAX: Final = 64
WAL_SAFE: Final = (3, 51, 3)
"""Older SQLite versions could lose pages when the WAL was reset; they use a rollback journal."""

_FOREIGN = (
    "SELECT count(*) FROM sqlite_master WHERE name IN ('schema_migrations', 'journal', 'runs')"
)


class _Job:
    """A body that waits for a transaction, and its result."""

    def __init__(self, body: Callable[[SinkTx], Any]) -> None:
        self.body = body
        self.ready = threading.Event()
        self.is_done = False
        self.value: Any = None
        self.error: BaseException | None = None

    def end(self, error: BaseException | None = None) -> None:
        """Set the result and wake the waiting thread."""
        self.error = error
        self.is_done = True
        self.ready.set()


class SqliteSink:
    """A sink in a SQLite file; its tables can share the file with others."""

    def __init__(
        self, path: str | Path, *, prefix: str = sql.PREFIX_DEFAULT, clock: Clock | None = None
    ) -> None:
        """Create the sink; it opens the file on first use."""
        self._path = str(path)
        self._prefix = sql.check_prefix(prefix)
        self._clock = clock or SystemClock()
        self._lock = threading.Condition()
        self._is_led = False
        self._jobs: deque[_Job] = deque()
        self._connection: sqlite3.Connection | None = None
        self._text = lru_cache(maxsize=None)(lambda text: sql.for_sqlite(text, self._prefix))

    @property
    def marks_table(self) -> str:
        """Name of the table that stores the marks."""
        return f"{self._prefix}marks"

    def transact(self, body: Callable[[SinkTx], T]) -> T:
        """Run a body in one durable transaction, possibly together with other callers' bodies."""
        job = _Job(body)
        with self._lock:
            self._jobs.append(job)
            leads, self._is_led = not self._is_led, True
        if not leads:
            job.ready.wait()
        if not job.is_done:
            # This caller is the leader: its own body is among those it runs.
            try:
                self._commit_group()
            finally:
                self._hand_over()
        if job.error is not None:
            raise job.error
        value: T = job.value
        return value

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
        return self.transact(lambda _: shared.forget(self._run, subscription, message_ids))

    def prune(self, kept: Micros) -> int:
        """Delete marks, audit and visibility records older than `kept`, in batches."""
        before = self._clock.now() - kept
        total = 0
        while True:
            removed = self.transact(lambda _: shared.prune(self._run, before))
            total += removed
            if removed < shared.PRUNE_BATCH:
                return total

    def check(self) -> None:
        """Raise if the sink is not available."""
        self._read(sql.APPLIED, {})

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            self._lock.wait_for(lambda: not self._is_led)
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _commit_group(self) -> None:
        """Run the waiting bodies and commit them together; an error affects only its own body."""
        with self._lock:
            jobs = [self._jobs.popleft() for _ in range(min(len(self._jobs), GROUP_MAX))]
        try:
            with self._transaction() as connection:
                for job in jobs:
                    self._run_job(job, connection)
        except BaseException as error:
            # Nothing was committed: jobs without their own error get this one.
            for job in jobs:
                job.end(job.error or error)
            return
        for job in jobs:
            job.end(job.error)

    def _hand_over(self) -> None:
        """Make the next waiting caller the leader, if there is one."""
        with self._lock:
            if self._jobs:
                self._jobs[0].ready.set()
            else:
                self._is_led = False
                self._lock.notify_all()

    def _run_job(self, job: _Job, connection: sqlite3.Connection) -> None:
        tx = shared.SqlTx(self._run, self._run_own, connection, self._clock.now())
        try:
            with tx.savepoint():
                job.value = job.body(tx)
                tx.finish()
        except BaseException as error:
            job.error = error
            if not connection.in_transaction:
                raise  # e.g. a full disk: SQLite has rolled back the whole transaction

    def _read(self, text: str, params: Mapping[str, Any]) -> shared.Rows:
        return self.transact(lambda _: self._run(text, params))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._opened()
        with _settings_errors():
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                _undo(connection)
                raise

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            with _settings_errors():
                connection = sqlite3.connect(
                    self._path,
                    timeout=BUSY_SECONDS,
                    isolation_level=None,
                    check_same_thread=False,  # only the current leader uses it
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
            raise SettingsError("sink", "a file other than a Penstock store", self._path,
                                "Choose another file for the sink.")  # fmt: skip
        if is_new and sqlite3.sqlite_version_info >= WAL_SAFE:
            connection.execute("PRAGMA journal_mode = WAL")
        if connection.execute("PRAGMA journal_mode").fetchone() == ("delete",):
            # Overwrite the journal instead of creating and deleting it at every commit.
            connection.execute("PRAGMA journal_mode = PERSIST")
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
    # After some errors, such as a full disk, SQLite has already rolled back.
    if connection.in_transaction:
        connection.execute("ROLLBACK")


@contextmanager
def _settings_errors() -> Iterator[None]:
    """Convert errors of files that cannot be opened or written to SettingsError."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "unable to open" in text or "readonly" in text:
            raise SettingsError("sink", "a writable file", text) from error
        raise
    except sqlite3.DatabaseError as error:
        if "not a database" in str(error):
            raise SettingsError("sink", "a SQLite file", str(error)) from error
        raise
