"""SQLite driver: one writing connection with group commit, several readers, WAL, durable commits.

It differs from PostgreSQL as follows. Writers queue in the process and several bodies commit
together (each under a savepoint), so that they share an fsync and no caller starves. Contention
with other processes is handled by a short retry on BEGIN IMMEDIATE. Time is max(last seen, wall
clock). Built only by `assembly` and `testing`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import (
    PenstockError,
    ReadTimeout,
    SchemaMismatch,
    StoreBusy,
    StoreUnavailable,
)
from penstock.core.naming import CustomerKey
from penstock.db import migrate
from penstock.db.close_hooks import CloseHooks
from penstock.db.notifier import (
    HintSender,
    HubWaiter,
    SocketNotifier,
    UnsafeFolder,
    WakeHub,
    after_commit,
)
from penstock.db.scoped import ScopedStore
from penstock.db.sqlite.lock_sharing import POLL_MAX_S, LockSharing
from penstock.db.sqlite.open_failure import FULL, READ_ONLY, explain_open_failure
from penstock.db.sqlite.open_file import OpenFile
from penstock.db.sqlite.transaction import SqliteTx
from penstock.db.sqlite.wal_preallocation import WalPreallocation
from penstock.db.store import (
    CONFLICTS,
    Capabilities,
    StoreView,
    Tx,
    is_read_over,
    read_seconds_left,
)

if TYPE_CHECKING:
    import sqlite3
else:
    try:  # bundles a SQLite without the WAL-reset bug (fixed in 3.51.3)
        import pysqlite3.dbapi2 as sqlite3
    except ImportError:
        import sqlite3

T = TypeVar("T")

log = logging.getLogger(__name__)

GROUP_MAX = 64
BUSY_TIMEOUT_S = 20.0
READERS_MAX = 8
CHECKPOINT_PAGES = 8_000
"""Bulk transactions write thousands of pages: checkpoint every 32 MiB, not every 4."""
LIMIT_STEPS = 10_000
"""Steps of SQLite's virtual machine between two checks of a read's time limit."""
SAFE_VERSION = (3, 51, 3)

# Both types are bound unchanged. Without a registered adapter, sqlite3 searches for one at every
# binding, which takes ten times as long as the binding itself.
_NULL: dict[None, None] = {}
sqlite3.register_adapter(bool, int)
sqlite3.register_adapter(type(None), _NULL.get)


class _Job(Generic[T]):
    """A queued transaction body with its caller's context variables, and its result."""

    def __init__(self, body: Callable[[Tx], T]) -> None:
        self.body = body
        self.context = copy_context()  # another thread may run it
        self.is_done = False
        self.value: T | None = None
        self.error: BaseException | None = None
        self.callbacks: list[Callable[[], None]] = []

    def result(self) -> T:
        """Return the body's value, or raise its error in the caller's thread."""
        if self.error is not None:
            raise self.error
        after_commit(self.callbacks)
        return cast("T", self.value)


class _WriterLock:
    """Exclusive access to the writing connection, until the store is closed."""

    def __init__(self) -> None:
        self.holder: int | None = None
        self.is_closed = False
        self.lock = threading.Lock()

    def __enter__(self) -> None:
        self.lock.acquire()
        if self.is_closed:
            self.lock.release()
            raise StoreUnavailable("the store is closed")
        self.holder = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self.holder = None
        self.lock.release()


class SqliteStore:
    """Penstock's state in one SQLite file (or in memory, for tests and simulation)."""

    def __init__(
        self, path: str | Path, clock: Clock | None = None, *, preallocates_wal: bool = False
    ) -> None:
        """Open `path` (":memory:" allowed). An injected `clock` replaces the database's time.

        `preallocates_wal`: extend the write-ahead log ahead of the commits.
        """
        self.events: object | None = None
        self._is_memory = str(path) == ":memory:"
        self._path = Path(path)
        self._clock = clock
        self._system = SystemClock()
        self._sharing = LockSharing(self._system)
        self._last_now = 0
        self._hub, self._close_hooks = WakeHub(), CloseHooks()
        self._peers: SocketNotifier | None = None
        self._hint_sender: HintSender | None = None
        self._is_alone = False  # whether hints to other processes are off
        self._jobs: deque[_Job[Any]] = deque()
        self._writing = _WriterLock()
        self._readers: queue.LifoQueue[sqlite3.Connection] = queue.LifoQueue()
        self._reader_count = 0
        self._reader_lock = threading.Lock()
        self._writer = open_connection(self._path)
        self._file = OpenFile(self._path, is_memory=self._is_memory)
        self._preallocation = _preallocation(self._writer, self._path, is_on=preallocates_wal)

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of this engine."""
        return Capabilities(
            engine="sqlite",
            concurrent_writers=False,
            cross_process_wake=not self._is_memory and sys.platform != "win32",
            partitioned_history=False,
            row_level_security=False,
        )

    @property
    def sqlite_version(self) -> tuple[int, ...]:
        """Version of the SQLite library in use."""
        return tuple(int(part) for part in sqlite3.sqlite_version.split("."))

    def now(self) -> int:
        """Return the injected time, else the wall clock, never earlier than returned before."""
        if self._clock is not None:
            return self._clock.now()
        self._last_now = max(self._last_now, self._system.now())
        return self._last_now

    def read(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in a read-only transaction (a snapshot, concurrent with the writer)."""
        assert self._writing.holder != threading.get_ident(), (
            "a transaction body must not open another"
        )
        if self._is_memory:
            with self._writing, _query_only(self._writer), _limited(self._writer):
                return body(SqliteTx(self._writer, self.now))
        connection = self._take_reader()
        try:
            connection.execute("BEGIN")
            try:
                with _limited(connection):
                    return body(SqliteTx(connection, self.now))
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise _translated(error) from error
        finally:
            self._readers.put(connection)

    def write(self, body: Callable[[Tx], T]) -> T:
        """Run `body` in one durable transaction, possibly together with other callers' bodies."""
        assert self._writing.holder != threading.get_ident(), (
            "a transaction body must not open another"
        )
        job = _Job(body)
        self._jobs.append(job)
        while not job.is_done:
            with self._writing:
                if not job.is_done:
                    self._commit_group()
        return job.result()

    def reserved(self) -> SqliteStore:
        """Return this store: SQLite has one writer, and heartbeats join its group commits."""
        return self

    def scoped(self, customer_key: CustomerKey) -> StoreView:
        """Return a view for one customer. Only the callers' filters enforce it, not SQLite."""
        return ScopedStore(self, customer_key, read=self.read, write=self.write)

    def wake(self, channels: Iterable[str]) -> None:
        """Wake waiters in this and other processes; there may be work."""
        names = list(channels)
        has_local_waiter = self._hub.notify(names)
        if self.capabilities.cross_process_wake and not self._writing.is_closed:
            self._open_peers()
            if self._hint_sender is not None:
                self._hint_sender.send(names, has_local_waiter=has_local_waiter)

    def listen(self, channels: Iterable[str]) -> HubWaiter:
        """Return a waiter for wake-ups on the channels."""
        if self.capabilities.cross_process_wake:
            self._open_peers()
        return self._hub.listen(channels)

    def migrate(self) -> list[str]:
        """Apply missing migrations; return their names."""
        with self._writing, _known_errors():
            return self._transact(lambda: _apply_missing(self._writer, self._system))

    def verify(self) -> list[str]:
        """Return the names of missing migrations."""
        with self._writing:
            try:
                applied = self._writer.execute(migrate.APPLIED).fetchall()
            except sqlite3.OperationalError:
                applied = []
            return [f"{m.number:04d}_{m.name}" for m in migrate.missing("sqlite", applied)]

    def vacuum(self, tables: Sequence[str]) -> None:
        """Do nothing: SQLite keeps no dead rows."""

    def before_close(self, call: Callable[[], None]) -> None:
        """Register a hook that runs before the store closes, while it can still be written to."""
        self._close_hooks.add(call)

    def close(self) -> None:
        """Release every connection; idempotent."""
        self._close_hooks.run()
        if self._writing.is_closed:
            return
        self._writing.is_closed = True
        if self._hint_sender is not None:
            self._hint_sender.close()
        if self._peers is not None:
            self._peers.close()
        with contextlib.suppress(queue.Empty):
            while True:
                self._readers.get_nowait().close()
        with self._writing.lock:
            if self._preallocation is not None:
                self._preallocation.close()
            self._writer.close()

    def _open_peers(self) -> None:
        with self._reader_lock:
            if self._peers is None and not self._is_alone:
                self._peers = _notifier(self._path, self._hub.notify)
                self._is_alone = self._peers is None
                if self._peers is not None:
                    self._hint_sender = HintSender(self._peers.notify, "penstock-wake")

    def _take_reader(self) -> sqlite3.Connection:
        if self._writing.is_closed:
            raise StoreUnavailable("the store is closed")
        with contextlib.suppress(queue.Empty):
            return self._readers.get_nowait()
        with self._reader_lock:
            if self._reader_count < READERS_MAX:
                self._file.check()
                connection = open_connection(self._path, read_only=True)
                self._reader_count += 1
                return connection
        try:
            return self._readers.get(timeout=BUSY_TIMEOUT_S)
        except queue.Empty:
            raise StoreBusy from None

    def _transact(self, body: Callable[[], T]) -> T:
        self._sharing.share()
        self._begin()
        began = self._system.monotonic()
        try:
            value = body()
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise
        finally:
            self._sharing.released(began)
        return value

    def _begin(self) -> None:
        """Run BEGIN IMMEDIATE, polling briefly while another process writes."""
        self._file.check()
        deadline = None
        pause = 0.0003
        while True:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                if self._preallocation is not None:
                    self._preallocation.extend()
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) and "busy" not in str(error):
                    raise _translated(error) from error
                now = self._system.monotonic()
                if deadline is None:
                    CONFLICTS.add()
                    self._sharing.conflicted()
                deadline = deadline or now + BUSY_TIMEOUT_S
                if now > deadline:
                    raise StoreBusy from error
                self._system.sleep(pause)
                pause = min(pause * 1.5, POLL_MAX_S)

    def _commit_group(self) -> None:
        """Run the oldest queued bodies and commit them with one fsync."""
        group: list[_Job[Any]] = []
        while self._jobs and len(group) < GROUP_MAX:
            group.append(self._jobs.popleft())
        try:
            self._transact(lambda: self._attempt_all(group))
        except BaseException as error:
            known = error if isinstance(error, PenstockError) else _translated(error)
            for job in group:
                if job.error is None:
                    job.error = known
        finally:
            for job in group:
                job.is_done = True

    def _attempt_all(self, group: Sequence[_Job[Any]]) -> None:
        for job in group:
            self._attempt(job, nested=len(group) > 1)

    def _attempt(self, job: _Job[Any], *, nested: bool) -> None:
        tx = SqliteTx(self._writer, self.now, self.wake, self.events)
        if not nested:
            try:
                job.value = job.context.run(job.body, tx)
            except BaseException as error:
                job.error = _translated(error)
                raise
            job.callbacks = tx.callbacks
            return
        self._writer.execute("SAVEPOINT body")
        try:
            job.value = job.context.run(job.body, tx)
            job.callbacks = tx.callbacks
        except Exception as error:
            job.error = _translated(error)
            self._writer.execute("ROLLBACK TO body")
        self._writer.execute("RELEASE body")


def _apply_missing(writer: sqlite3.Connection, clock: Clock) -> list[str]:
    """Apply missing migrations in the open transaction; return their names."""
    writer.execute(migrate.BOOKKEEPING)
    pending = migrate.missing("sqlite", writer.execute(migrate.APPLIED).fetchall())
    for migration in pending:
        for text in migrate.split_script(migration.script, sqlite3.complete_statement):
            writer.execute(text)
        writer.execute(migrate.record_sql(migration, clock.now()))
    return [f"{m.number:04d}_{m.name}" for m in pending]


@contextlib.contextmanager
def _query_only(connection: sqlite3.Connection) -> Iterator[None]:
    """Make the writing connection read-only for a reader."""
    connection.execute("PRAGMA query_only = ON")
    try:
        with _known_errors():
            yield
    finally:
        connection.execute("PRAGMA query_only = OFF")


@contextlib.contextmanager
def _limited(connection: sqlite3.Connection) -> Iterator[None]:
    """Interrupt statements at the end of the time limit of the caller's reads, if any."""
    if read_seconds_left() is None:
        yield
        return
    connection.set_progress_handler(is_read_over, LIMIT_STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)


@contextlib.contextmanager
def _known_errors() -> Iterator[None]:
    """Translate SQLite's errors to Penstock's."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(error) from error


def _notifier(path: Path, on_hint: Callable[[list[str]], object]) -> SocketNotifier | None:
    """Return the notifier of other processes; None, with a warning, if it cannot be created."""
    try:
        return SocketNotifier(path, on_hint)
    except UnsafeFolder as error:
        log.warning("%s", error)
    except OSError as error:  # the folder is too long for a socket, full or not writable
        log.warning(
            "other processes are not notified immediately: %s. Set TMPDIR to another folder.", error
        )
    return None


def _preallocation(
    writer: sqlite3.Connection, path: Path, *, is_on: bool
) -> WalPreallocation | None:
    """Return the preallocation of a file's write-ahead log; None if it is off or impossible."""
    if not is_on or str(path) == ":memory:" or not hasattr(os, "pwrite"):
        return None
    page = writer.execute("PRAGMA page_size").fetchone()[0]
    return WalPreallocation(path.resolve(), page, CHECKPOINT_PAGES)


def open_connection(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Open a connection in autocommit mode with durable commits."""
    if str(path) != ":memory:" and not path.parent.exists():
        fix = f"Create it first: mkdir -p {path.parent}"
        raise StoreUnavailable(f"the folder {path.parent} does not exist. {fix}")
    if str(path) != ":memory:":
        # Only the owner may read what is created here; SQLite gives -wal and -shm the same mode.
        with contextlib.suppress(OSError):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            # Resolved: O_EXCL follows no link, and SQLite would create the target with mode 0644.
            os.close(os.open(path.resolve(), flags, 0o600))
    try:
        connection = sqlite3.connect(
            str(path),
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        connection.execute("PRAGMA busy_timeout = 5000")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA cache_size = -65536")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute("PRAGMA busy_timeout = 0")
    except sqlite3.Error as error:
        raise StoreUnavailable(explain_open_failure(path, str(error))) from error
    if read_only:
        connection.execute("PRAGMA query_only = ON")
    return connection


def _translated(error: BaseException) -> BaseException:
    """Return Penstock's error for a SQLite error, or the error unchanged."""
    if not isinstance(error, sqlite3.Error):
        return error
    text = str(error)
    if isinstance(error, sqlite3.OperationalError):
        if "no such table" in text:
            return SchemaMismatch(f"{text}: run `penstock db migrate`")
        if text == "interrupted":
            return ReadTimeout(f"SQLite: {text}")
        if "locked" in text or "busy" in text:
            return StoreBusy(text)
        if any(part in text for part in ("full", "I/O", "unable to open", "readonly database")):
            fix = FULL if "full" in text else READ_ONLY if "readonly" in text else ""
            return StoreUnavailable(f"SQLite: {text} (pid {os.getpid()}). {fix}".strip())
    return error
