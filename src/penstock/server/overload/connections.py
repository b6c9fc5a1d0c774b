"""The connections of a server: their number, and the choice of one to close for a new one.

A new connection is always accepted, so that idle or slow clients cannot lock others out. At
the maximum the connection that has waited longest for its client is closed: first among those that
never had a request of a known caller, then among the others. A connection with a request in
progress is not closed. A client that does not read its responses is disconnected.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

SEND_SECONDS: Final = 30.0
"""Maximum time for a client to read everything that was sent to it."""
KEYLESS_RATE: Final = 50.0
"""Maximum rate per second of requests without a key or with a malformed one; further ones wait."""
GUESS_RATE: Final = 100.0
"""Maximum rate per second of requests with a well-formed but unknown key; further ones wait."""
BURST_SECONDS: Final = 0.4
RESPONSE_BYTES: Final = 262_144
"""Number of response bytes that count as one more request."""
FILES_RESERVED: Final = 256
"""Number of open files reserved for the database, the services and their requests."""
BACKLOG: Final = 256
"""Maximum number of connections that wait to be accepted. All of them may be accepted before one is
closed.
"""


def connections_max(wanted: int) -> int:
    """Return how many connections fit below the limit of open files, which is raised if allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + BACKLOG + FILES_RESERVED
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(wanted, soft - BACKLOG - FILES_RESERVED))


class Standing(Enum):
    """Trust in the credentials of a request before they are checked."""

    NONE = 0
    PLAUSIBLE = 1
    """A well-formed but unknown key: of a new caller, or guessed."""
    KNOWN = 2


class PacedQueue:
    """Starts requests at a bounded rate, round robin over client addresses, oldest first.

    A request whose client disconnects leaves the queue, so abandoned requests delay no other.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._waiting: dict[str, dict[object, Callable[[], None]]] = {}
        self._hosts: dict[object, str] = {}
        self._next_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def count(self) -> int:
        """Number of waiting requests."""
        return len(self._hosts)

    def enter(self, host: str, connection: object, start: Callable[[], None]) -> None:
        """Call `start` when it is the connection's turn; a connection has one request at a time."""
        loop = asyncio.get_running_loop()
        self._waiting.setdefault(host, {})[connection] = start
        self._hosts[connection] = host
        self._next_at = max(self._next_at, loop.time() - BURST_SECONDS)
        self._run(loop)

    def leave(self, connection: object) -> None:
        """Drop the request of a closed connection."""
        host = self._hosts.pop(connection, None)
        if host is not None:
            self._waiting[host].pop(connection)
            if not self._waiting[host]:
                del self._waiting[host]

    def count_sent(self, size: int) -> None:
        """Count the bytes of a response."""
        self._next_at += size / RESPONSE_BYTES / self._rate

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            return
        while self._waiting and self._next_at <= loop.time():
            self._next_at += 1 / self._rate
            host = next(iter(self._waiting))
            waiting = self._waiting.pop(host)
            connection = next(iter(waiting))
            start = waiting.pop(connection)
            del self._hosts[connection]
            if waiting:
                self._waiting[host] = waiting
            start()
        if self._waiting:
            self._timer = loop.call_at(self._next_at, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self._run(loop)


class ClientConnection(Protocol):
    """One connection of a client."""

    is_known: bool
    """Whether it has had a request of a known caller."""
    unsent_since: float | None
    """When the server began to wait for the client to read; None if everything is sent."""

    @property
    def unsent_bytes(self) -> int:
        """Number of bytes that the client has not read."""
        ...

    def abort(self) -> None:
        """Close the connection immediately."""
        ...


class ConnectionTable:
    """The connections of a server; used from its event loop."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._all: set[ClientConnection] = set()
        self._strangers: dict[ClientConnection, None] = {}
        """Connections without a known caller that wait for their client, oldest first."""
        self._idle: dict[ClientConnection, None] = {}
        """The other connections that wait for their client, oldest first."""
        self._paced = {
            Standing.NONE: PacedQueue(KEYLESS_RATE),
            Standing.PLAUSIBLE: PacedQueue(GUESS_RATE),
        }
        self.closed = 0
        """Number of connections that were closed in favour of new ones or for not reading."""

    @property
    def count(self) -> int:
        """Number of connections."""
        return len(self._all)

    def add(self, connection: ClientConnection) -> None:
        """Add a connection; at the maximum, close another one, or this one if all are busy."""
        if len(self._all) >= self.most:
            oldest = next(iter(self._strangers or self._idle), connection)
            self._close(oldest)
            if oldest is connection:
                return
        self._all.add(connection)
        self._strangers[connection] = None

    def remove(self, connection: ClientConnection) -> None:
        """Remove a closed connection; idempotent."""
        self._all.discard(connection)
        for queue in self._paced.values():
            queue.leave(connection)
        self.begin_work(connection)

    def begin_work(self, connection: ClientConnection) -> None:
        """Protect a connection from being closed while a request of it is in progress."""
        self._strangers.pop(connection, None)
        self._idle.pop(connection, None)

    def end_work(self, connection: ClientConnection) -> None:
        """Put a connection at the end of those that wait for their client."""
        self.begin_work(connection)
        if connection in self._all:
            (self._idle if connection.is_known else self._strangers)[connection] = None

    def pace(
        self, standing: Standing, host: str, connection: object, start: Callable[[], None]
    ) -> None:
        """Start a request of an unknown caller when the rate allows it."""
        self._paced[standing].enter(host, connection, start)

    def count_keyless(self, size: int) -> None:
        """Count the bytes of a response to a request without a key."""
        self._paced[Standing.NONE].count_sent(size)

    def sweep(self, now: float) -> None:
        """Close the connections whose clients have not read for too long."""
        for connection in list(self._all):
            if not connection.unsent_bytes:
                connection.unsent_since = None
            elif connection.unsent_since is None:
                connection.unsent_since = now
            elif now - connection.unsent_since > SEND_SECONDS:
                self._close(connection)

    def abort_all(self) -> None:
        """Close all connections immediately."""
        for connection in list(self._all):
            connection.abort()

    def _close(self, connection: ClientConnection) -> None:
        self.closed += 1
        self.remove(connection)
        connection.abort()
