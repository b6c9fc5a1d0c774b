"""Metrics of the bus and of limits: backlogs, dead letters, holders, learned capacity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client.core import GaugeMetricFamily

from penstock.client import Client
from penstock.core.clock import SECOND
from penstock.core.errors import StoreError
from penstock.limits.records import Limit, WaitTimes

SHOWN: Final = 200
"""Number of subscriptions and of limits that are exported, by name."""


class BusCollector:
    """Collects subscriptions and limits at each scrape."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def describe(self) -> list[Any]:
        """Return nothing; metrics are known only at a scrape."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics; nothing while the database is unavailable."""
        try:
            watched = self._client.subscriptions.backlogs(SHOWN)
            limits = self._client.limits.list(limit=SHOWN).items
            waits = self._client.limits.recent_waits(SHOWN)
            now = self._client.views.now()
            groups = self._client.dead_letters.groups(limit=SHOWN)
        except StoreError:
            return
        waiting = GaugeMetricFamily(
            "penstock_subscription_messages", "Messages by subscription and state; counts stop at "
            "10,000.", labels=["subscription", "state"],
        )  # fmt: skip
        oldest = GaugeMetricFamily(
            "penstock_subscription_oldest_seconds",
            "Age of the oldest unsettled message in seconds.",
            labels=["subscription"],
        )  # fmt: skip
        for name, backlog in watched:
            for state in ("ready", "leased", "delayed", "behind"):
                waiting.add_metric([name, state], getattr(backlog, state))
            age = 0 if backlog.oldest_at is None else (now - backlog.oldest_at) / SECOND
            oldest.add_metric([name], max(0.0, age))
        dead = GaugeMetricFamily(
            "penstock_dead_letters", "Open dead letters by origin.", labels=["origin", "error_type"]
        )
        for group in groups:
            path = (group.pipeline, group.phase, group.processor)
            origin = group.subscription or "/".join(part for part in path if part)
            dead.add_metric([origin or group.kind, group.error_type], group.count)
        yield from (waiting, oldest, dead)
        yield from _limit_gauges(limits)
        yield from _wait_gauges(waits)


def _limit_gauges(limits: Sequence[Limit]) -> Iterator[GaugeMetricFamily]:
    descriptions = {
        "held": "Total weight that is held.",
        "waiting": "Waiting callers and queued runs.",
        "capacity": "Configured capacity.",
        "effective_capacity": "Capacity in effect after learning from quota errors.",
        "quota_errors": "Number of quota errors reported so far.",
    }
    gauges = {
        name: GaugeMetricFamily(f"penstock_limit_{name}", words, labels=["limit"])
        for name, words in descriptions.items()
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
    times = GaugeMetricFamily(
        "penstock_limit_wait_seconds",
        "Percentiles of waits that ended in the last five minutes.",
        labels=["limit", "quantile"],
    )
    contention = GaugeMetricFamily(
        "penstock_limit_contention",
        "Share of requests that had to wait, over the last five minutes.",
        labels=["limit"],
    )
    for name, found in waits.items():
        for quantile, value in (("0.5", found.p50), ("0.95", found.p95), ("0.99", found.p99)):
            times.add_metric([name, quantile], value.total_seconds())
        contention.add_metric([name], found.contention)
    yield from (times, contention)
