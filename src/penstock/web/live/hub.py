"""One reader of changes for all viewers of a process.

While at least one stream is open, a task reads the journal once a second (less often for more than
a hundred) and adds the topics of new entries to the streams that subscribe to them. A stream holds
each topic at most once, so a viewer that reads slowly costs no memory. Topics about many items are
sent after every second read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Final

from starlette.concurrency import run_in_threadpool

from penstock.audit.store.changes import (
    ChangeFigures,
    JournalPosition,
    RecentChanges,
    changes_after,
    changes_end,
)
from penstock.core.errors import StoreError
from penstock.core.naming import CustomerKey
from penstock.db.store import StoreView, Tx
from penstock.server.overload.admission import overloaded
from penstock.server.problems import Refused
from penstock.web.live.topics import LISTS, topics_of, topics_of_figures

log = logging.getLogger(__name__)

READ_SECONDS: Final = 1.0
FETCHES: Final = 100
"""Maximum number of viewers for one read a second; with more, reads are less frequent."""
LIST_READS: Final = 2
STREAMS_MAX: Final = 1_000
SESSION_MAX: Final = 12
CALLER_MAX: Final = 250
TOPICS_KEPT: Final = 10_000
RESYNC: Final = "resync"


class LiveStream:
    """Subscription of one viewer."""

    def __init__(self, topics: frozenset[str], customer: CustomerKey | None) -> None:
        """`customer` is the customer of a bound key; None sees all customers."""
        self.topics = topics
        self.customer = customer
        self.pending: dict[str, None] = {}
        self.is_ended = False
        self.position: JournalPosition | None = None
        self._woken = asyncio.Event()

    def add(self, topics: Iterable[str], position: JournalPosition) -> None:
        """Add topics that have changed and wake the stream."""
        self.position = position
        self.pending.update(dict.fromkeys(topics))
        self._woken.set()

    def end(self) -> None:
        """Ask the stream to end."""
        self.is_ended = True
        self._woken.set()

    async def next(self, seconds: float) -> list[str]:
        """Return topics that have changed, at the latest after a time; empty if none have."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)
        self._woken.clear()
        found = list(self.pending)
        self.pending.clear()
        return found


class LiveHub:
    """The streams of a process and the task that feeds them; used from one event loop."""

    def __init__(self, store: StoreView, read_seconds: float = READ_SECONDS) -> None:
        self._store = store
        self._read_seconds = read_seconds
        self._streams: dict[LiveStream, tuple[str, str]] = {}
        self._sessions: Counter[str] = Counter()
        self._callers: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._position: JournalPosition | None = None
        self._figures: ChangeFigures | None = None
        self._held: dict[tuple[CustomerKey | None, str], None] = {}
        self._is_all_held = False
        self._last: OrderedDict[tuple[CustomerKey | None, str], JournalPosition] = OrderedDict()
        self._known_from: JournalPosition | None = None
        self._is_stopping = False

    @property
    def count(self) -> int:
        """Number of open streams."""
        return len(self._streams)

    @property
    def _pause(self) -> float:
        """Seconds until changes are read again: longer for many viewers, because all of them fetch
        after a change.
        """
        return self._read_seconds * max(1, -(-self.count // FETCHES))

    async def open(
        self,
        topics: frozenset[str],
        customer: CustomerKey | None,
        *,
        caller: str,
        session: str,
        after: JournalPosition | None,
    ) -> LiveStream:
        """Open a stream; raise Refused if there are too many.

        With the position `after` that a viewer had reached, it starts with the changes since then;
        without one, or with one that is too old, it starts with `resync`.
        """
        if self._is_stopping or len(self._streams) >= STREAMS_MAX:
            raise overloaded()
        if self._callers[caller] >= CALLER_MAX or self._sessions[session] >= SESSION_MAX:
            detail = "Too many open pages: close some, or let them ask every few seconds."
            raise Refused(429, detail, headers={"Retry-After": "30"})
        self._loop = asyncio.get_running_loop()
        stream = LiveStream(topics, customer)
        self._streams[stream] = (caller, session)
        self._callers[caller] += 1
        self._sessions[session] += 1
        try:
            if self._task is None:
                self._position = await run_in_threadpool(self._end)
                self._known_from = self._position
                self._last.clear()
                if self._task is None:
                    self._task = asyncio.ensure_future(self._follow())
            assert self._position is not None
            stream.add(self._missed(stream, after), self._position)
        except BaseException:
            self.close(stream)
            raise
        return stream

    def close(self, stream: LiveStream) -> None:
        """Close a stream; the task ends with the last one."""
        kept = self._streams.pop(stream, None)
        if kept is None:
            return
        for counter, name in zip((self._callers, self._sessions), kept, strict=True):
            counter[name] -= 1
            if not counter[name]:
                del counter[name]
        if not self._streams and self._task is not None:
            self._task.cancel()
            self._task = None
            self._figures = None

    def release(self) -> None:
        """End all streams, because the server stops; thread-safe and idempotent."""
        self._is_stopping = True
        if self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(RuntimeError):  # closed in between
                self._loop.call_soon_threadsafe(self._end_all)

    def _end_all(self) -> None:
        for stream in list(self._streams):
            stream.end()

    def _missed(self, stream: LiveStream, after: JournalPosition | None) -> list[str]:
        """Return the topics that a viewer has missed since a position."""
        known_from = self._known_from
        if after is None or known_from is None or after.cluster != known_from.cluster:
            return [RESYNC]
        if after < known_from:
            return [RESYNC]
        return [
            topic
            for (customer, topic), position in self._last.items()
            if topic in stream.topics and _sees(stream, customer) and position > after
        ]

    async def _follow(self) -> None:
        for number in _numbers():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), self._pause)
            try:
                changes = await run_in_threadpool(self._read)
            except StoreError as error:
                log.debug("changes were not read: %s", error)
                continue
            self._take(changes)
            self._send(is_for_lists=number % LIST_READS == 0)

    def _end(self) -> JournalPosition:
        return self._store.read(changes_end)

    def _read(self) -> RecentChanges:
        position = self._position
        assert position is not None

        def body(tx: Tx) -> RecentChanges:
            return changes_after(tx, position)

        return self._store.read(body)

    def _take(self, changes: RecentChanges) -> None:
        """Hold the topics of changes until they are sent."""
        found: dict[tuple[CustomerKey | None, str], None] = {}
        for changed in changes.subjects:
            for topic in topics_of(changed):
                found[changed.customer_key, topic] = None
        if self._figures is not None:
            for customer, topics in topics_of_figures(self._figures, changes.figures):
                found.update(dict.fromkeys((customer, topic) for topic in topics))
        self._figures, self._position = changes.figures, changes.position
        self._is_all_held = self._is_all_held or changes.is_cut
        self._held.update(found)
        for key in found:
            self._last[key] = changes.position
            self._last.move_to_end(key)
        while len(self._last) > TOPICS_KEPT:
            _, self._known_from = self._last.popitem(last=False)

    def _send(self, *, is_for_lists: bool) -> None:
        """Pass the held topics to the streams that subscribe to them."""
        assert self._position is not None
        if self._is_all_held:
            self._is_all_held = False
            self._held.clear()
            for stream in self._streams:
                stream.add([RESYNC], self._position)
            return
        ready = {key for key in self._held if is_for_lists or key[1] not in LISTS}
        if not ready:
            return
        for key in ready:
            del self._held[key]
        names = {topic for _, topic in ready}
        for stream in self._streams:
            if names.isdisjoint(stream.topics):
                continue
            wanted = [t for c, t in ready if t in stream.topics and _sees(stream, c)]
            if wanted:
                stream.add(wanted, self._position)


def _sees(stream: LiveStream, customer: CustomerKey | None) -> bool:
    return stream.customer is None or stream.customer == customer


def _numbers() -> Iterable[int]:
    number = 0
    while True:
        number += 1
        yield number
