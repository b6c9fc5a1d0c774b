"""A collector for OpenTelemetry: a real HTTP server that decodes what exporters send."""

from __future__ import annotations

import contextlib
import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Span(NamedTuple):
    """A span as it arrived."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    seconds: float
    attributes: dict[str, Any]
    is_error: bool
    service: str


class Collector:
    """What a collector received; `status` is what it responds."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.metrics: dict[str, Any] = {}
        self.logs: list[Any] = []
        self.status = 200
        self.requests = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)

    def take(self, path: str, body: bytes) -> None:
        """Decode one request."""
        self.requests += 1
        if path == "/v1/traces":
            self._take_spans(body)
        elif path == "/v1/metrics":
            made = ExportMetricsServiceRequest.FromString(body)
            for resource in made.resource_metrics:
                for scope in resource.scope_metrics:
                    self.metrics |= {metric.name: metric for metric in scope.metrics}
        elif path == "/v1/logs":
            logs = ExportLogsServiceRequest.FromString(body)
            for one in logs.resource_logs:
                for scope_logs in one.scope_logs:
                    self.logs += list(scope_logs.log_records)

    def _take_spans(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = _values(resource.resource.attributes)["service.name"]
            for scope in resource.scope_spans:
                self.spans += [
                    Span(
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.kind,
                        (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                        _values(span.attributes),
                        span.status.code == 2,
                        service,
                    )
                    for span in scope.spans
                ]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if collector.status == 200:
                    collector.take(self.path, body)
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Write nothing."""

        return Handler


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """A collector for the length of a block."""
    made = Collector()
    try:
        yield made
    finally:
        made.close()


def _values(attributes: Any) -> dict[str, Any]:
    found = {}
    for one in attributes:
        kind = one.value.WhichOneof("value")
        found[one.key] = getattr(one.value, kind)
    return found
