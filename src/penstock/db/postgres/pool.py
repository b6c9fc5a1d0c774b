"""A pool of PostgreSQL connections that are opened by the calling thread, up to a maximum.

There are no background threads: the caller opens a connection itself, finds out immediately if the
server is unavailable, and decides how to back off. When one connection turns out to be dead, all
idle connections are closed too, because a server restart kills all of them.

A connection that switches roles has to plan its statements again (measured: twice the time), so
tenant transactions get a connection that was used for tenants before, unless the pool is exhausted.
"""

from __future__ import annotations

import contextlib
import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator

import psycopg
from psycopg.pq import TransactionStatus

from penstock.core.errors import StoreBusy, StoreUnavailable
from penstock.db.postgres.pipeline import PostgresSession

WAIT_TIMEOUT_S = 10.0


class ConnectionPool:
    """Provides connections, most recently used first."""

    def __init__(self, connect: Callable[[], PostgresSession], *, size: int) -> None:
        """Create a pool that opens at most `size` connections with `connect`."""
        self.timeout = WAIT_TIMEOUT_S
        self._connect = connect
        self._size = size
        self._permits = threading.Semaphore(size)
        self._lock = threading.Lock()
        self._used = 0
        self._idle: dict[bool, deque[PostgresSession]] = {False: deque(), True: deque()}
        self._closed = False

    @contextlib.contextmanager
    def connection(
        self, *, confined: bool = False, within: float | None = None
    ) -> Iterator[PostgresSession]:
        """Yield a connection for the block; wait at most `within` seconds for a free one."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        timeout = self.timeout if within is None else min(within, self.timeout)
        if not self._permits.acquire(timeout=timeout):
            raise StoreBusy(f"PostgreSQL: no connection became free within {timeout:g} s")
        try:
            connection = self._take(confined) or self._connect()
            try:
                yield connection
            finally:
                self._give_back(connection, confined)
        finally:
            with self._lock:
                self._used -= 1
            self._permits.release()

    def add(self, connection: PostgresSession) -> None:
        """Take over an idle connection that was opened elsewhere."""
        self._idle[False].append(connection)

    def forget_idle(self) -> None:
        """Close all idle connections. If one connection is dead, the others most likely are too."""
        for idle in self._idle.values():
            with contextlib.suppress(IndexError):
                while True:
                    idle.pop().close()

    def close(self) -> None:
        """Close all idle connections. Connections in use are closed when they are returned."""
        self._closed = True
        self.forget_idle()

    def _take(self, confined: bool) -> PostgresSession | None:
        """Return an idle connection, of any kind if the pool is full; None to open a new one."""
        with self._lock:
            self._used += 1
            is_full = self._used + sum(map(len, self._idle.values())) > self._size
            with contextlib.suppress(IndexError):
                return self._idle[confined].pop()
            with contextlib.suppress(IndexError):
                return self._idle[not confined].popleft() if is_full else None
        return None

    def _give_back(self, connection: PostgresSession, confined: bool) -> None:
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


def has_no_input(connection: PostgresSession) -> bool:
    """Whether no input is pending. A server that ends an idle connection sends a message first."""
    if sys.platform == "win32":
        return False  # Windows has no poll; elsewhere, select fails beyond 1,024 open files
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)
