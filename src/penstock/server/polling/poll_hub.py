"""Long polls of this process, in one queue per poll key.

A claim or pull that finds nothing may wait. A wake-up on its channel, or a timer of one second in
case a wake-up was lost, lets the first waiter of each queue try again, and the next ones as long as
something is found. Waiters that accept the same work (same pool, processors and customer) share a
queue: any number of identical workers cost one query per wake-up, and no query is spent on a run
that the waiter cannot claim. Neither a waiter nor a channel needs a thread, however many
subscriptions are polled; a waiter whose client disconnects leaves the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
POLL_SECONDS: Final = 1.0


class PollKey(NamedTuple):
    """The work that a waiter accepts: wake-up channel, processors and customer."""

    channel: str
    processors: frozenset[str] = frozenset()
    customer: str | None = None
    keep_listening: bool = True
    """Whether to keep listening without waiters; only if there are few such channels."""


class Wakeups(Protocol):
    """A source of wake-ups, as the store provides it."""

    def call_on_hint(self, call: Callable[[], None]) -> None:
        """Call a function on each wake-up, from any thread."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class _Queue:
    """Waiters with the same key, oldest first."""

    def __init__(self) -> None:
        self._waiters: deque[asyncio.Future[None]] = deque()

    def join(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Append a waiter; its future is done when the waiter may try again."""
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        return waiter

    def call(self) -> bool:
        """Let the first waiter try; return False if there is none."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return True
        return False

    def leave(self, waiter: asyncio.Future[None]) -> None:
        """Remove a waiter; if it was called already, call the next one."""
        if waiter.done():
            self.call()
        else:
            waiter.cancel()


class _Pool:
    """The queues of one channel; its wake-ups and its timer arrive on the event loop."""

    def __init__(self, hints: Wakeups, loop: asyncio.AbstractEventLoop) -> None:
        self._queues: dict[PollKey, _Queue] = {}
        self._hints = hints
        self._loop = loop
        self._is_hinted = False
        self.waiters = 0
        hints.call_on_hint(self._hint)
        self._timer = loop.call_later(POLL_SECONDS, self._tick)

    def queue(self, question: PollKey) -> _Queue:
        """Return the queue of a key."""
        return self._queues.setdefault(question, _Queue())

    def call(self) -> None:
        """Let the first waiter of each queue try; remove empty queues."""
        self._is_hinted = False
        for question, queue in list(self._queues.items()):
            if not queue.call():
                del self._queues[question]

    def wake_all(self) -> None:
        """Let every waiter try; thread-safe."""
        with contextlib.suppress(RuntimeError):  # the loop is closing
            self._loop.call_soon_threadsafe(self._call_all)

    def close(self) -> None:
        """Stop listening and let all waiters return."""
        self.retire()
        self._call_all()

    def retire(self) -> None:
        """Stop listening; call it when there are no waiters."""
        self._timer.cancel()
        self._hints.close()

    def _call_all(self) -> None:
        for queue in list(self._queues.values()):
            while queue.call():
                pass

    def _hint(self) -> None:
        """Pass a wake-up to the event loop; hints that arrive before it is handled are merged.
        Thread-safe.
        """
        if not self._is_hinted:
            self._is_hinted = True
            with contextlib.suppress(RuntimeError):  # the loop is closing
                self._loop.call_soon_threadsafe(self.call)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(POLL_SECONDS, self._tick)
        self.call()


class LongPolls:
    """The long polls of a process, by channel."""

    def __init__(self, listen: Callable[[str], Wakeups]) -> None:
        """`listen` subscribes to the wake-ups of a channel."""
        self._listen = listen
        self._pools: dict[str, _Pool] = {}
        self.count = 0
        """Number of waiting requests."""
        self.is_stopping = False

    async def until(
        self,
        question: PollKey,
        seconds: float,
        attempt: Callable[[], Awaitable[list[T]]],
        gone: asyncio.Future[None],
    ) -> list[T]:
        """Call `attempt` after each wake-up until it finds something or `seconds` have passed.

        `gone` is done when the client has disconnected; then nothing more is attempted.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        # Attempt before listening: an unknown pool or subscription is refused here.
        if question.channel not in self._pools and (found := await attempt()):
            return found
        self.count += 1
        pool = self._pool(question.channel, loop)
        pool.waiters += 1
        try:
            while not gone.done():
                queue = pool.queue(question)
                # Join before the attempt, so that a wake-up between the two is not lost.
                waiter = queue.join(loop)
                goes_on = False
                try:
                    if found := await attempt():
                        queue.call()  # there may be more
                        return found
                    left = deadline - loop.time()
                    if left <= 0 or self.is_stopping:
                        return []
                    await asyncio.wait(
                        {waiter, gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED
                    )
                    goes_on = waiter.done() and not gone.done()
                finally:
                    if not goes_on:
                        queue.leave(waiter)
            return []
        finally:
            self.count -= 1
            pool.waiters -= 1
            is_idle = not pool.waiters and not question.keep_listening
            if is_idle and self._pools.get(question.channel) is pool:
                del self._pools[question.channel]
                pool.retire()

    def release(self) -> None:
        """Let every waiter try once more; while stopping, they then return. Thread-safe."""
        for pool in list(self._pools.values()):
            pool.wake_all()

    def close(self) -> None:
        """Let all waiters return empty responses."""
        self.is_stopping = True
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    def _pool(self, name: str, loop: asyncio.AbstractEventLoop) -> _Pool:
        if name not in self._pools:
            self._pools[name] = _Pool(self._listen(name), loop)
        return self._pools[name]
