"""Connections to a test database that outlive the store which opened them.

A new connection fills its caches of the catalogs and plans every statement again, which takes
longer than most tests. A store of the fixture `open_store` therefore leaves its idle connections to
the next store on the same database. A session is reset before another test uses it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg
from psycopg.pq import TransactionStatus

from penstock.db.postgres.pipeline import PostgresSession
from penstock.db.postgres.pool import ConnectionPool
from penstock.db.postgres.store import PostgresStore

# Settings given at the start of a connection stay; `SET` and what else a test did does not.
RESET = (
    "RESET SESSION AUTHORIZATION; RESET ALL; RESET ROLE; UNLISTEN *; DISCARD TEMP; "
    "DISCARD SEQUENCES; SELECT pg_advisory_unlock_all()"
)
KEPT_MAX = 4


class WarmConnections:
    """Idle connections to one database, by the session type that they have."""

    def __init__(self) -> None:
        self._idle: list[PostgresSession] = []

    def take(self, name: str, is_pipelined: bool) -> PostgresSession | None:
        """Return a connection of that kind, the most recently used first."""
        for place in range(len(self._idle) - 1, -1, -1):
            one = self._idle[place]
            if one.info.parameter_status("application_name") != name:
                continue
            if (type(one) is PostgresSession) is is_pipelined:
                return self._idle.pop(place)
        return None

    def keep(self, connection: PostgresSession) -> None:
        """Keep an idle connection of a closed store, or close it."""
        is_idle = connection.info.transaction_status is TransactionStatus.IDLE
        if not connection.closed and is_idle and len(self._idle) < KEPT_MAX:
            self._idle.append(connection)
        else:
            connection.close()

    def reset(self) -> Iterator[int]:
        """Reset every connection; yield the process ids of those that can be used again."""
        found, self._idle = self._idle, []
        for one in found:
            try:
                one.execute(RESET)
            except psycopg.Error:
                one.close()
            else:
                self._idle.append(one)
                yield one.info.backend_pid

    def close(self) -> None:
        """Close every connection."""
        while self._idle:
            self._idle.pop().close()

    def lent(self, store: PostgresStore) -> PostgresStore:
        """Let a new store take these connections, and return them when it closes."""
        store._pool = _WarmPool(store, self)
        return store


class _WarmPool(ConnectionPool):
    """A pool that starts with the connections of an earlier one."""

    def __init__(self, store: PostgresStore, warm: WarmConnections) -> None:
        former = store._pool
        super().__init__(self._open, size=former._size)
        self._warm = warm
        self._name = store._name
        self._is_pipelined = store._is_pipelined
        self._open_new = former._connect

    def close(self) -> None:
        """Keep the idle connections instead of closing them."""
        self._closed = True
        for idle in self._idle.values():
            with contextlib.suppress(IndexError):
                while True:
                    self._warm.keep(idle.pop())

    def _open(self) -> PostgresSession:
        return self._warm.take(self._name, self._is_pipelined) or self._open_new()
