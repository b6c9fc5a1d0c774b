"""Connections that are kept for the next request to the same origin, for a few seconds.

A kept connection goes to an address that was judged when it was made. It is used by one request at
a time, not for long (so that a name that moves is followed), and not when the other side has closed
it or sent something nobody asked for: what is not silent is dropped.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from penstock.core.clock import Clock

IDLE_SECONDS: Final = 4.0
"""Below the five seconds after which common servers close a quiet connection."""
AGE_SECONDS: Final = 60.0
KEPT_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Open:
    """A connection to an origin, and since when it is there and quiet."""

    origin: str
    raw: socket.socket
    made_at: float
    quiet_at: float


class Kept:
    """Idle connections by origin; safe to use from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: OrderedDict[int, Open] = OrderedDict()

    def take(self, origin: str) -> Open | None:
        """The latest connection to an origin that is young and silent; it is the caller's now."""
        with self._lock:
            self._drop_old()
            places = [place for place, one in self._open.items() if one.origin == origin]
            while places:
                one = self._open.pop(places.pop())
                if _is_silent(one.raw):
                    return one
                one.raw.close()
        return None

    def put(self, origin: str, raw: socket.socket, made_at: float | None) -> None:
        """Keep a connection whose answer was read to its end."""
        now = self._clock.monotonic()
        with self._lock:
            self._open[id(raw)] = Open(origin, raw, now if made_at is None else made_at, now)
            self._drop_old()

    def close(self) -> None:
        """Close what is idle."""
        with self._lock:
            for one in self._open.values():
                one.raw.close()
            self._open.clear()

    def __del__(self) -> None:
        """Whoever forgets to close leaves no open connection behind."""
        self.close()

    def _drop_old(self) -> None:
        now = self._clock.monotonic()
        over = len(self._open) - KEPT_MAX
        for place, one in list(self._open.items()):
            is_old = now - one.quiet_at > IDLE_SECONDS or now - one.made_at > AGE_SECONDS
            if is_old or over > 0:
                over -= 1
                del self._open[place]
                one.raw.close()


def _is_silent(raw: socket.socket) -> bool:
    """Nothing waits to be read: neither bytes nor the end."""
    if isinstance(raw, ssl.SSLSocket) and raw.pending():
        return False
    with selectors.DefaultSelector() as watch:
        watch.register(raw, selectors.EVENT_READ)
        return not watch.select(0)
