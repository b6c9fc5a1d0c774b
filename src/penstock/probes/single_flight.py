"""Shared probe results: at most one running call per key, and its result cached for a while.

A call can be joined from the moment it is submitted: further requests for the same key receive the
same future. A result is used until it is `keep_us` old, counted from the start of its call, because
it is only certain to include data up to that time. A failed call is shared with the requests that
joined it and with no later ones. Time comes from the injected clock; threads from the caller's
executor.
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
class _Call(Generic[T]):
    future: Future[T]
    began: Micros


class SingleFlight(Generic[T]):
    """Calls by key; safe to share between threads."""

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
        self._calls: dict[Hashable, _Call[T]] = {}

    def join(
        self, key: Hashable, make: Callable[[Micros], T], *, since: Micros | None = None
    ) -> Future[T]:
        """Return the future of a key's call; submit `make(began)` to the executor if there is none.

        since: ignore calls that began before this time, running or finished.
        """
        with self._lock:
            now = self._clock.now()
            call = self._calls.get(key)
            if call is not None and self._serves(call, now, since):
                return call.future
            self._evict(now)
            future = self._executor.submit(make, now)
            # The newest call goes to the end, so that the oldest is dropped first.
            self._calls.pop(key, None)
            self._calls[key] = _Call(future, now)
        future.add_done_callback(lambda done: self._on_done(key, done))
        return future

    def _serves(self, call: _Call[T], now: Micros, since: Micros | None) -> bool:
        if since is not None and call.began < since:
            return False
        if not call.future.done():
            return True
        if call.future.cancelled() or call.future.exception() is not None:
            return False
        # A clock that was set back must not keep a result valid forever.
        return 0 <= now - call.began < self._keep

    def _on_done(self, key: Hashable, done: Future[T]) -> None:
        if not done.cancelled() and done.exception() is None:
            return
        with self._lock:
            call = self._calls.get(key)
            if call is not None and call.future is done:
                del self._calls[key]

    def _evict(self, now: Micros) -> None:
        if len(self._calls) < self._max:
            return
        live = {key: f for key, f in self._calls.items() if self._serves(f, now, None)}
        keep = list(live.items())[-(self._max // 2) :]
        self._calls = dict(keep)
