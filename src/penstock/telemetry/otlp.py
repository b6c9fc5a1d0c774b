"""OpenTelemetry: spans, metrics and log records, sent over OTLP/HTTP by its exporters.

This module needs the extra `otel` and is loaded only if `telemetry.otlp_endpoint` is set. Only the
threads of `ExportQueue` call this module, never the threads that execute work.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from penstock.core.clock import Micros
from penstock.telemetry.log_lines import LogRecordData
from penstock.telemetry.spans import SpanData
from penstock.telemetry.tally import Family

SCOPE: Final = InstrumentationScope("penstock")
TIMEOUT_SECONDS: Final = 5.0
LEVELS: Final = {"debug": 5, "info": 9, "warning": 13, "error": 17}
"""Severity numbers of OpenTelemetry."""


class Otlp:
    """The exporters of one process, to one collector."""

    def __init__(self, endpoint: str, service_name: str, version: str) -> None:
        base = endpoint.rstrip("/")
        self._spans = OTLPSpanExporter(f"{base}/v1/traces", timeout=TIMEOUT_SECONDS)
        self._metrics = OTLPMetricExporter(f"{base}/v1/metrics", timeout=TIMEOUT_SECONDS)
        self._logs = OTLPLogExporter(f"{base}/v1/logs", timeout=TIMEOUT_SECONDS)
        self._resource = Resource.create(
            {
                "service.name": service_name,
                "service.version": version,
                "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
            }
        )

    def send_spans(self, spans: Sequence[SpanData]) -> int:
        """Send spans; return how many arrived."""
        made = [_span(one, self._resource) for one in spans]
        is_done = self._spans.export(made) is SpanExportResult.SUCCESS
        return len(made) if is_done else 0

    def send_logs(self, lines: Sequence[LogRecordData]) -> int:
        """Send log records; return how many arrived."""
        made = [_log(one, self._resource) for one in lines]
        is_done = self._logs.export(made) is LogRecordExportResult.SUCCESS
        return len(made) if is_done else 0

    def send_metrics(self, families: Iterable[Family], start_at: Micros, now: Micros) -> None:
        """Send the current values of metrics; after a failure, the next call sends them again."""
        made = [metric for family in families if (metric := _metric(family, start_at, now))]
        scope = ScopeMetrics(scope=SCOPE, metrics=made, schema_url="")
        resource = ResourceMetrics(
            resource=self._resource, scope_metrics=[scope], schema_url=self._resource.schema_url
        )
        self._metrics.export(MetricsData(resource_metrics=[resource]))

    def close(self) -> None:
        """Close the connections."""
        for exporter in (self._spans, self._metrics, self._logs):
            exporter.shutdown()


def _context(trace_id: str, span_id: str) -> Any:
    return SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=TraceFlags(1)
    )


def _span(one: SpanData, resource: Resource) -> Any:
    parent = None if one.parent_id is None else _context(one.trace_id, one.parent_id)
    is_failed = one.error is not None
    return ReadableSpan(
        name=one.name,
        context=_context(one.trace_id, one.span_id),
        parent=parent,
        resource=resource,
        attributes=dict(one.attributes),
        kind=SpanKind[one.kind.upper()],
        status=Status(StatusCode.ERROR, one.error) if is_failed else Status(StatusCode.UNSET),
        start_time=one.start_at * 1_000,
        end_time=one.end_at * 1_000,
        instrumentation_scope=SCOPE,
    )


def _log(one: LogRecordData, resource: Resource) -> Any:
    context = None
    if one.trace_id is not None and one.span_id is not None:
        context = set_span_in_context(NonRecordingSpan(_context(one.trace_id, one.span_id)))
    record = LogRecord(
        timestamp=one.at * 1_000,
        context=context,
        severity_number=SeverityNumber(LEVELS.get(one.level, 9)),
        severity_text=one.level.upper(),
        body=one.text,
        attributes={name: _plain(value) for name, value in one.fields.items() if value is not None},
    )
    return ReadableLogRecord(record, resource, SCOPE)


def _plain(value: object) -> str | bool | int | float:
    return value if isinstance(value, str | bool | int | float) else str(value)


def _metric(family: Family, start_at: Micros, now: Micros) -> Any:
    """Return a family as OpenTelemetry's metric; None without samples."""
    times: dict[str, Any] = {
        "start_time_unix_nano": start_at * 1_000,
        "time_unix_nano": now * 1_000,
    }
    if not family.samples:
        return None
    cumulative = AggregationTemporality.CUMULATIVE
    data: Any
    if family.type == "histogram":
        points = _histograms(family, times)
        data = Histogram(data_points=points, aggregation_temporality=cumulative)
    else:
        numbers = [
            NumberDataPoint(attributes=sample.labels, value=sample.value, **times)
            for sample in family.samples
        ]
        data = Gauge(data_points=numbers)
        if family.type == "counter":
            data = Sum(data_points=numbers, aggregation_temporality=cumulative, is_monotonic=True)
    unit = "s" if "_seconds" in family.name else "By" if "_bytes" in family.name else "1"
    return Metric(name=family.name, description=family.documentation, unit=unit, data=data)


def _histograms(family: Family, times: Mapping[str, Any]) -> list[Any]:
    """Return the points of a histogram, from its samples by bucket."""
    points: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for sample in family.samples:
        labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
        point = points.setdefault(labels, {"bounds": [], "counts": [], "sum": 0.0})
        if sample.name.endswith("_bucket"):
            if sample.labels["le"] != "+Inf":
                point["bounds"].append(float(sample.labels["le"]))
            point["counts"].append(int(sample.value))
        elif sample.name.endswith("_sum"):
            point["sum"] = sample.value
    unknown: dict[str, Any] = {"min": None, "max": None}
    return [
        HistogramDataPoint(
            attributes=dict(labels),
            count=point["counts"][-1],
            sum=point["sum"],
            bucket_counts=[b - a for a, b in pairwise([0, *point["counts"]])],
            explicit_bounds=point["bounds"],
            **times,
            **unknown,
        )
        for labels, point in points.items()
    ]
