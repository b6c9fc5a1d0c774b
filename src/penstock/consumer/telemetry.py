"""The telemetry of a consumer: an event for each message, counted and exported."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.audit.telemetry import Events, MessageHandled, PushServed, SinkFailed
from penstock.bus.message import ErrorKind
from penstock.consumer.disposition import Disposition
from penstock.consumer.failure import FROM_HANDLER, failure_of
from penstock.consumer.message import Message
from penstock.consumer.options import ConsumerOptions
from penstock.core.clock import Clock
from penstock.core.errors import SettingsError
from penstock.sinks.protocol import Sink, SinkTx
from penstock.telemetry.declared import parse_telemetry
from penstock.telemetry.listener import serve_metrics
from penstock.telemetry.process import Surroundings, open_telemetry
from penstock.telemetry.process_metrics import ProcessMetrics
from penstock.telemetry.processor_names import unknown_name

T = TypeVar("T")


class ConsumerTelemetry:
    """Counts the messages of a consumer, and exports them if its options enable that."""

    def __init__(self, subscription: str, options: ConsumerOptions) -> None:
        self._subscription = subscription
        given = dict(options.telemetry)
        self._port = given.pop("metrics_port", 0)
        self._host = given.pop("metrics_host", "127.0.0.1")
        if isinstance(self._port, bool) or not isinstance(self._port, int):
            raise SettingsError("telemetry.metrics_port", "a port number", self._port)
        self._declared = parse_telemetry(given)
        self._clock: Clock = options.clock
        self._lock = threading.Lock()
        self._running: contextlib.ExitStack | None = None
        self.metrics = ProcessMetrics(unknown_name, by_customer=self._declared.customer_label)
        self.events = Events()
        self.metrics.subscribe(self.events)

    def _start(self) -> None:
        """Start exporting with the first message; a second call does nothing."""
        with self._lock:
            if self._running is None:
                around = Surroundings(clock=self._clock)
                made = open_telemetry(self._declared, self.events, self.metrics, around)
                stack = contextlib.ExitStack()
                stack.enter_context(made)
                self._running = stack

    def serve(self) -> contextlib.AbstractContextManager[object]:
        """Return a context in which the metrics are served on their port, if one is set."""
        if not self._port:
            return contextlib.nullcontext()
        return serve_metrics(self.metrics.registry(), self._host, self._port)

    def handled(self, message: Message, end: Disposition) -> None:
        """Emit the event of a message that was handled."""
        self._start()
        seconds = max(0.0, self._clock.monotonic() - message.received_s)
        self.events.emit(
            MessageHandled(
                subscription=message.subscription,
                message_id=message.id,
                outcome=end.outcome.value,
                handler=end.handler or "",
                via=message.via,
                attempt=message.attempt,
                error_type="" if end.failure is None else end.failure.error_type,
                seconds=seconds,
                traceparent=message.traceparent,
                parent=message.trace[1],
                correlation_id=message.correlation_id,
            )
        )

    def served(self, status: int) -> None:
        """Emit the event of a push request after its response."""
        self.events.emit(PushServed(subscription=self._subscription, status=status))

    def sink_failed(self, error: Exception) -> None:
        """Emit the event of a sink failure; poison and handler errors do not count."""
        failure = failure_of(error)
        if failure.kind is not ErrorKind.POISON and not getattr(error, FROM_HANDLER, False):
            event = SinkFailed(subscription=self._subscription, error_type=failure.error_type)
            self.events.emit(event)

    def close(self) -> None:
        """Export queued telemetry; the consumer may start again."""
        with self._lock:
            stack, self._running = self._running, None
        if stack is not None:
            stack.close()


class MeasuredSink:
    """A sink whose failures are counted; everything else is delegated to it."""

    def __init__(self, sink: Sink, telemetry: ConsumerTelemetry) -> None:
        self._sink = sink
        self._telemetry = telemetry

    def __getattr__(self, name: str) -> Any:
        """Return the sink's own attribute."""
        return getattr(self._sink, name)

    def transact(self, body: Callable[[SinkTx], T]) -> T:
        """Run a transaction of the sink."""
        return self._counted(lambda: self._sink.transact(body))

    def fate(self, subscription: str, message_id: str) -> Any:
        """Return the recorded outcome of a message."""
        return self._counted(lambda: self._sink.fate(subscription, message_id))

    def document(self, path: str) -> Any:
        """Return a document of the wrapped sink, or None."""
        return self._counted(lambda: self._sink.document(path))

    def _counted(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Exception as error:
            self._telemetry.sink_failed(error)
            raise
