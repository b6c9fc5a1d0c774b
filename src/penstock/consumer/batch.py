"""Messages handled in batches, each with its own outcome.

A collector gathers messages of one route until the batch is full or the first message has waited
long enough. A message fails alone if the handler reports an error for it or its write is refused.
If the whole call fails, the message at fault is unknown, so all of them are retried.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, overload

from penstock.bus.message import ErrorKind, Outcome
from penstock.consumer.disposition import Disposition
from penstock.consumer.failure import Failure, failure_of
from penstock.consumer.handling import Handling, OpenedMessage, writes_of
from penstock.consumer.message import Message
from penstock.consumer.router import Route, Writes
from penstock.core.clock import SECOND, Clock
from penstock.core.errors import DeclarationError
from penstock.pipelines.declare.collect import Collect
from penstock.sinks.protocol import SinkTx, is_conflict


class Item(NamedTuple):
    """A message in a batch, and the future that receives its disposition."""

    message: Message
    end: Future[Disposition]


class Batch(Sequence[Message]):
    """The messages of one handler call.

    The handler returns one result per message (a list in the same order, or a mapping by message
    id), or None. A result is what a single-message handler returns, or an exception.
    """

    def __init__(self, messages: Sequence[Message], tx: SinkTx | None = None) -> None:
        self._messages = tuple(messages)
        self._tx = tx
        self.errors: dict[str, BaseException] = {}

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def fail(self, message: Message, error: BaseException) -> None:
        """Fail one message with this error, without affecting the others."""
        self.errors[message.id] = error

    @contextmanager
    def item(self, message: Message) -> Iterator[None]:
        """Confine exceptions in the block to this message; in a transaction, undo its writes."""
        try:
            with nullcontext() if self._tx is None else self._tx.savepoint():
                yield
        except Exception as error:
            if is_conflict(error):
                raise
            self.fail(message, error)

    def results(self, value: Any) -> dict[str, Any]:
        """Return the handler's results by message id; reported errors take precedence."""
        if value is None:
            found: dict[str, Any] = {}
        elif isinstance(value, Mapping):
            found = dict(value)
            unknown = found.keys() - {message.id for message in self}
            if unknown:
                raise DeclarationError(
                    "the handler returned results for messages that are not in the batch: "
                    f"{sorted(unknown)[:3]}"
                )
        elif isinstance(value, list | tuple) and len(value) == len(self):
            found = {m.id: part for m, part in zip(self, value, strict=True)}
        else:
            raise DeclarationError(
                f"expected None, {len(self)} results or results by message id from the handler"
            )
        return {message.id: found.get(message.id) for message in self} | self.errors


BatchResults: TypeAlias = (
    Sequence[Writes | BaseException] | Mapping[str, Writes | BaseException] | None
)
"""One result per message, in order or by message id; None if no message writes anything."""
BatchHandler: TypeAlias = (
    Callable[[Batch], BatchResults | Awaitable[BatchResults]]
    | Callable[[Batch, SinkTx], BatchResults]
)
"""A function of a batch, sync or async, or of a batch and the transaction."""


def finish_batch(handling: Handling, route: Route, items: Sequence[Item]) -> list[Disposition]:
    """Run the handler and one transaction for all items; return their dispositions in order."""
    first = {item.message.id: item.message for item in reversed(items)}
    leaders = [item.message for item in items if first[item.message.id] is item.message]
    try:
        if route.takes_tx:
            ends = handling.sink.transact(lambda tx: _inside(handling, tx, route, leaders))
        else:
            batch = Batch(leaders)
            results = batch.results(handling.call(route, batch))
            ends = handling.sink.transact(lambda tx: _write(handling, tx, route, leaders, results))
    except Exception as error:
        failure = _batch_failure(failure_of(error))
        ends = dict.fromkeys(first, failure)
    done = {message.id: _ended(handling, message, route, ends[message.id]) for message in leaders}
    return [
        done[item.message.id]
        if first[item.message.id] is item.message
        else _follower(handling, item.message, route, done[item.message.id])
        for item in items
    ]


def _write(
    handling: Handling, tx: SinkTx, route: Route, messages: Sequence[Message], results: Any
) -> dict[str, Disposition | Failure]:
    ends: dict[str, Disposition | Failure] = {}
    for message in messages:
        result = results[message.id]
        if isinstance(result, BaseException):
            ends[message.id] = failure_of(result)
            continue
        try:
            with tx.savepoint():
                ends[message.id] = handling.apply(tx, message, route, writes_of(result))
        except Exception as error:
            if is_conflict(error):
                raise
            ends[message.id] = failure_of(error)
    return ends


def _inside(
    handling: Handling, tx: SinkTx, route: Route, messages: Sequence[Message]
) -> dict[str, Disposition | Failure]:
    """Run the handler inside the transaction, without duplicate and stale messages."""
    ends: dict[str, Disposition | Failure] = {}
    opened: dict[str, OpenedMessage] = {}
    for message in messages:
        found = handling.open(tx, message, route)
        if isinstance(found, OpenedMessage):
            opened[message.id] = found
        else:
            ends[message.id] = found
    batch = Batch([message for message in messages if message.id in opened], tx)
    if not batch:
        return ends
    results = batch.results(handling.call(route, batch, tx))
    for message in batch:
        result, found = results[message.id], opened[message.id]
        try:
            if isinstance(result, BaseException):
                raise result
            with tx.savepoint():
                ends[message.id] = handling.write(tx, message, route, writes_of(result), found)
        except Exception as error:
            if is_conflict(error):
                raise
            tx.unmark(message.subscription, message.id, found.before)
            ends[message.id] = failure_of(error)
    return ends


def _ended(
    handling: Handling, message: Message, route: Route, end: Disposition | Failure
) -> Disposition:
    return end if isinstance(end, Disposition) else handling.failed(message, end, route.name)


def _follower(
    handling: Handling, message: Message, route: Route, leader: Disposition
) -> Disposition:
    """Settle a second delivery of a message as a duplicate, once the first is settled."""
    if leader.outcome in (Outcome.RETRY, Outcome.POISON):
        return leader
    return handling.finish_duplicate(message, route)


def _batch_failure(failure: Failure) -> Failure:
    """Return the failure of a whole call; poison becomes transient, because the message at fault is
    unknown.
    """
    if failure.kind is ErrorKind.POISON:
        return replace(failure, kind=ErrorKind.TRANSIENT)
    return failure


class Collector:
    """Gathers the messages of one route into batches, on its own thread."""

    def __init__(self, collect: Collect, flush: Callable[[list[Item]], None], clock: Clock) -> None:
        self._most = collect.max
        self._wait = collect.wait_us / SECOND
        self._flush = flush
        self._clock = clock
        self._lock = threading.Lock()
        self._items: list[Item] = []
        self._some = threading.Event()
        self._full = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def add(self, item: Item) -> None:
        """Add a message to the next batch."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._gather, name="penstock-collect", daemon=True
                )
                self._thread.start()
            self._items.append(item)
            if len(self._items) >= self._most:
                self._full.set()
            self._some.set()

    def flush(self) -> None:
        """Flush the gathered messages without waiting for more."""
        with self._lock:
            if self._items:
                self._full.set()

    def close(self) -> None:
        """Flush the gathered messages and stop the thread."""
        with self._lock:
            self._is_closed = True
            self._full.set()
            self._some.set()
            thread = self._thread
        if thread is not None:
            thread.join()
        with self._lock:
            self._is_closed = False
            if not self._items:
                self._some.clear()
            if len(self._items) < self._most:
                self._full.clear()

    def _gather(self) -> None:
        while True:
            self._some.wait()
            began = self._clock.monotonic()
            while not self._full.is_set():
                left = began + self._wait - self._clock.monotonic()
                if left <= 0 or self._clock.wait(self._full, left):
                    break
            with self._lock:
                taken, self._items = self._items[: self._most], self._items[self._most :]
                if not self._items:
                    self._some.clear()
                if len(self._items) < self._most and not self._is_closed:
                    self._full.clear()
                is_done = self._is_closed and not self._items
                if is_done:
                    self._thread = None
            if taken:
                self._flush(taken)
            if is_done:
                return
