"""Prometheus metrics of the API, and of the database at the time of a scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from penstock.audit.telemetry import (
    Event,
    PushAccepted,
    PushPosted,
    PushRefused,
    RequestSent,
)
from penstock.client import Client
from penstock.core.errors import StoreError
from penstock.server.bus_metrics import BusCollector
from penstock.server.overload.connections import ConnectionTable
from penstock.server.overload.middleware import AccessRecord

SUBSCRIPTIONS_MAX = 500
BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class Metrics:
    """The metrics of a process."""

    def __init__(
        self, client: Client, waiting: Callable[[], int], connections: ConnectionTable
    ) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "penstock_http_requests",
            "Requests by route and status.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "penstock_http_request_seconds",
            "Response time in seconds, without long polls.",
            ["method", "route"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._pushes = PushMetrics(self._registry)
        polls = Gauge(
            "penstock_http_waiting", "Number of waiting long polls.", registry=self._registry
        )
        polls.set_function(lambda: float(waiting()))
        opened = Gauge(
            "penstock_http_connections", "Number of open connections.", registry=self._registry
        )
        opened.set_function(lambda: float(connections.count))
        closed = Gauge(
            "penstock_http_connections_closed",
            "Connections closed in favour of new ones, or because the client did not read.",
            registry=self._registry,
        )
        closed.set_function(lambda: float(connections.closed))
        self._registry.register(_StoreView(client))
        self._registry.register(BusCollector(client))

    def record(self, access: AccessRecord) -> None:
        """Count a request."""
        route = access.route or "other"
        self._requests.labels(access.method, route, str(access.status)).inc()
        if access.route and not access.is_poll:
            self._seconds.labels(access.method, route).observe(access.seconds)

    def on_event(self, event: Event) -> None:
        """Count outgoing and incoming pushes of this process."""
        self._pushes.on_event(event)

    def response(self) -> Response:
        """Return all metrics in the Prometheus text format."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)


class PushMetrics:
    """Metrics of outgoing and incoming pushes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._names: set[str] = set()
        self._requests = Counter(
            "penstock_push_requests",
            "Push requests by subscription and response.",
            ["subscription", "answer"],
            registry=registry,
        )
        self._seconds = Histogram(
            "penstock_push_request_seconds",
            "Response time of endpoints in seconds.",
            ["subscription"],
            buckets=BUCKETS,
            registry=registry,
        )
        self._window = Gauge(
            "penstock_push_window",
            "Number of concurrent requests allowed to an endpoint.",
            ["subscription"],
            registry=registry,
        )
        self._sent = Counter(
            "penstock_endpoint_requests",
            "Requests to HTTP processors by processor and response.",
            ["processor", "response"],
            registry=registry,
        )
        self._sent_seconds = Histogram(
            "penstock_endpoint_request_seconds",
            "Response time of HTTP processors in seconds.",
            ["processor"],
            buckets=BUCKETS,
            registry=registry,
        )
        self._received = Counter(
            "penstock_push_received",
            "Incoming pushes by subscription and outcome.",
            ["subscription", "outcome"],
            registry=registry,
        )

    def on_event(self, event: Event) -> None:
        """Count a push, or a request to an HTTP processor."""
        if isinstance(event, PushPosted):
            name = self._name("/".join(filter(None, (event.customer_id, event.subscription))))
            self._requests.labels(name, event.failure or str(event.status)).inc()
            self._seconds.labels(name).observe(event.seconds)
            self._window.labels(name).set(event.window)
        elif isinstance(event, RequestSent):
            name = self._name(event.processor)
            self._sent.labels(name, event.failure or str(event.status)).inc()
            self._sent_seconds.labels(name).observe(event.seconds)
        elif isinstance(event, PushAccepted):
            self._received.labels(self._name(event.subscription), event.outcome).inc()
        elif isinstance(event, PushRefused):
            # A refused request may name any subscription, so the name is not used as a label.
            self._received.labels("", f"refused {event.status}").inc()

    def _name(self, name: str) -> str:
        """Return the label of a subscription; beyond the maximum they share `other`."""
        if name in self._names or len(self._names) < SUBSCRIPTIONS_MAX:
            self._names.add(name)
            return name
        return "other"


class _StoreView:
    """Collects the state of the queue; only `penstock_up` while the database is unavailable."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def describe(self) -> list[Any]:
        """Return nothing; metrics are known only at a scrape."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the counts of active runs and of today's ended runs."""
        try:
            seen = self._client.views.overview()
            waiting = self._client.views.outbox().waiting
        except StoreError:
            yield GaugeMetricFamily("penstock_up", "Whether the database answers.", 0)
            return
        yield GaugeMetricFamily("penstock_up", "Whether the database answers.", 1)
        runs = GaugeMetricFamily("penstock_runs", "Active runs by state.", labels=["state"])
        for state in ("ready", "later", "paused", "blocked", "claimed", "running"):
            runs.add_metric([state], getattr(seen, f"{state}_runs"))
        yield runs
        today = GaugeMetricFamily(
            "penstock_runs_today", "Runs that ended since midnight UTC.", labels=["end"]
        )
        for end in ("completed", "failed", "cancelled"):
            today.add_metric([end], getattr(seen, f"{end}_today"))
        yield today
        flows = GaugeMetricFamily(
            "penstock_flows", "Open flows that a phase holds up, by its state.", labels=["state"]
        )
        flows.add_metric(["blocked"], seen.blocked_flows)
        flows.add_metric(["waiting"], seen.waiting_flows)
        yield flows
        yield GaugeMetricFamily(
            "penstock_sla_breaches_today",
            "Runs that missed their SLA since midnight UTC.",
            seen.sla_breaches_today,
        )
        yield GaugeMetricFamily(
            "penstock_outbox_waiting", "Outbox messages that are not published yet.", waiting
        )
