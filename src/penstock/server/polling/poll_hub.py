"""Waiting for work without hammering: the long polls of this process, one line for each question.

A claim or a pull that finds nothing may wait. A hint on its channel, or a second's timer in case
one was lost, lets the front of each line try again, and the next as long as they find something.
Those who would be given the same (one pool, the same processors, the same customer) stand in one
line, so any number of like workers costs one look per hint, and nobody's look is spent on a run
that is not for them. Waiting takes no thread; a waiter whose connection is gone leaves the line.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
LOOK_SECONDS: Final = 1.0


class Question(NamedTuple):
    """What a waiter would take: hinted at on a channel, of these processors, this customer's."""

    channel: str
    processors: frozenset[str] = frozenset()
    customer: str | None = None
    is_lasting: bool = True
    """Whether its channel is listened to also when nobody waits: one of few, not of thousands."""


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
    """Waiters with one question, the longest waiting first."""

    def __init__(self) -> None:
        self._waiters: deque[asyncio.Future[None]] = deque()

    def join(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """A place at the end; it is done when its holder is called."""
        place: asyncio.Future[None] = loop.create_future()
        self._waiters.append(place)
        return place

    def call(self) -> bool:
        """Let the first who still waits try; False when nobody does."""
        while self._waiters:
            place = self._waiters.popleft()
            if not place.done():
                place.set_result(None)
                return True
        return False

    def leave(self, place: asyncio.Future[None]) -> None:
        """Give a place up; a call that was meant for it goes to the next."""
        if place.done():
            self.call()
        else:
            place.cancel()


class _Pool:
    """The lines of one channel, and the thread that hears its hints."""

    def __init__(self, hints: Hints, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._lines: dict[Question, _Line] = {}
        self._hints = hints
        self._loop = loop
        self._closed = False
        self.waiters = 0
        self._thread = threading.Thread(
            target=self._hear, name=f"penstock-poll-{name}", daemon=True
        )
        self._thread.start()

    def line(self, question: Question) -> _Line:
        """The line for a question."""
        return self._lines.setdefault(question, _Line())

    def call(self) -> None:
        """Let the front of each line try; a line in which nobody waits is forgotten."""
        for question, line in list(self._lines.items()):
            if not line.call():
                del self._lines[question]

    def wake_all(self) -> None:
        """Let every waiter try, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closing
            self._loop.call_soon_threadsafe(self._call_all)

    def close(self) -> None:
        """Let everybody go."""
        self.retire()
        self._thread.join(timeout=5)
        self._call_all()

    def retire(self) -> None:
        """End the thread, which closes its ears; nobody waits any more."""
        self._closed = True
        self._hints.interrupt()

    def _call_all(self) -> None:
        for line in list(self._lines.values()):
            while line.call():
                pass

    def _hear(self) -> None:
        while not self._closed:
            self._hints.wait(LOOK_SECONDS)
            with contextlib.suppress(RuntimeError):  # the loop is closing
                self._loop.call_soon_threadsafe(self.call)
        self._hints.close()


class Waiting:
    """The channels of a process on which somebody waits."""

    def __init__(self, listen: Callable[[str], Hints]) -> None:
        """`listen` opens the hints of a channel."""
        self._listen = listen
        self._pools: dict[str, _Pool] = {}
        self.count = 0
        """How many wait now."""
        self.is_stopping = False

    async def until(
        self,
        question: Question,
        seconds: float,
        attempt: Callable[[], Awaitable[list[T]]],
        gone: asyncio.Future[None],
    ) -> list[T]:
        """Try, and wait for the next hint, until something was found or time is up.

        `gone` is done when nobody would hear the answer any more: then nothing is taken.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        # The first look comes before the pool is listened to: one that does not exist is refused.
        if question.channel not in self._pools and (found := await attempt()):
            return found
        self.count += 1
        pool = self._pool(question.channel, loop)
        pool.waiters += 1
        try:
            while not gone.done():
                line = pool.line(question)
                # In line before the look: a hint between the two is not lost.
                place = line.join(loop)
                goes_on = False
                try:
                    if found := await attempt():
                        line.call()  # there may be more where this came from
                        return found
                    left = deadline - loop.time()
                    if left <= 0 or self.is_stopping:
                        return []
                    await asyncio.wait(
                        {place, gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED
                    )
                    goes_on = place.done() and not gone.done()
                finally:
                    if not goes_on:
                        line.leave(place)
            return []
        finally:
            self.count -= 1
            pool.waiters -= 1
            is_idle = not pool.waiters and not question.is_lasting
            if is_idle and self._pools.get(question.channel) is pool:
                del self._pools[question.channel]
                pool.retire()

    def release(self) -> None:
        """Let everybody who waits look once more, from any thread; once stopping, they leave."""
        for pool in list(self._pools.values()):
            pool.wake_all()

    def close(self) -> None:
        """Answer everybody who waits, with nothing."""
        self.is_stopping = True
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    def _pool(self, name: str, loop: asyncio.AbstractEventLoop) -> _Pool:
        if name not in self._pools:
            self._pools[name] = _Pool(self._listen(name), loop, name)
        return self._pools[name]
