"""The telemetry of one process: subscribes the configured exporters to its events.

Only what the settings enable is imported, started and counted. Each receiver has its own bounded
queue and thread, so a hanging receiver delays neither work nor other receivers.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry

from penstock.audit.telemetry import Event, Events, RunEnded, RunsEnded, ServiceError
from penstock.core.clock import Clock, Micros, SystemClock
from penstock.core.errors import SettingsError
from penstock.core.redact import redact_text
from penstock.exports import DISTRIBUTION
from penstock.telemetry.declared import TelemetrySettings
from penstock.telemetry.export_queue import ExportQueue
from penstock.telemetry.lineage import JobTables, Lineage, TablesOf
from penstock.telemetry.lineage_sender import LineageSender
from penstock.telemetry.log_lines import LogRecordData, LogSink
from penstock.telemetry.process_metrics import ProcessMetrics
from penstock.telemetry.processor_names import NameOf, ProcessorPath, unknown_name
from penstock.telemetry.spans import SpanData, Spans

if TYPE_CHECKING:
    from penstock.telemetry.otlp import Otlp
    from penstock.telemetry.sentry import SentryClient

METRICS_SECONDS: Final = 15.0


def no_tables(_: ProcessorPath) -> JobTables:
    """Return no tables, for processes without loaded pipelines."""
    return JobTables()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The parts of a process that telemetry needs."""

    name_of: NameOf = unknown_name
    tables_of: TablesOf = no_tables
    send_lineage: Callable[[bytes], None] | None = None
    """Posts an OpenLineage event; raises if it was not accepted."""
    sentry_dsn: str | None = None
    clock: Clock = field(default_factory=SystemClock)


class Telemetry:
    """The exporters of a process."""

    def __init__(
        self,
        declared: TelemetrySettings,
        events: Events,
        metrics: ProcessMetrics,
        around: Surroundings,
        registry: CollectorRegistry | None = None,
    ) -> None:
        """`registry`: the exported metrics; by default those of the process."""
        self._declared = declared
        self._events = events
        self._metrics = metrics
        self._around = around
        self._registry = registry or metrics.registry()
        self._clock = around.clock
        self._queues: list[ExportQueue[Any]] = []
        self._otlp: Otlp | None = None
        self._sentry: SentryClient | None = None
        self._stopping = threading.Event()
        self._sampler: threading.Thread | None = None
        self._started_at = self._clock.now()
        self.log: LogSink | None = None
        """Receives the lines of the log; None if they are not exported."""

    def start(self) -> None:
        """Connect the receivers that the settings name, and start their threads."""
        declared = self._declared
        if declared.otlp_endpoint is not None:
            self._start_otlp(declared.otlp_endpoint)
        if declared.lineage_url is not None or declared.lineage_file is not None:
            self._start_lineage()
        if self._around.sentry_dsn is not None:
            self._start_sentry(self._around.sentry_dsn)
        for one in self._queues:
            one.start()
        if self._sampler is not None:
            self._sampler.start()

    def close(self) -> None:
        """Export queued items, for a few seconds at most."""
        self._stopping.set()
        for one in self._queues:
            one.close()
        if self._sampler is not None:
            self._sampler.join(5.0)
        if self._otlp is not None:
            self._otlp.close()
        if self._sentry is not None:
            self._sentry.close()

    def _start_otlp(self, endpoint: str) -> None:
        try:
            # An extra: loaded only if it is configured.
            from penstock.telemetry.otlp import Otlp
        except ImportError as error:
            raise _missing("telemetry.otlp_endpoint", "otel", error) from error
        declared = self._declared
        otlp = self._otlp = Otlp(endpoint, declared.service_name, version())
        if declared.traces:
            spans = Spans(self._around.name_of, declared.sample)

            def send_spans(batch: list[tuple[Event, Micros]]) -> int:
                made = [spans.of(*one) for one in batch]
                found: list[SpanData] = [one for one in made if one is not None]
                arrived = otlp.send_spans(found) if found else 0
                return len(batch) if arrived == len(found) else 0

            rate = declared.spans_per_second
            queue = self._queue("spans", send_spans, batch=rate)

            def put(event: Event) -> None:
                queue.put((event, self._clock.now()))

            def put_runs(event: RunsEnded) -> None:
                now = self._clock.now()
                for one in event.others:
                    queue.put((one, now))
                for n in range(queue.admit_ordinary(len(event.completed.processor_key))):
                    queue.put((event.event_of(n), now))

            self._events.subscribe(put, [kind for kind in spans.kinds if kind is not RunEnded])
            self._events.subscribe(put_runs, [RunsEnded])
        if declared.logs:
            lines: ExportQueue[LogRecordData] = self._queue("logs", otlp.send_logs)
            self.log = lines.put
        if declared.metrics:
            self._sampler = threading.Thread(
                target=self._sample, args=(otlp,), name="penstock-export-metrics", daemon=True
            )

    def _start_lineage(self) -> None:
        around, declared = self._around, self._declared
        lineage = Lineage(declared.lineage_namespace, around.name_of, around.tables_of)
        sender = LineageSender(lineage, around.send_lineage, declared.lineage_file)
        queue = self._queue("lineage", sender.send)
        self._events.subscribe(lambda event: queue.put((event, self._clock.now())), lineage.kinds)

    def _start_sentry(self, dsn: str) -> None:
        try:
            # An extra: loaded only if it is configured.
            from penstock.telemetry.sentry import SentryClient
        except ImportError as error:
            raise _missing("telemetry.sentry_dsn_secret", "sentry", error) from error
        environment = self._declared.sentry_environment
        self._sentry = SentryClient(
            dsn, environment=environment, release=version(), name_of=self._around.name_of
        )
        queue = self._queue("errors", self._sentry.send)

        def put_runs(event: RunsEnded) -> None:
            for one in event.others:
                if one.dead:
                    queue.put(one)

        self._events.subscribe(queue.put, [ServiceError])
        self._events.subscribe(put_runs, [RunsEnded])

    def _queue(self, signal: str, export: Callable[[list[Any]], int], **more: int) -> Any:
        made: ExportQueue[Any] = ExportQueue(signal, export, self._count, clock=self._clock, **more)
        self._queues.append(made)
        return made

    def _count(self, what: str, signal: str, n: int) -> None:
        self._metrics.inc(f"penstock_telemetry_{what}_total", signal, by=n)

    def _sample(self, otlp: Otlp) -> None:
        """Export the metrics at intervals, and once at the end."""
        is_over = False
        while not is_over:
            is_over = self._stopping.wait(METRICS_SECONDS)
            # A receiver that is down gets the same counts the next time.
            with contextlib.suppress(Exception):
                families: Any = self._registry.collect()
                otlp.send_metrics(families, self._started_at, self._clock.now())


@contextlib.contextmanager
def open_telemetry(
    declared: TelemetrySettings,
    events: Events,
    metrics: ProcessMetrics,
    around: Surroundings,
    registry: CollectorRegistry | None = None,
) -> Iterator[Telemetry]:
    """Run the telemetry of a process for the duration of a block."""
    made = Telemetry(declared, events, metrics, around, registry)
    made.start()
    try:
        yield made
    finally:
        made.close()


def version() -> str:
    """Return the version of Penstock."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "0"


def _missing(setting: str, extra: str, error: ImportError) -> SettingsError:
    return SettingsError(
        setting,
        f"an installation with the extra {extra}",
        f"none ({redact_text(str(error))})",
        f"Install it: pip install '{DISTRIBUTION}[{extra}]'",
    )
