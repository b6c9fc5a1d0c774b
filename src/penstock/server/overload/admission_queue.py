"""The line: which requests are worked on, which wait for it, and which are told to come again.

As many as there are `slots` are worked on; more at a time would only wait for each other. Others
stand in line, at most `most` of both. A burst is served. It is a flood when somebody found the line
full, or nobody a free place for a while; it is over when nobody was refused for a moment. In a
flood few may wait, and not for long: those that are accepted stay quick, and those that are not
know at once. Used from one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from penstock.core.clock import Clock

BURST_SECONDS: Final = 0.3
"""Nobody found a free place for so long: that is a flood. Before, it is a burst, and served."""
CALM_SECONDS: Final = 0.25
"""Nobody was refused for so long: the flood is over."""
PATIENCE_SECONDS: Final = 0.03
"""How long a request may have waited for its place, in a flood; who waited longer is refused."""
WAIT_SECONDS_MAX: Final = 2.0
"""Nobody waits longer, whatever holds up those in front."""


class _Place(NamedTuple):
    mine: asyncio.Future[bool]
    came: float
    patience: float


class Line:
    """Places for requests."""

    def __init__(self, *, slots: int, most: int, clock: Clock) -> None:
        self._slots = min(slots, most)
        self._slots_in_flood = max(1, self._slots - 1)
        self._most = most
        self._clock = clock
        self._waiting: deque[_Place] = deque()
        self._crowded_since: float | None = None
        self._refused_at: float | None = None
        self.active = 0

    @property
    def has_free_place(self) -> bool:
        """Whether whoever comes now is served at once."""
        if self.active < self._slots_in_flood:
            return True
        return self.active < self._slots and not self._is_flood()

    def turns_away(self) -> bool:
        """Whether whoever comes now is refused at once; if so, that counts as a refusal."""
        if self.has_free_place:
            return False
        # In a flood a line of more than one turn is not worth standing in.
        most = 2 * self._slots_in_flood if self._is_flood() else self._most
        if self.active + len(self._waiting) < min(most, self._most):
            return False
        self._refused_at = self._clock.monotonic()
        return True

    async def enter(self, patience: float = PATIENCE_SECONDS) -> bool:
        """Take a place, at once or after waiting for it; False for who has to come again."""
        if self.turns_away():
            return False
        if self.has_free_place:
            self.active += 1
            self._crowded_since = None
            return True
        now = self._clock.monotonic()
        if self._crowded_since is None:
            self._crowded_since = now
        mine: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Place(mine, now, patience))
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                return await mine
        except TimeoutError:
            if mine.cancelled():
                self._refused_at = self._clock.monotonic()
            return not mine.cancelled() and mine.result()
        except BaseException:
            if mine.done() and not mine.cancelled() and mine.result():
                self.leave()
            raise

    def leave(self) -> None:
        """Give a place up, to the next in line that has not waited too long for it."""
        self.active -= 1
        now = self._clock.monotonic()
        while self._waiting and self.has_free_place:
            mine, came, patience = self._waiting.popleft()
            if mine.done():  # who stood here is gone
                continue
            is_served = not self._is_flood() or now - came <= patience
            mine.set_result(is_served)
            if is_served:
                self.active += 1
            else:
                self._refused_at = now

    def come_back(self) -> None:
        """Somebody who left to wait for something else goes on, free place or not."""
        self.active += 1

    def _is_flood(self) -> bool:
        now = self._clock.monotonic()
        if self._refused_at is not None and now - self._refused_at < CALM_SECONDS:
            return True
        return self._crowded_since is not None and now - self._crowded_since > BURST_SECONDS
