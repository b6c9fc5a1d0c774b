"""The admission queue: which requests are served, which wait, and which are refused.

At most `concurrency` requests are served at once; more would only wait for each other. Further
requests are queued, up to `most` of both together. A short burst is served. Overload begins when a
request finds the queue full, or when no request has been admitted directly for a while; it ends
when no request has been refused for a moment. Under overload few requests may wait, and only
briefly: accepted requests stay fast, and the others are refused at once. Used from one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from penstock.core.clock import Clock

BURST_SECONDS: Final = 0.3
"""Overload begins if no request was admitted directly for this long; shorter is a burst."""
RECOVERY_SECONDS: Final = 0.25
"""Overload ends if no request was refused for this long."""
OVERLOAD_WAIT_SECONDS: Final = 0.03
"""Longest time in the queue under overload; a request that waited longer is refused."""
STUCK_SECONDS: Final = 10.0
"""The server is not ready if all capacity is in use and none was returned for this long."""
WAIT_SECONDS_MAX: Final = 2.0
"""Longest time in the queue in any case."""


class _Waiter(NamedTuple):
    admitted: asyncio.Future[bool]
    queued_at: float
    patience: float


class AdmissionQueue:
    """Admits at most `concurrency` requests at a time."""

    def __init__(self, *, concurrency: int, most: int, clock: Clock) -> None:
        self._concurrency = min(concurrency, most)
        self._concurrency_in_overload = max(1, self._concurrency - 1)
        self._most = most
        self._clock = clock
        self._waiting: deque[_Waiter] = deque()
        self._crowded_since: float | None = None
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

    def refuses(self) -> bool:
        """Return whether a new request is refused at once, and count the refusal."""
        if self.has_capacity:
            return False
        # Under overload the queue holds no more requests than can be served next.
        most = 2 * self._concurrency_in_overload if self._is_overload() else self._most
        if self.active + len(self._waiting) < min(most, self._most):
            return False
        self._refused_at = self._clock.monotonic()
        return True

    async def enter(self, patience: float = OVERLOAD_WAIT_SECONDS) -> bool:
        """Admit a request, directly or after queueing; return False if it is refused."""
        if self.refuses():
            return False
        if self.has_capacity:
            self.active += 1
            self._crowded_since = None
            return True
        now = self._clock.monotonic()
        if self._crowded_since is None:
            self._crowded_since = now
        admitted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiter(admitted, now, patience))
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                return await admitted
        except TimeoutError:
            if admitted.cancelled():
                self._refused_at = self._clock.monotonic()
            return not admitted.cancelled() and admitted.result()
        except BaseException:
            if admitted.done() and not admitted.cancelled() and admitted.result():
                self.leave()
            raise

    def leave(self) -> None:
        """End a request, and admit the next one that has not waited too long."""
        self.active -= 1
        now = self._left_at = self._clock.monotonic()
        while self._waiting and self.has_capacity:
            admitted, queued_at, patience = self._waiting.popleft()
            if admitted.done():  # its client is gone
                continue
            is_served = not self._is_overload() or now - queued_at <= patience
            admitted.set_result(is_served)
            if is_served:
                self.active += 1
            else:
                self._refused_at = now

    def reenter(self) -> None:
        """Count a resumed long poll as active again, even above the limit."""
        self.active += 1

    def _is_overload(self) -> bool:
        now = self._clock.monotonic()
        if self._refused_at is not None and now - self._refused_at < RECOVERY_SECONDS:
            return True
        return self._crowded_since is not None and now - self._crowded_since > BURST_SECONDS
