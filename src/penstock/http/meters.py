"""Meters of the API, and of the store as seen when somebody looks, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from penstock.client import Client
from penstock.core.errors import StoreError
from penstock.http.guard import Access

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
        polls = Gauge("penstock_http_waiting", "Workers that wait.", registry=self._registry)
        polls.set_function(lambda: float(waiting()))
        self._registry.register(_StoreView(client))

    def record(self, access: Access) -> None:
        """Count a request."""
        route = access.route or "other"
        self._requests.labels(access.method, route, str(access.status)).inc()
        if access.route and not access.is_poll:
            self._seconds.labels(access.method, route).observe(access.seconds)

    def answer(self) -> Response:
        """Everything, as Prometheus reads it."""
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)


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
