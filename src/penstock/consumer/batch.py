"""Messages gathered and handled together, each with an outcome of its own.

A collector gathers messages of one route until there are enough or the first has waited long
enough. One that fails fails alone: the handler says so for it, or its write is refused. When the
whole call fails nobody knows whose fault it is, so all are tried again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, overload

from penstock.bus.message import ErrorKind
from penstock.consumer.disposition import Disposition, Outcome
from penstock.consumer.failure import Failure, failure_of
from penstock.consumer.handling import Handling, Opened, writes_of
from penstock.consumer.message import Message
from penstock.consumer.router import Route
from penstock.core.clock import SECOND, Clock
from penstock.core.errors import DeclarationError
from penstock.pipelines.declare.collect import Collect
from penstock.sinks.protocol import SinkTx, is_conflict


class Item(NamedTuple):
    """A message that waits for its batch, and who waits for its end."""

    message: Message
    end: Future[Disposition]


class Batch(Sequence[Message]):
    """The messages of one call.

    The handler returns one result for each (a list in the same order, or a mapping by message id)
    or None; a result is what a handler of one message returns, or an exception.
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
        """Let one message end with this error, and only that one."""
        self.errors[message.id] = error

    @contextmanager
    def item(self, message: Message) -> Iterator[None]:
        """What is raised inside concerns only this message; in a transaction it is undone."""
        try:
            with nullcontext() if self._tx is None else self._tx.savepoint():
                yield
        except Exception as error:
            if is_conflict(error):
                raise
            self.fail(message, error)

    def results(self, value: Any) -> dict[str, Any]:
        """What the handler returned, by message id; errors it reported come first."""
        if value is None:
            found: dict[str, Any] = {}
        elif isinstance(value, Mapping):
            found = dict(value)
            unknown = found.keys() - {message.id for message in self}
            if unknown:
                raise DeclarationError(f"results for messages of no batch: {sorted(unknown)[:3]}")
        elif isinstance(value, list | tuple) and len(value) == len(self):
            found = {m.id: part for m, part in zip(self, value, strict=True)}
        else:
            raise DeclarationError(
                f"a batch of {len(self)} wants None, {len(self)} results, or results by message id"
            )
        return {message.id: found.get(message.id) for message in self} | self.errors


def finish_batch(handling: Handling, route: Route, items: Sequence[Item]) -> list[Disposition]:
    """The handler and one transaction for all; dispositions in the order of the items."""
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
        failure = _everybodys(failure_of(error))
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
    """The handler inside the transaction, without the messages that end before it."""
    ends: dict[str, Disposition | Failure] = {}
    opened: dict[str, Opened] = {}
    for message in messages:
        found = handling.open(tx, message, route)
        if isinstance(found, Opened):
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
    """A second delivery of a message in the same batch: a duplicate once the first is settled."""
    if leader.outcome in (Outcome.RETRY, Outcome.POISON):
        return leader
    return handling.finish_duplicate(message, route)


def _everybodys(failure: Failure) -> Failure:
    """The failure of a whole call: whose message is poison is not known, so none is."""
    if failure.kind is ErrorKind.POISON:
        return replace(failure, kind=ErrorKind.TRANSIENT)
    return failure


class Collector:
    """Gathers the messages of one route on a thread of its own."""

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
        """Take a message in."""
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

    def hurry(self) -> None:
        """Hand over what is gathered."""
        with self._lock:
            if self._items:
                self._full.set()

    def close(self) -> None:
        """Hand over what is gathered, and end."""
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
