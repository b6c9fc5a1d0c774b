"""The consumer: handlers, a sink and options, served over HTTP or by pulling.

    app = Consumer("heartbeats", sink="sqlite:state.db")

    @app.on("ingest.heartbeat", schema=1)
    def heartbeat(message): return Upsert(path=..., fields=..., version=...)

`app.asgi()` returns the whole service for pushes; `app.run(transport)` runs the whole pull worker.
Both pass messages to `submit`, which handles a bounded number at a time on its own threads.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from penstock.bus.message import Outcome, ServiceRevision
from penstock.bus.rules import HANDLED_MAX_US, REPORTER_MAX
from penstock.bus.transports.protocol import Transport
from penstock.consumer.asgi import PushApp
from penstock.consumer.batch import BatchHandler, Collector, Item, finish_batch
from penstock.consumer.disposition import Disposition, PolicyFacts
from penstock.consumer.failure import Failure, failure_of
from penstock.consumer.handling import Handling
from penstock.consumer.logline import (
    Alert,
    AlertReports,
    Identity,
    log_fields,
    render_line,
    to_stdout,
)
from penstock.consumer.loops import LoopRunner
from penstock.consumer.message import Message
from penstock.consumer.options import ConsumerOptions
from penstock.consumer.pulling import PullWorker
from penstock.consumer.router import (
    Gate,
    Guard,
    Handler,
    Predicate,
    Route,
    Router,
    Shape,
)
from penstock.consumer.telemetry import ConsumerTelemetry, MeasuredSink
from penstock.core.clock import HOUR, SECOND, Clock, Micros
from penstock.core.errors import SettingsError
from penstock.pipelines.declare.collect import Collect
from penstock.sinks.opening import open_sink
from penstock.sinks.protocol import Sink

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)
H = TypeVar("H", bound=Handler)
B = TypeVar("B", bound=BatchHandler)


class Consumer:
    """A service that handles the messages of one subscription.

    name: the subscription. sink: a URL, or a sink. dead_letters: whether the subscription has a
    dead-letter policy, which decides what happens to poison. Usually omitted, because a pull worker
    reads the policy from the subscription, and push envelopes include it. topic: name of the topic
    for the log, because push envelopes do not contain it. gate: called before every handler; it
    raises TryAgain or Reject, or returns a value that handlers find in `message.gate`;
    `consumer.gates` has one that evaluates a Penstock gate. alert: called immediately with an Alert
    for a configuration error, at most once a minute for the same one. verify: checks the headers of
    a push; it raises or returns False for an unknown sender.
    """

    def __init__(
        self,
        name: str,
        *,
        sink: str | Sink,
        dead_letters: bool | None = None,
        topic: str | None = None,
        gate: Gate | None = None,
        alert: Callable[[Alert], None] | None = None,
        verify: Callable[[Mapping[str, str]], bool | None] | None = None,
        options: ConsumerOptions | None = None,
    ) -> None:
        if not name or len(name.encode()) > 255:
            raise SettingsError("name", "the name of a subscription", name)
        self.name = name
        self.topic = topic
        self.verify = verify
        self.options = options = options or ConsumerOptions()
        self.policy = PolicyFacts(name, dead_letters, options.clock)
        opened = open_sink(sink, prefix=self.options.prefix, clock=self.options.clock) \
            if isinstance(sink, str) else sink  # fmt: skip
        self.sink: Sink = opened
        self.tally: Counter[str] = Counter()
        self._router = Router()
        self._loops = LoopRunner()
        self._alerts = AlertReports(alert, self.options.clock)
        self.telemetry = ConsumerTelemetry(name, self.options)
        service, version = options.deployed(name)
        self._identity = Identity(service=service, env=options.env, version=version)
        self.reporter = ServiceRevision(service[:REPORTER_MAX], version[:REPORTER_MAX])
        self._handling = Handling(
            router=self._router,
            sink=cast("Sink", MeasuredSink(opened, self.telemetry)),
            options=self.options,
            has_dead_letters=self.policy.has_dead_letters,
            gate=gate,
            run_async=self._loops.run,
        )
        self._collectors: dict[str, Collector] = {}
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._pruned_at: Micros | None = None

    def on(
        self,
        *event_types: str,
        when: Predicate | None = None,
        schema: int | str | None = None,
        shape: Shape | None = None,
        newer: Guard | None = None,
        gate: Gate | None = None,
    ) -> Callable[[H], H]:
        """Declare the handler of event types, of messages that match a predicate, or of all others.

        schema: the schema version that a message must have. shape: converts the payload to
        `message.value`, or raises if it cannot. newer: returns the (document path, version) of a
        message; a message older than the document is ignored and its handler is not called.
        """
        made = partial(Route, when=when, shape=shape, newer=newer, gate=gate)

        def declared(handler: H) -> H:
            self._router.add(made(**_facts(handler, event_types, schema)))
            return handler

        return declared

    def collect(
        self,
        *event_types: str,
        max: int = 30,
        wait: str | float = "5s",
        when: Predicate | None = None,
        schema: int | str | None = None,
        shape: Shape | None = None,
        newer: Guard | None = None,
    ) -> Callable[[B], B]:
        """Declare a handler of batches: up to `max` messages, collected for at most `wait`."""
        collect = Collect(max, wait)
        made = partial(Route, when=when, shape=shape, newer=newer, collect=collect)

        def declared(handler: B) -> B:
            route = made(**_facts(handler, event_types, schema))
            self._router.add(route)
            flush = partial(self._flush, route)
            self._collectors[route.name] = Collector(collect, flush, self.options.clock)
            return handler

        return declared

    @property
    def outstanding(self) -> int:
        """Maximum number of messages held: enough for full batches and busy threads."""
        gathered = sum(
            2 * route.collect.max
            for route in self._router.routes.values()
            if route.collect is not None
        )
        return self.options.outstanding or 4 * self.options.concurrency + gathered

    def counters(self) -> dict[str, int]:
        """Return the number of messages by outcome; exact even if messages are redelivered."""
        return self.sink.counters(self.name)

    def asgi(self) -> PushApp:
        """Return an ASGI application that receives pushes; mount it or serve it on its own."""
        return PushApp(self)

    def worker(self, transport: Transport) -> PullWorker:
        """Return a worker that pulls the subscription's messages, ready to be started."""
        return PullWorker(self, transport)

    def run(self, transport: Transport) -> None:
        """Pull until SIGTERM or SIGINT, then finish the messages in progress."""
        self.worker(transport).run()

    def handle(self, message: Message) -> Disposition:
        """Handle one message and wait for its disposition; a batched one waits for its batch."""
        return self.submit(message).result()

    def submit(self, message: Message) -> Future[Disposition]:
        """Handle a message as soon as a thread is free; the future never raises."""
        end: Future[Disposition] = Future()
        message.received_s = self.options.clock.monotonic()
        self._pool().submit(self._process, Item(message, end))
        return end

    def refuse(self, message: Message, failure: Failure) -> Future[Disposition]:
        """Reject a push whose body is not a valid message of this subscription."""
        end: Future[Disposition] = Future()
        self._pool().submit(self._refuse, Item(message, end), failure)
        return end

    def flush(self) -> None:
        """Handle the messages collected for batches, without waiting for more."""
        for collector in self._collectors.values():
            collector.flush()

    def adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run async handlers on this loop."""
        self._loops.adopt(loop)

    def close(self) -> None:
        """Finish the messages in progress and close the sink; the consumer can be used again."""
        while True:
            for collector in self._collectors.values():
                collector.close()
            with self._lock:
                threads, self._threads = self._threads, None
            if threads is None:
                break
            # Messages in progress may have joined a batch or started a prune: check again.
            threads.shutdown(wait=True)
        self._loops.close()
        self.telemetry.close()
        self.sink.close()

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(
                    self.options.concurrency, thread_name_prefix="penstock-consumer"
                )
            return self._threads

    def _process(self, item: Item) -> None:
        if not item.end.set_running_or_notify_cancel():
            return
        item.message.started_s = self.options.clock.monotonic()
        try:
            begun = self._handling.begin(item.message)
            if isinstance(begun, Disposition):
                self._conclude(item, begun)
            elif begun.collect is not None:
                self._collectors[begun.name].add(item)
            else:
                self._conclude(item, self._handling.finish(item.message, begun))
        except BaseException as error:  # a handler's SystemExit or a bug: retry the message
            self._conclude(item, Disposition(outcome=Outcome.RETRY, failure=failure_of(error)))

    def _refuse(self, item: Item, failure: Failure) -> None:
        self._conclude(item, self._handling.failed(item.message, failure, None))

    def _flush(self, route: Route, items: list[Item]) -> None:
        self._pool().submit(self._finish_batch, route, items)

    def _finish_batch(self, route: Route, items: list[Item]) -> None:
        for item in items:
            item.message.started_s = self.options.clock.monotonic()
        try:
            ends = finish_batch(self._handling, route, items)
        except BaseException as error:  # as above
            failed = Disposition(outcome=Outcome.RETRY, failure=failure_of(error))
            ends = [failed] * len(items)
        for item, end in zip(items, ends, strict=True):
            self._conclude(item, end)

    def _conclude(self, item: Item, end: Disposition) -> None:
        """Log the outcome once, then resolve the future; logging errors do not change it."""
        end = replace(
            end,
            has_dead_letters=self.policy.has_dead_letters(item.message),
            duration_us=_duration_us(item.message, self.options.clock),
        )
        try:
            self.tally[end.outcome.value] += 1
            line = log_fields(
                self._identity,
                item.message,
                end,
                dead_letters=end.has_dead_letters,
                mark_place=self.sink.marks_table,
                at=self.options.clock.now(),
            )
            (self.options.log or to_stdout)(render_line(line))
            self._alerts.send(self._identity, item.message, end)
            self.telemetry.handled(item.message, end)
            self._prune_hourly()
        except Exception:
            log.exception("logging the outcome of message %s failed", item.message.id)
        item.end.set_result(end)

    def _prune_hourly(self) -> None:
        """Once an hour, prune the marks of messages that can no longer be redelivered."""
        now = self.options.clock.now()
        with self._lock:
            if self._pruned_at is not None and now - self._pruned_at < HOUR:
                return
            self._pruned_at = now
        self._pool().submit(self._prune)

    def _prune(self) -> None:
        try:
            self.sink.prune(self.options.micros("marks_kept"))
        except Exception:
            log.exception("pruning the sink's marks failed; retrying in an hour")


def _duration_us(message: Message, clock: Clock) -> Micros | None:
    if message.started_s is None:
        return None
    spent = int((clock.monotonic() - message.started_s) * SECOND)
    return min(max(spent, 0), HANDLED_MAX_US)


def _facts(
    handler: Callable[..., Any], event_types: tuple[str, ...], schema: int | str | None
) -> dict[str, Any]:
    """Return the arguments of Route that every declaration sets."""
    return {
        "name": getattr(handler, "__name__", "handler"),
        "handler": handler,
        "event_types": event_types,
        "schema": None if schema is None else str(schema),
    }
