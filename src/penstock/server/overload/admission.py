"""The admission of one request: the capacity that it holds while it is served.

A request is admitted once it can be processed: its caller is known and its body has arrived. It
releases its capacity before the response is sent. A client therefore cannot hold capacity by
sending slowly or by not reading. Work after that point (the next attempt of a long poll, the next
part of a streamed response) goes through `resume`, and work that may take minutes through
`run_slowly`; both have dedicated threads. Used from one event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import anyio
import anyio.to_thread

from penstock.server.overload.admission_queue import AdmissionQueue
from penstock.server.problems import Refused

T = TypeVar("T")
CALLER_SLOW_MAX: Final = 1
"""Maximum number of slow requests in progress per caller; a further one gets 429."""
SLOW_THREADS: Final = 2
SLOW_WAITING_MAX: Final = 8


class Connection(Protocol):
    """The part of a connection that admission uses."""

    def identify(self) -> None:
        """Record that the connection has had a request of a known caller."""
        ...

    def count_sent(self, size: int) -> None:
        """Count bytes of a response."""
        ...

    def begin_work(self) -> None:
        """Record that the server works on a request of the connection."""
        ...

    def end_work(self) -> None:
        """Record that the connection waits for its client again."""
        ...


class BoundedThreads:
    """A few threads for one kind of work, with a bounded queue in front of them."""

    def __init__(self, threads: int, waiting_max: int) -> None:
        self._limiter = anyio.CapacityLimiter(threads)
        self._most = threads + waiting_max
        self._calls = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in one of the threads; raise Refused if too many calls wait."""
        if self._calls >= self._most:
            raise overloaded()
        self._calls += 1
        try:
            return await anyio.to_thread.run_sync(work, limiter=self._limiter)
        finally:
            self._calls -= 1


class Admissions:
    """The capacity that all requests of a process share."""

    def __init__(self, queue: AdmissionQueue, *, resumed_max: int) -> None:
        """`resumed_max` bounds the threads of requests that have released their capacity."""
        self.queue = queue
        self.resumed = asyncio.Semaphore(resumed_max)
        self.slow = BoundedThreads(SLOW_THREADS, SLOW_WAITING_MAX)
        self.slow_by_caller: Counter[str] = Counter()


class RequestAdmission:
    """The admission of one request."""

    def __init__(
        self, shared: Admissions, patience: float, connection: Connection | None = None
    ) -> None:
        """`patience` is the time in seconds that the request may queue under overload."""
        self._shared = shared
        self._patience = patience
        self._connection = connection
        self._is_held = False
        self._caller = ""

    def identify(self, caller: str) -> None:
        """Record the caller; connections of unknown callers are closed before this one."""
        self._caller = caller
        if self._connection is not None:
            self._connection.identify()

    async def enter(self) -> None:
        """Wait for admission; raise Refused if the server is overloaded."""
        if self._is_held:
            return
        self._begin_work()
        if not await self._shared.queue.enter(self._patience, self._caller):
            raise overloaded()
        self._is_held = True

    def leave(self) -> None:
        """Return the capacity; idempotent."""
        if self._is_held:
            self._is_held = False
            self._shared.queue.leave(self._caller)

    def respond(self, size: int = 0) -> None:
        """Return the capacity because bytes of the response are sent now; idempotent."""
        self.leave()
        if self._connection is not None:
            self._connection.count_sent(size)
            self._connection.end_work()

    async def resume(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread for a request that has released its capacity."""
        async with self._shared.resumed:
            self._shared.queue.reenter(self._caller)
            try:
                return await anyio.to_thread.run_sync(work)
            finally:
                self._shared.queue.leave(self._caller)

    async def run_slowly(self, caller: str, work: Callable[[], T]) -> T:
        """Run `work` that may take minutes, in a thread that ordinary requests do not need."""
        self._begin_work()
        counts = self._shared.slow_by_caller
        if counts[caller] >= CALLER_SLOW_MAX:
            raise Refused(
                429,
                "The caller has a request of this kind in progress: wait until it has ended.",
                headers={"Retry-After": "5"},
            )
        counts[caller] += 1
        try:
            return await self._shared.slow.run(work)
        finally:
            counts[caller] -= 1
            if not counts[caller]:
                del counts[caller]

    def _begin_work(self) -> None:
        if self._connection is not None:
            self._connection.begin_work()


def overloaded() -> Refused:
    """Return the error of an overloaded server; the request was not executed."""
    detail = "The server is handling too many requests: try again shortly."
    return Refused(503, detail, headers={"Retry-After": "1"})
