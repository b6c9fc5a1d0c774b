"""The admission queue: decides which requests are served, wait or are rejected.

At most `concurrency` requests are served at once; more would only wait for each other. Further
requests are queued, up to `most` of both together. A short burst is served. Overload begins when a
request finds the queue full, or when no request has been admitted directly for a while although
requests ended; it ends when no request has been refused for a moment. A pause in which no request
ends (of the database, or of the process) is not overload: those that waited are served. Under
overload few requests may wait, and only briefly: accepted requests stay fast, and the others are
refused immediately. A caller with no more than its share of these requests is not rejected because
of other callers: the next request served is that of the caller with the fewest active ones. Used
from one event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final, NamedTuple

from penstock.core.clock import Clock

BURST_SECONDS: Final = 0.3
"""Time without a direct admission after which overload begins; a shorter time is a burst."""
PAUSE_SECONDS: Final = 0.05
"""Maximum time between the ends of two requests that counts towards `BURST_SECONDS`."""
RECOVERY_SECONDS: Final = 0.25
"""Time without a rejected request after which overload ends."""
OVERLOAD_WAIT_SECONDS: Final = 0.03
"""Maximum time in the queue under overload; a request that waited longer is rejected."""
STUCK_SECONDS: Final = 10.0
"""Time without progress, while all capacity is in use, after which the server is not ready."""
WAIT_SECONDS_MAX: Final = 2.0
"""Maximum time in the queue in any case."""


class _Waiter(NamedTuple):
    admitted: asyncio.Future[bool]
    queued_at: float
    patience: float
    caller: str


class AdmissionQueue:
    """Admits at most `concurrency` requests at a time."""

    def __init__(self, *, concurrency: int, most: int, clock: Clock) -> None:
        self._concurrency = min(concurrency, most)
        self._concurrency_in_overload = max(1, self._concurrency - 1)
        self._most = most
        self._clock = clock
        self._waiting: list[_Waiter] = []
        self._served: Counter[str] = Counter()
        """Number of active requests of each caller that has any."""
        self._present: Counter[str] = Counter()
        """Number of active and waiting requests of each caller that has any."""
        self._crowded_seconds = 0.0
        """How long requests have been queued without a direct admission, pauses excluded."""
        self._crowded_at: float | None = None
        """Until when that time is counted; None if a request was admitted directly since."""
        self._refused_at: float | None = None
        self._left_at = clock.monotonic()
        self.active = 0

    @property
    def is_stuck(self) -> bool:
        """Whether all capacity has been in use without any progress."""
        idle = self._clock.monotonic() - self._left_at
        return self.active >= self._concurrency and idle > STUCK_SECONDS

    @property
    def has_capacity(self) -> bool:
        """Whether a new request is admitted directly."""
        if self.active < self._concurrency_in_overload:
            return True
        return self.active < self._concurrency and not self._is_overload()

    def refuses(self, caller: str = "") -> bool:
        """Return whether a caller's new request is refused immediately, and count the refusal."""
        if self.has_capacity:
            return False
        # Under overload the queue holds no more requests than can be served next.
        total = self.active + len(self._waiting)
        if total < self._bound():
            return False
        if total < self._most and self._present[caller] < self._share(caller):
            return False
        self._refused_at = self._clock.monotonic()
        return True

    async def enter(self, patience: float = OVERLOAD_WAIT_SECONDS, caller: str = "") -> bool:
        """Admit a request, directly or after queueing; return False if it is refused."""
        if self.refuses(caller):
            return False
        if self.has_capacity:
            self.reenter(caller)
            self._crowded_seconds, self._crowded_at = 0.0, None
            return True
        now = self._clock.monotonic()
        if self._crowded_at is None:
            self._crowded_at = now
        admitted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(admitted, now, patience, caller)
        self._waiting.append(waiter)
        self._present[caller] += 1
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                return await admitted
        except TimeoutError:
            if admitted.cancelled():
                self._refused_at = self._clock.monotonic()
            return not admitted.cancelled() and admitted.result()
        except BaseException:
            if admitted.done() and not admitted.cancelled() and admitted.result():
                self.leave(caller)
            raise
        finally:
            if waiter in self._waiting:  # it timed out, or its client is gone
                self._remove(waiter)

    def leave(self, caller: str = "") -> None:
        """End a request of a caller, and admit the next one that has not waited too long."""
        self.active -= 1
        _decrease(self._served, caller)
        _decrease(self._present, caller)
        now = self._left_at = self._clock.monotonic()
        if self._crowded_at is not None:
            self._crowded_seconds, self._crowded_at = self._crowded_until(now), now
        while self._waiting and self.has_capacity:
            waiter = min(self._waiting, key=lambda one: self._served[one.caller])
            is_modest = self._present[waiter.caller] <= self._share(waiter.caller)
            is_in_time = now - waiter.queued_at <= waiter.patience
            is_alone = len(self._present) == 1
            self._remove(waiter)
            if waiter.admitted.done():
                continue
            is_served = not self._is_overload() or is_in_time or (is_modest and not is_alone)
            waiter.admitted.set_result(is_served)
            if is_served:
                self.reenter(waiter.caller)
            else:
                self._refused_at = now

    def reenter(self, caller: str = "") -> None:
        """Count a request, or a resumed long poll, as active, even above the limit."""
        self.active += 1
        self._served[caller] += 1
        self._present[caller] += 1

    def _bound(self) -> int:
        """Return how many requests may be active or wait."""
        most = 2 * self._concurrency_in_overload if self._is_overload() else self._most
        return min(most, self._most)

    def _share(self, caller: str) -> int:
        """Return how many of them each caller may always have if there are several callers."""
        callers = len(self._present) + (caller not in self._present)
        return max(1, self._bound() // callers)

    def _remove(self, waiter: _Waiter) -> None:
        self._waiting.remove(waiter)
        _decrease(self._present, waiter.caller)

    def _is_overload(self) -> bool:
        now = self._clock.monotonic()
        if self._refused_at is not None and now - self._refused_at < RECOVERY_SECONDS:
            return True
        return self._crowded_until(now) > BURST_SECONDS

    def _crowded_until(self, now: float) -> float:
        if self._crowded_at is None:
            return 0.0
        return self._crowded_seconds + min(now - self._crowded_at, PAUSE_SECONDS)


def _decrease(counts: Counter[str], caller: str) -> None:
    counts[caller] -= 1
    if counts[caller] <= 0:
        del counts[caller]
