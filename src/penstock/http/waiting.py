"""Waiting for work without hammering: the long polls of this process, one line for each pool.

A claim that finds nothing may wait. A hint on the pool's channel, or a second's timer in case one
was lost, lets the front of the line try again, and the next as long as claims find something. So
any number of waiting workers costs one look per hint. Waiting takes no thread; a waiter whose
connection is gone leaves the line.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

T = TypeVar("T")
LOOK_SECONDS: Final = 1.0


class Hints(Protocol):
    """What brings wake-ups: a waiter of the store."""

    def wait(self, seconds: float) -> bool:
        """Wait until woken or until `seconds` passed; True when woken."""
        ...

    def interrupt(self) -> None:
        """Wake it now."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class _Line:
    """The waiters of one pool, and the thread that hears its hints."""

    def __init__(self, hints: Hints, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self.waiters: deque[asyncio.Future[None]] = deque()
        self._hints = hints
        self._loop = loop
        self._closed = False
        self._thread = threading.Thread(
            target=self._hear, name=f"penstock-poll-{name}", daemon=True
        )
        self._thread.start()

    def call(self) -> None:
        """Let the first waiter try."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def wake_all(self) -> None:
        """Let every waiter try, from any thread."""

        def all_now() -> None:
            for _ in range(len(self.waiters)):
                self.call()

        with contextlib.suppress(RuntimeError):  # the loop is closing
            self._loop.call_soon_threadsafe(all_now)

    def close(self) -> None:
        """Let everybody go."""
        self._closed = True
        self._hints.interrupt()
        self._thread.join(timeout=5)
        self._hints.close()
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.waiters.clear()

    def _hear(self) -> None:
        while not self._closed:
            self._hints.wait(LOOK_SECONDS)
            with contextlib.suppress(RuntimeError):  # the loop is closing
                self._loop.call_soon_threadsafe(self.call)


class Waiting:
    """The lines of a process, by pool."""

    def __init__(self, listen: Callable[[str], Hints]) -> None:
        """`listen` opens the hints of a pool's channel."""
        self._listen = listen
        self._lines: dict[str, _Line] = {}
        self._counts: defaultdict[str, int] = defaultdict(int)
        self.is_stopping = False

    @property
    def count(self) -> int:
        """How many wait now."""
        return sum(self._counts.values())

    async def until(
        self, pool: str, seconds: float, attempt: Callable[[], Awaitable[list[T]]]
    ) -> list[T]:
        """Try, and wait for the pool's next hint, until something was found or time is up."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        self._counts[pool] += 1
        try:
            while True:
                line = self._line(pool, loop)
                # In line before the look: a hint between the two is not lost.
                place: asyncio.Future[None] = loop.create_future()
                line.waiters.append(place)
                found = await attempt()
                if found:
                    if place.done():
                        line.call()  # the hint was for somebody who needs it
                    else:
                        place.cancel()
                    if line.waiters:
                        line.call()  # there may be more where this came from
                    return found
                left = deadline - loop.time()
                if left <= 0 or self.is_stopping:
                    place.cancel()
                    return []
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(place, left)
        finally:
            self._counts[pool] -= 1

    def release(self) -> None:
        """Let everybody who waits look once more, from any thread; once stopping, they leave."""
        for line in list(self._lines.values()):
            line.wake_all()

    def close(self) -> None:
        """Answer everybody who waits, with nothing."""
        self.is_stopping = True
        for line in self._lines.values():
            line.close()
        self._lines.clear()

    def _line(self, pool: str, loop: asyncio.AbstractEventLoop) -> _Line:
        if pool not in self._lines:
            self._lines[pool] = _Line(self._listen(pool), loop, pool)
        return self._lines[pool]
