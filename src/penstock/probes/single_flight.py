"""Remembered looks: one in the air per question, and its result kept for a while.

A flight is known by its key from the moment it is asked for. Whoever asks for the same key joins
it; a result serves until it is `keep_us` old, counted from the start of its flight, because that is
the last moment whose data it surely saw. A flight that failed serves those who joined it and
nobody after them. Time is the injected clock's; threads are the caller's executor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from penstock.core.clock import SECOND, Clock, Micros

T = TypeVar("T")

KEEP: Final[Micros] = 300 * SECOND
ENTRIES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Flight(Generic[T]):
    future: Future[T]
    began: Micros


class Flights(Generic[T]):
    """Flights by key; safe to share between threads."""

    def __init__(
        self,
        executor: Executor,
        clock: Clock,
        *,
        keep_us: Micros = KEEP,
        entries_max: int = ENTRIES_MAX,
    ) -> None:
        self._executor = executor
        self._clock = clock
        self._keep = keep_us
        self._max = entries_max
        self._lock = threading.Lock()
        self._flights: dict[Hashable, _Flight[T]] = {}

    def join(
        self, key: Hashable, make: Callable[[Micros], T], *, since: Micros | None = None
    ) -> Future[T]:
        """Return the flight of a key; `make(began)` is called on the executor if there is none.

        since: a flight that began before does not count, in the air or landed.
        """
        with self._lock:
            now = self._clock.now()
            flight = self._flights.get(key)
            if flight is not None and self._serves(flight, now, since):
                return flight.future
            self._make_room(now)
            future = self._executor.submit(make, now)
            # The latest flight goes to the end, so that the oldest is dropped first.
            self._flights.pop(key, None)
            self._flights[key] = _Flight(future, now)
        future.add_done_callback(lambda done: self._landed(key, done))
        return future

    def _serves(self, flight: _Flight[T], now: Micros, since: Micros | None) -> bool:
        if since is not None and flight.began < since:
            return False
        if not flight.future.done():
            return True
        if flight.future.cancelled() or flight.future.exception() is not None:
            return False
        # A clock that was set back makes no result live for ever.
        return 0 <= now - flight.began < self._keep

    def _landed(self, key: Hashable, done: Future[T]) -> None:
        if not done.cancelled() and done.exception() is None:
            return
        with self._lock:
            flight = self._flights.get(key)
            if flight is not None and flight.future is done:
                del self._flights[key]

    def _make_room(self, now: Micros) -> None:
        if len(self._flights) < self._max:
            return
        live = {key: f for key, f in self._flights.items() if self._serves(f, now, None)}
        keep = list(live.items())[-(self._max // 2) :]
        self._flights = dict(keep)
