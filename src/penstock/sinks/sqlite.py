"""The SQL sink in a SQLite file: one connection, durable commits, shared by those who wait for one.

One caller leads: he runs the bodies of all who wait, each under a savepoint, commits them together
and makes the next in line the leader. A commit costs the same for one as for twenty.
The library is Python's own, as in most services: two copies of SQLite in a process do not see each
other's locks, and closing a file in one drops the locks of the other. So the file may be opened by
the rest of the service, but the file of a Penstock store is refused.
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
from penstock.sinks.protocol import AuditRecord, Document, Fate, SinkTx

T = TypeVar("T")

BUSY_SECONDS: Final = 20.0
GROUP_MAX: Final = 64
WAL_SAFE: Final = (3, 51, 3)
"""Before this version, rewinding a write-ahead log could lose pages; then a journal is used."""

_FOREIGN = (
    "SELECT count(*) FROM sqlite_master WHERE name IN ('schema_migrations', 'journal', 'runs')"
)


class _Job:
    """A body that waits for a transaction, and what came of it."""

    def __init__(self, body: Callable[[SinkTx], Any]) -> None:
        self.body = body
        self.told = threading.Event()
        self.is_done = False
        self.value: Any = None
        self.error: BaseException | None = None

    def end(self, error: BaseException | None = None) -> None:
        """Let the waiting thread go on."""
        self.error = error
        self.is_done = True
        self.told.set()


class SqliteSink:
    """Documents in a SQLite file, in tables of their own beside whatever else is in it."""

    def __init__(
        self, path: str | Path, *, prefix: str = sql.PREFIX_DEFAULT, clock: Clock | None = None
    ) -> None:
        """Nothing is opened before the first use."""
        self._path = str(path)
        self._prefix = sql.check_prefix(prefix)
        self._clock = clock or SystemClock()
        self._lock = threading.Condition()
        self._is_led = False
        self._jobs: deque[_Job] = deque()
        self._connection: sqlite3.Connection | None = None
        self._text = lru_cache(maxsize=None)(lambda text: sql.for_sqlite(text, self._prefix))

    @property
    def mark_place(self) -> str:
        """Where marks are kept."""
        return f"{self._prefix}marks"

    def transact(self, body: Callable[[SinkTx], T]) -> T:
        """Run a body in one durable transaction, perhaps together with others' bodies."""
        job = _Job(body)
        with self._lock:
            self._jobs.append(job)
            leads, self._is_led = not self._is_led, True
        if not leads:
            job.told.wait()
        if not job.is_done:
            # The first in line, who was told to lead: his own body is among those he runs.
            try:
                self._commit_group()
            finally:
                self._hand_over()
        if job.error is not None:
            raise job.error
        value: T = job.value
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
        return self.transact(lambda _: shared.forget(self._run, subscription, message_ids))

    def prune(self, kept: Micros) -> int:
        """Remove what is older than so many microseconds, a batch per transaction."""
        before = self._clock.now() - kept
        total = 0
        while True:
            removed = self.transact(lambda _: shared.prune(self._run, before))
            total += removed
            if removed < shared.PRUNE_BATCH:
                return total

    def check(self) -> None:
        """Raise when the sink cannot be used now."""
        self._read(sql.APPLIED, {})

    def close(self) -> None:
        """Close the file; it is opened again when used again."""
        with self._lock:
            self._lock.wait_for(lambda: not self._is_led)
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _commit_group(self) -> None:
        """Run the bodies that wait and commit them together; what one raises is its own."""
        with self._lock:
            jobs = [self._jobs.popleft() for _ in range(min(len(self._jobs), GROUP_MAX))]
        try:
            with self._transaction() as connection:
                for job in jobs:
                    self._run_job(job, connection)
        except BaseException as error:
            # Nothing was committed: who has no error of his own has this one.
            for job in jobs:
                job.end(job.error or error)
            return
        for job in jobs:
            job.end(job.error)

    def _hand_over(self) -> None:
        """Let the next in line lead, or nobody."""
        with self._lock:
            if self._jobs:
                self._jobs[0].told.set()
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
                raise  # a full disk, for example, undoes everything at once

    def _read(self, text: str, params: Mapping[str, Any]) -> shared.Rows:
        return self.transact(lambda _: self._run(text, params))

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
                    check_same_thread=False,  # whoever leads uses it, nobody else
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
        if connection.execute("PRAGMA journal_mode").fetchone() == ("delete",):
            # The journal is overwritten, neither made nor removed at every commit.
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
