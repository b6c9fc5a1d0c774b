"""Meters of the API, and of the store as seen when somebody looks, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from penstock.audit.telemetry import Event, PushAccepted, PushPosted, PushRefused
from penstock.client import Client
from penstock.core.errors import StoreError
from penstock.server.bus_metrics import SharedView
from penstock.server.overload.middleware import Access

SUBSCRIPTIONS_MAX = 500
BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class Meters:
    """What the API counts."""

    def __init__(self, client: Client, waiting: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "penstock_http_requests",
            "Requests by route and status.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "penstock_http_request_seconds",
            "Time to answer, long polls left out.",
            ["method", "route"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._pushes = PushMeters(self._registry)
        polls = Gauge("penstock_http_waiting", "Workers that wait.", registry=self._registry)
        polls.set_function(lambda: float(waiting()))
        self._registry.register(_StoreView(client))
        self._registry.register(SharedView(client))

    def record(self, access: Access) -> None:
        """Count a request."""
        route = access.route or "other"
        self._requests.labels(access.method, route, str(access.status)).inc()
        if access.route and not access.is_poll:
            self._seconds.labels(access.method, route).observe(access.seconds)

    def hear(self, event: Event) -> None:
        """Count what the pusher and senders elsewhere do, when they do it in this process."""
        self._pushes.hear(event)

    def answer(self) -> Response:
        """Everything, as Prometheus reads it."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)


class PushMeters:
    """Pushes out and in."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._names: set[str] = set()
        self._requests = Counter(
            "penstock_push_requests",
            "Push requests by subscription and answer.",
            ["subscription", "answer"],
            registry=registry,
        )
        self._seconds = Histogram(
            "penstock_push_request_seconds",
            "Time until an endpoint answered.",
            ["subscription"],
            buckets=BUCKETS,
            registry=registry,
        )
        self._window = Gauge(
            "penstock_push_window",
            "Requests an endpoint is trusted with at a time.",
            ["subscription"],
            registry=registry,
        )
        self._received = Counter(
            "penstock_push_received",
            "Pushes from elsewhere by subscription and outcome.",
            ["subscription", "outcome"],
            registry=registry,
        )

    def hear(self, event: Event) -> None:
        """Count an event of push."""
        if isinstance(event, PushPosted):
            name = self._name("/".join(filter(None, (event.customer_id, event.subscription))))
            self._requests.labels(name, event.failure or str(event.status)).inc()
            self._seconds.labels(name).observe(event.seconds)
            self._window.labels(name).set(event.window)
        elif isinstance(event, PushAccepted):
            self._received.labels(self._name(event.subscription), event.outcome).inc()
        elif isinstance(event, PushRefused):
            # A refused name is anybody's: it is no label.
            self._received.labels("", f"refused {event.status}").inc()

    def _name(self, name: str) -> str:
        """A label; of more subscriptions than anybody can look at the rest are one."""
        if name in self._names or len(self._names) < SUBSCRIPTIONS_MAX:
            self._names.add(name)
            return name
        return "other"


class _StoreView:
    """The queue at the moment of the look; when the store is away only `penstock_up` says so."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def describe(self) -> list[Any]:
        """Nothing to look at before a look."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Today's counts and what is live."""
        try:
            seen = self._client.views.overview()
            waiting, _ = self._client.views.outbox()
        except StoreError:
            yield GaugeMetricFamily("penstock_up", "Whether the store answers.", 0)
            return
        yield GaugeMetricFamily("penstock_up", "Whether the store answers.", 1)
        runs = GaugeMetricFamily("penstock_runs", "Live runs by state.", labels=["state"])
        for state in ("ready", "later", "paused", "blocked", "claimed", "running"):
            runs.add_metric([state], getattr(seen, state))
        yield runs
        today = GaugeMetricFamily(
            "penstock_runs_today", "Runs that ended since midnight UTC.", labels=["end"]
        )
        for end in ("completed", "failed", "cancelled"):
            today.add_metric([end], getattr(seen, f"{end}_today"))
        yield today
        yield GaugeMetricFamily(
            "penstock_sla_breaches_today", "Runs that started too late.", seen.sla_breaches_today
        )
        yield GaugeMetricFamily("penstock_outbox_waiting", "Messages to be relayed.", waiting)
