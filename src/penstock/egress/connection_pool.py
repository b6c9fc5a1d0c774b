"""Pool of idle connections, kept a few seconds for the next request to the same origin.

A pooled connection goes to an address that was checked when it was opened. It serves one request at
a time and only for a limited time (so that DNS changes take effect). A connection that the server
closed, or that has unread data, is discarded.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from penstock.core.clock import Clock

IDLE_SECONDS: Final = 4.0
"""Idle time after which a connection is closed; below the five seconds of common servers."""
AGE_SECONDS: Final = 60.0
POOL_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class IdleConnection:
    """A connection to an origin; `opened_at` and `idle_since` are monotonic times."""

    origin: str
    raw: socket.socket
    opened_at: float
    idle_since: float


class IdleConnections:
    """Idle connections by origin; safe to use from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: OrderedDict[int, IdleConnection] = OrderedDict()

    def take(self, origin: str) -> IdleConnection | None:
        """Remove and return the newest usable connection to an origin; None if there is none."""
        with self._lock:
            self._drop_old()
            keys = [key for key, one in self._open.items() if one.origin == origin]
            while keys:
                one = self._open.pop(keys.pop())
                if _is_idle(one.raw):
                    return one
                one.raw.close()
        return None

    def put(self, origin: str, raw: socket.socket, made_at: float | None) -> None:
        """Keep a connection whose response was read to its end."""
        now = self._clock.monotonic()
        with self._lock:
            self._open[id(raw)] = IdleConnection(
                origin, raw, now if made_at is None else made_at, now
            )
            self._drop_old()

    def close(self) -> None:
        """Close all idle connections."""
        with self._lock:
            for one in self._open.values():
                one.raw.close()
            self._open.clear()

    def __del__(self) -> None:
        """Close idle connections if `close` was not called."""
        self.close()

    def _drop_old(self) -> None:
        now = self._clock.monotonic()
        over = len(self._open) - POOL_MAX
        for key, one in list(self._open.items()):
            is_old = now - one.idle_since > IDLE_SECONDS or now - one.opened_at > AGE_SECONDS
            if is_old or over > 0:
                over -= 1
                del self._open[key]
                one.raw.close()


def _is_idle(raw: socket.socket) -> bool:
    """Return whether nothing can be read: neither data nor the end of the stream."""
    if isinstance(raw, ssl.SSLSocket) and raw.pending():
        return False
    poll = select.poll()
    poll.register(raw, select.POLLIN)
    return not poll.poll(0)
