"""Counts of a process: counters, gauges and histograms by label, bounded and cheap to update.

`Tally` is a collector of a Prometheus registry: families are built when they are read. Updating
takes a lock and a dictionary; nothing is formatted. The values of a label are bounded: beyond
`LABEL_VALUES_MAX` they share the value `other`, so that users' names cannot exhaust the memory of
this process or of the receiver.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, TypeAlias

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

from penstock.telemetry.catalog import CUSTOMER, LABEL_VALUES_MAX, DeclaredMetric

OTHER: Final = "other"

Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
Labels: TypeAlias = tuple[str, ...]


class Distribution:
    """Counts by bucket, and the sum of what was observed."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value; the caller holds the tally's lock."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_all(self, values: Iterable[int], unit: int) -> None:
        """Count values in units of `1 / unit`; sorting them once is faster than counting each."""
        ordered = sorted(values)
        below = 0
        for number, bound in enumerate(self.bounds):
            if below == len(ordered):
                break
            upto = bisect_right(ordered, bound * unit, below)
            self.counts[number] += upto - below
            below = upto
        self.counts[-1] += len(ordered) - below
        self.total += sum(ordered) / unit

    def add(self, other: Distribution) -> None:
        """Add the counts of another distribution with the same bounds."""
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts by upper bound, as Prometheus exposes them."""
        names = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self.counts)), strict=True))


class LabelValues:
    """A bounded set of label values that users' names determine."""

    def __init__(self, most: int = LABEL_VALUES_MAX) -> None:
        self._most = most
        self._known: dict[str, set[str]] = {}

    def bound(self, label: str, value: str) -> str:
        """Return a value, or `other` if the label has too many."""
        known = self._known.setdefault(label, set())
        if value in known:
            return value
        if len(known) >= self._most:
            return OTHER
        known.add(value)
        return value


class Tally(Collector):
    """The counts of declared metrics. Thread-safe."""

    def __init__(self, metrics: Iterable[DeclaredMetric], *, has_customers: bool = False) -> None:
        """`has_customers`: metrics that allow it have the label `customer`."""
        self._metrics = {metric.name: metric for metric in metrics}
        self._has_customers = has_customers
        self._values = LabelValues()
        self.lock = threading.Lock()
        self._counts: dict[str, dict[Labels, float]] = {name: {} for name in self._metrics}
        self._histograms: dict[str, dict[Labels, Distribution]] = {
            name: {} for name, metric in self._metrics.items() if metric.kind == "histogram"
        }
        self._functions: dict[str, Callable[[], float]] = {}

    def inc(self, name: str, *labels: str, by: float = 1, customer: str = "") -> None:
        """Add to a counter."""
        with self.lock:
            key = self._key(name, labels, customer)
            counts = self._counts[name]
            counts[key] = counts.get(key, 0) + by

    def set(self, name: str, *labels: str, value: float) -> None:
        """Set a gauge."""
        with self.lock:
            self._counts[name][self._key(name, labels, "")] = value

    def follow(self, name: str, function: Callable[[], float]) -> None:
        """Read a gauge or counter without labels when it is collected."""
        self._functions[name] = function

    def observe(self, name: str, *labels: str, value: float, customer: str = "") -> None:
        """Add a value to a histogram."""
        with self.lock:
            self.histogram(name, labels, customer).observe(value)

    def histogram(self, name: str, labels: Labels, customer: str) -> Distribution:
        """Return a histogram's distribution; the caller holds the lock."""
        key = self._key(name, labels, customer)
        known = self._histograms[name]
        if key not in known:
            known[key] = Distribution(self._metrics[name].buckets)
        return known[key]

    def describe(self) -> Iterator[Family]:
        """Yield every family without samples."""
        return (_family(metric, self._labels(metric)) for metric in self._metrics.values())

    def collect(self) -> Iterator[Family]:
        """Yield every family with its samples."""
        with self.lock:
            counts = {name: dict(known) for name, known in self._counts.items()}
            shown = {
                name: [(key, one.buckets(), one.total) for key, one in known.items()]
                for name, known in self._histograms.items()
            }
        for name, metric in self._metrics.items():
            family = _family(metric, self._labels(metric))
            if name in self._functions:
                counts[name][()] = self._functions[name]()
            if isinstance(family, HistogramMetricFamily):
                for key, buckets, total in shown[name]:
                    family.add_metric(key, buckets=buckets, sum_value=total)
            else:
                for key, value in counts[name].items():
                    family.add_metric(key, value)
            yield family

    def _labels(self, metric: DeclaredMetric) -> Labels:
        is_split = self._has_customers and metric.by_customer
        return (*metric.labels, CUSTOMER) if is_split else metric.labels

    def _key(self, name: str, labels: Labels, customer: str) -> Labels:
        metric = self._metrics[name]
        names = self._labels(metric)
        given = (*labels, customer) if len(names) > len(metric.labels) else labels
        return tuple(map(self._values.bound, names, given))


def _family(metric: DeclaredMetric, labels: Labels) -> Family:
    if metric.kind == "counter":
        return CounterMetricFamily(metric.name, metric.help, labels=labels)
    if metric.kind == "gauge":
        return GaugeMetricFamily(metric.name, metric.help, labels=labels)
    return HistogramMetricFamily(metric.name, metric.help, labels=labels)
