"""Metrics of the whole installation, read from the database at a scrape.

Everything is bounded: the first subscriptions, limits and origins by name are exported, and the
subjects of alert rules with the largest values. Scrapes within a few seconds share one read, so
that several Prometheus servers load the database no more than one.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from penstock.alerts.measures import Measurement
from penstock.assets.alert_metrics import alert_metric, exported_value
from penstock.client import Client
from penstock.core.clock import SECOND, Clock
from penstock.core.errors import StoreError
from penstock.limits.records import Limit, WaitTimes
from penstock.telemetry.catalog import CUSTOMER, DECLARED, DeclaredMetric, metric_named

SHOWN: Final = 200
"""Number of subscriptions, of limits and of subjects that are exported."""
SHARED_SECONDS: Final = 10.0
_DECLARED: Final = frozenset(metric.name for metric in DECLARED)
STATES: Final = ("ready", "later", "paused", "blocked", "claimed", "running")


class FleetCollector(Collector):
    """Collects the state of the queue, the bus, limits and alerts.

    While the database is unavailable, only `penstock_up` is collected.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        by_customer: bool = False,
        local: Callable[[], Sequence[Measurement]] = tuple,
    ) -> None:
        """`local` measures what is specific to this machine, such as the disk."""
        self._client = client
        self._clock = clock
        self._by_customer = by_customer
        self._local = local
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._families: list[GaugeMetricFamily] = []

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing; the metrics are known only at a scrape."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics, at most a few seconds old."""
        with self._lock:
            now = self._clock.monotonic()
            try:
                self._client.views.ping()
                if now - self._read_at >= SHARED_SECONDS:
                    self._families = list(self._read())
                    self._read_at = now
                found = [_value("up", 1), *self._families]
            except StoreError:
                found = [_value("up", 0)]
        yield from found

    def _read(self) -> Iterator[GaugeMetricFamily]:
        client = self._client
        seen = client.views.overview()
        runs = _gauge("runs")
        for state in STATES:
            runs.add_metric([state], getattr(seen, f"{state}_runs"))
        yield runs
        today = _gauge("runs_today")
        for end in ("completed", "failed", "cancelled"):
            today.add_metric([end], getattr(seen, f"{end}_today"))
        yield today
        flows = _gauge("flows")
        flows.add_metric(["blocked"], seen.blocked_flows)
        flows.add_metric(["waiting"], seen.waiting_flows)
        yield flows
        yield _value("sla_breaches_today", seen.sla_breaches_today)
        yield _value("outbox_waiting", client.views.outbox().waiting)
        workers = _gauge("workers")
        pools = Counter(one.pool for one in client.views.sessions() if one.pool is not None)
        for pool, n in sorted(pools.items())[:SHOWN]:
            workers.add_metric([pool], n)
        yield workers
        yield from self._subscriptions()
        yield from self._dead_letters()
        yield from _limit_gauges(client.limits.list(limit=SHOWN).items)
        yield from _wait_gauges(client.limits.recent_waits(SHOWN))
        yield from self._alerts()

    def _subscriptions(self) -> Iterator[GaugeMetricFamily]:
        waiting = self._split("subscription_messages")
        oldest = self._split("subscription_oldest_seconds")
        now = self._client.views.now()
        counts: Counter[tuple[str, str, str]] = Counter()
        ages: dict[tuple[str, str], float] = {}
        for one in self._client.subscriptions.backlogs(SHOWN):
            customer = (one.customer_id or "") if self._by_customer else ""
            for state in ("ready", "leased", "delayed", "behind"):
                counts[one.subscription, state, customer] += getattr(one.backlog, state)
            since = one.backlog.oldest_at
            age = 0.0 if since is None else max(0.0, (now - since) / SECOND)
            key = (one.subscription, customer)
            ages[key] = max(ages.get(key, 0.0), age)
        for (name, state, customer), n in counts.items():
            waiting.add_metric(self._labels(customer, name, state), n)
        for (name, customer), age in ages.items():
            oldest.add_metric(self._labels(customer, name), age)
        yield from (waiting, oldest)

    def _dead_letters(self) -> Iterator[GaugeMetricFamily]:
        dead = _gauge("dead_letters")
        counts: Counter[tuple[str, str]] = Counter()
        for group in self._client.dead_letters.groups(limit=SHOWN, check=False):
            path = (group.pipeline, group.phase, group.processor)
            origin = group.subscription or "/".join(part for part in path if part)
            counts[origin or group.kind, group.error_type] += group.count
        for key, n in counts.items():
            dead.add_metric(key, n)
        yield dead

    def _alerts(self) -> Iterator[GaugeMetricFamily]:
        measured = self._client.alerts.measured()
        alerts = _gauge("alerts")
        for (rule, severity), n in measured.open_alerts.items():
            alerts.add_metric([rule, severity], n)
        yield alerts
        lacking = _gauge("audit_backlog_entries")
        for one in measured.measurements:
            if one.metric == "audit_backlog_minutes":
                lacking.add_metric([one.name], one.facts["entries"])
        yield lacking
        largest: dict[str, dict[str, float]] = {}
        for one in (*measured.measurements, *self._local()):
            known = largest.setdefault(one.metric, {})
            value = exported_value(one.metric, one.value)
            known[one.name] = max(known.get(one.name, value), value)
        for name, values in largest.items():
            metric = alert_metric(name)
            if metric.name in _DECLARED:
                continue
            family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
            ranked = sorted(values.items(), key=lambda pair: -pair[1])
            for subject, value in ranked[:SHOWN]:
                family.add_metric([subject] if metric.labels else [], value)
            yield family

    def _split(self, name: str) -> GaugeMetricFamily:
        metric = metric_named(name)
        labels = (*metric.labels, CUSTOMER) if self._by_customer else metric.labels
        return GaugeMetricFamily(metric.name, metric.help, labels=labels)

    def _labels(self, customer: str, *labels: str) -> list[str]:
        return [*labels, customer] if self._by_customer else list(labels)


def _gauge(name: str) -> GaugeMetricFamily:
    metric: DeclaredMetric = metric_named(name)
    return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)


def _value(name: str, value: float) -> GaugeMetricFamily:
    family = _gauge(name)
    family.add_metric([], value)
    return family


def _limit_gauges(limits: Sequence[Limit]) -> Iterator[GaugeMetricFamily]:
    gauges = {
        name: _gauge(f"limit_{name}")
        for name in ("held", "waiting", "capacity", "effective_capacity", "quota_errors")
    }
    for limit in limits:
        values = {
            "held": limit.held,
            "waiting": limit.waiting + limit.waiting_runs,
            "capacity": limit.capacity,
            "effective_capacity": limit.effective_capacity,
            "quota_errors": limit.quota_errors,
        }
        for name, value in values.items():
            if value is not None:
                gauges[name].add_metric([limit.name], value)
    yield from gauges.values()


def _wait_gauges(waits: Mapping[str, WaitTimes]) -> Iterator[GaugeMetricFamily]:
    """Yield how long requests and runs waited for limits; limits without requests are absent."""
    times, contention = _gauge("limit_wait_seconds"), _gauge("limit_contention_ratio")
    for name, found in waits.items():
        for quantile, value in (("0.5", found.p50), ("0.95", found.p95), ("0.99", found.p99)):
            times.add_metric([name, quantile], value.total_seconds())
        contention.add_metric([name], found.contention)
    yield from (times, contention)
