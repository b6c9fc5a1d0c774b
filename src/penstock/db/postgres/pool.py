"""Connections to PostgreSQL, as many as allowed, opened by whoever needs one.

No threads and no waiting in the background: a connection is opened by the caller, who learns at
once when the server is away and can back off on its own terms. What turns out dead is thrown away
together with everything idle, because a restart kills all of them.

A connection that changes between roles plans its statements anew (measured: twice the time), so
confined transactions get one that was confined before, as long as the limit leaves a choice.
"""

from __future__ import annotations

import contextlib
import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from penstock.core.errors import StoreBusy, StoreUnavailable
from penstock.db.postgres.pipeline import Session

CONNECT_SECONDS = 5
WAIT_SECONDS = 10.0


class ConnectionPool:
    """Hands out connections; the most recently used first."""

    def __init__(self, connect: Callable[[], Session], *, size: int) -> None:
        """A pool that opens at most `size` connections with `connect`."""
        self.timeout = WAIT_SECONDS
        self._connect = connect
        self._size = size
        self._room = threading.Semaphore(size)
        self._lock = threading.Lock()
        self._used = 0
        self._idle: dict[bool, deque[Session]] = {False: deque(), True: deque()}
        self._closed = False

    @contextlib.contextmanager
    def connection(self, *, confined: bool = False) -> Iterator[Session]:
        """A connection for the length of the block."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if not self._room.acquire(timeout=self.timeout):
            raise StoreBusy(f"PostgreSQL: no connection became free within {self.timeout:g} s")
        try:
            connection = self._take(confined) or self._connect()
            try:
                yield connection
            finally:
                self._give_back(connection, confined)
        finally:
            with self._lock:
                self._used -= 1
            self._room.release()

    def forget_idle(self) -> None:
        """Close what is idle: one dead connection means that the others are dead too."""
        for idle in self._idle.values():
            with contextlib.suppress(IndexError):
                while True:
                    idle.pop().close()

    def close(self) -> None:
        """Close every idle connection; those in use are closed when they come back."""
        self._closed = True
        self.forget_idle()

    def _take(self, confined: bool) -> Session | None:
        """An idle connection of the kind, else any when no other may be opened; None: open one."""
        with self._lock:
            self._used += 1
            is_full = self._used + sum(map(len, self._idle.values())) > self._size
            with contextlib.suppress(IndexError):
                return self._idle[confined].pop()
            with contextlib.suppress(IndexError):
                return self._idle[not confined].popleft() if is_full else None
        return None

    def _give_back(self, connection: Session, confined: bool) -> None:
        is_usable = (
            not connection.closed
            and not self._closed
            and connection.info.transaction_status is TransactionStatus.IDLE
        )
        if is_usable:
            self._idle[confined].append(connection)
        else:
            with contextlib.suppress(psycopg.Error):
                connection.close()


def is_quiet(connection: Session) -> bool:
    """Whether nothing waits to be read: a server that ends an idle connection says so first."""
    if sys.platform == "win32":
        return False  # no poll there; select elsewhere fails beyond 1,024 open files
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)


def connect(dsn: str, name: str, **options: Any) -> Session:
    """A connection in autocommit mode, named for `pg_stat_activity`."""
    return Session.connect(
        dsn,
        autocommit=True,
        application_name=name,
        connect_timeout=CONNECT_SECONDS,
        client_encoding="utf8",
        **options,
    )
