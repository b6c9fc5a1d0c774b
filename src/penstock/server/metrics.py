"""Prometheus metrics of the API: counts of this process, and the state of the installation."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from penstock.audit.telemetry import Events
from penstock.client import Client
from penstock.core.clock import Clock
from penstock.server.fleet_metrics import FleetCollector
from penstock.server.overload.connections import ConnectionTable
from penstock.server.overload.middleware import AccessRecord
from penstock.telemetry.catalog import API
from penstock.telemetry.process_metrics import ProcessMetrics
from penstock.telemetry.processor_names import ProcessorNames


class Metrics:
    """The metrics that the API serves."""

    def __init__(self, process: ProcessMetrics, fleet: FleetCollector) -> None:
        """`process` includes the metrics of the API."""
        self._process = process
        self.registry: CollectorRegistry = process.registry()
        self.registry.register(fleet)

    def follow(self, waiting: Callable[[], int], connections: ConnectionTable) -> None:
        """Read the number of waiting long polls and of connections when they are collected."""
        follow = self._process.follow
        follow("penstock_http_waiting", lambda: float(waiting()))
        follow("penstock_http_connections", lambda: float(connections.count))
        follow("penstock_http_connections_closed_total", lambda: float(connections.closed))

    def record(self, access: AccessRecord) -> None:
        """Count a request."""
        route = access.route or "other"
        status = str(access.status)
        self._process.inc("penstock_http_requests_total", access.method, route, status)
        if access.route and not access.is_poll:
            name, seconds = "penstock_http_request_seconds", access.seconds
            self._process.observe(name, access.method, route, value=seconds)

    def response(self) -> Response:
        """Return all metrics in the Prometheus text format."""
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)


def own_metrics(client: Client, clock: Clock, events: Events) -> Metrics:
    """Return metrics that count the events of a process from now on."""
    process = ProcessMetrics(ProcessorNames(client.views.processor_paths), more=API)
    process.subscribe(events)
    return Metrics(process, FleetCollector(client, clock))
