"""Every metric that Penstock exposes, declared once.

The registries of processes, the fleet figures of the API, the reference page and the generated
dashboards and rules are read from this list. `scope` says where a metric is exposed: `process`
(every process, about itself), `api` (the server), `fleet` (the API, from the database, so that one
scrape covers the installation). Metrics of alert rules are derived from those rules
(`assets.alert_metrics`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

CUSTOMER: Final = "customer"
"""Label that metrics with `by_customer` have if the setting `customer_label` is on."""
LABEL_VALUES_MAX: Final = 500
"""Maximum number of values of a label that users' names determine; further ones are counted as
`other`.
"""
QUICK: Final = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
LONG: Final = (0.01, 0.1, 1, 10, 60, 300, 900, 1_800, 3_600, 7_200, 21_600, 43_200)


class DeclaredMetric(NamedTuple):
    """A metric: its Prometheus name and its description."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    scope: Literal["process", "api", "fleet"] = "process"
    buckets: tuple[float, ...] = ()
    by_customer: bool = False

    @property
    def unit(self) -> str:
        """Base unit that the name ends with; empty for counts and shares."""
        last = self.name.removesuffix("_total").rpartition("_")[2]
        return last if last in ("seconds", "bytes", "ratio") else ""

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its series, which expressions use."""
        if self.kind != "histogram":
            return (self.name,)
        return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))


def _counter(name: str, help: str, *labels: str, by_customer: bool = False) -> DeclaredMetric:
    return DeclaredMetric(
        f"penstock_{name}_total", "counter", help, labels, by_customer=by_customer
    )


def _gauge(name: str, help: str, *labels: str) -> DeclaredMetric:
    return DeclaredMetric(f"penstock_{name}", "gauge", help, labels)


def _histogram(
    name: str, help: str, *labels: str, buckets: tuple[float, ...], by_customer: bool = False
) -> DeclaredMetric:
    made = DeclaredMetric(f"penstock_{name}", "histogram", help, labels, buckets=buckets)
    return made._replace(by_customer=by_customer)


def _scoped(scope: Literal["api", "fleet"], *metrics: DeclaredMetric) -> tuple[DeclaredMetric, ...]:
    return tuple(metric._replace(scope=scope) for metric in metrics)


PROCESS: Final[Sequence[DeclaredMetric]] = (
    _counter(
        "run_ends",
        "Runs that this process ended, by outcome: completed, retried, dead, failed or cancelled.",
        "pipeline",
        "processor",
        "outcome",
        by_customer=True,
    ),
    _counter(
        "run_errors", "Failed attempts by error type.", "pipeline", "processor", "error_type",
        by_customer=True,
    ),
    _histogram(
        "run_seconds", "Execution time of runs.", "pipeline", "processor", buckets=LONG,
        by_customer=True,
    ),
    _histogram(
        "run_wait_seconds", "Time from when a run was due until it was claimed.", "pipeline",
        buckets=LONG, by_customer=True,
    ),
    _counter(
        "store_conflicts",
        "Transactions repeated after a deadlock or a serialization failure, or that waited "
        "for another writer (SQLite).",
    ),
    _counter("run_records", "Records that runs reported.", "pipeline", "processor"),
    _counter("run_results_refused", "Results that arrived too late and were rejected."),
    _counter("flow_ends", "Flows that ended, by state.", "pipeline", "mode", "state",
             by_customer=True),
    _histogram("flow_seconds", "Time from the start of a flow to its end.", "pipeline", "mode",
               buckets=LONG, by_customer=True),
    _counter("phase_ends", "Phases that ended, by state.", "pipeline", "phase", "state"),
    _histogram("phase_seconds", "Time from the start of a phase to its end.", "pipeline", "phase",
               buckets=LONG),
    _counter("phase_processors_expected", "Processors that were expected in ended phases.",
             "pipeline", "phase"),
    _counter("phase_processors_completed", "Processors that completed in ended phases.",
             "pipeline", "phase"),
    _counter("gate_decisions", "Decisions of gates by verdict.", "pipeline", "phase", "verdict"),
    _counter("gate_triggers", "Starts that gates allowed, by source.", "pipeline", "source"),
    _histogram("gate_seconds", "Duration of the slowest probe of a decision.", "pipeline",
               buckets=LONG),
    _counter("gate_scanned_bytes", "Bytes that probes scanned.", "pipeline"),
    _gauge("gate_completeness_ratio", "Completeness that the last decision found.", "pipeline",
           "phase"),
    _gauge("gate_quality_ratio", "Quality that the last decision found.", "pipeline", "phase"),
    _counter("dependency_checks", "Checked dependencies by kind.", "pipeline", "phase", "kind"),
    _counter("dependency_failures", "Dependencies that a check found missing, by kind.",
             "pipeline", "phase", "kind"),
    _counter("scheduler_due", "Configs that were due."),
    _counter("scheduler_starts", "Runs and flows that the scheduler started."),
    _counter("scheduler_skips", "Occurrences that were not started, by reason.", "reason"),
    _counter("sweeper_repairs", "Repairs of the sweeper by kind.", "kind"),
    _counter("slots_taken", "Slots of limits that this process took.", "limit"),
    _histogram("slot_wait_seconds", "Waiting time of requests for slots.", "limit",
               buckets=LONG),
    _counter("slots_lost", "Slots that were not renewed in time, or revoked.", "limit"),
    _counter("quota_errors", "Quota errors that this process reported.", "limit"),
    _counter("push_requests", "Push requests by subscription and response.", "subscription",
             "response", by_customer=True),
    _histogram("push_request_seconds", "Response time of push endpoints.", "subscription",
               buckets=QUICK, by_customer=True),
    _gauge("push_window", "Number of concurrent requests allowed to an endpoint.",
           "subscription"),
    _counter("push_received", "Incoming pushes by subscription and outcome.", "subscription",
             "outcome"),
    _counter("endpoint_requests", "Requests to HTTP processors by response.", "processor",
             "response", by_customer=True),
    _histogram("endpoint_request_seconds", "Response time of HTTP processors.", "processor",
               buckets=QUICK, by_customer=True),
    _counter("messages_handled", "Messages that a consumer handled, by outcome.",
             "subscription", "outcome"),
    _histogram("message_seconds", "Time that a consumer took to handle a message.", "subscription",
               buckets=QUICK),
    _counter("consumer_requests", "Push requests that a consumer responded to, by HTTP status.",
             "subscription", "status"),
    _counter("sink_errors", "Failures of a consumer's sink.", "subscription", "error_type"),
    _counter("replica_reads", "Reads that tolerate lag, by the server that served them: replica or "
             "primary.", "server"),
    _gauge("replica_lag_seconds", "How far the read replica was behind at the last check."),
    _counter("service_errors", "Failed steps of services, which are retried.", "service"),
    _counter("telemetry_exported", "Spans, log records and lineage events that were exported.",
             "signal"),
    _counter("telemetry_dropped", "Spans, log records and lineage events that were dropped "
             "because their queue was full or their receiver failed.", "signal"),
)  # fmt: skip
"""Metrics of a single process."""

API: Final[Sequence[DeclaredMetric]] = _scoped(
    "api",
    _counter("http_requests", "Requests by route and status.", "method", "route", "status"),
    _histogram("http_request_seconds", "Response time, excluding long polls.", "method", "route",
               buckets=QUICK),
    _gauge("http_waiting", "Number of waiting long polls."),
    _gauge("http_connections", "Number of open connections."),
    _counter("http_connections_closed",
             "Connections closed in favour of new ones, or because the client did not read."),
)  # fmt: skip
"""Metrics of the HTTP server."""

FLEET: Final[Sequence[DeclaredMetric]] = _scoped(
    "fleet",
    _gauge("up", "Whether the database responds."),
    _gauge("runs", "Active runs by state.", "state"),
    _gauge("runs_today", "Runs that ended since midnight UTC.", "end"),
    _gauge("flows", "Open flows by the state of the phase that holds them up.", "state"),
    _gauge("sla_breaches_today", "Runs that missed their SLA since midnight UTC."),
    _gauge("outbox_waiting", "Outbox messages that are not published yet."),
    _gauge("workers", "Live workers by pool.", "pool"),
    _gauge("audit_backlog_entries", "Sealed journal entries that an audit sink lacks.", "sink"),
    _gauge("subscription_messages",
           "Messages by subscription and state; counts of a subscription stop at 10,000.",
           "subscription", "state")._replace(by_customer=True),
    _gauge("subscription_oldest_seconds", "Age of the oldest unsettled message.",
           "subscription")._replace(by_customer=True),
    _gauge("dead_letters", "Open dead letters by origin.", "origin", "error_type"),
    _gauge("limit_held", "Total weight that is held.", "limit"),
    _gauge("limit_waiting", "Waiting callers and queued runs.", "limit"),
    _gauge("limit_capacity", "Configured capacity.", "limit"),
    _gauge("limit_effective_capacity", "Capacity in effect after learning from quota errors.",
           "limit"),
    _gauge("limit_quota_errors", "Number of quota errors reported so far.", "limit"),
    _gauge("limit_wait_seconds", "Percentiles of waits that ended in the last five minutes.",
           "limit", "quantile"),
    _gauge("limit_contention_ratio",
           "Share of requests that had to wait, over the last five minutes.", "limit"),
    _gauge("alerts", "Open alerts by rule and severity.", "rule", "severity"),
)  # fmt: skip
"""Metrics of the whole installation, read from the database at each scrape."""

DECLARED: Final[Sequence[DeclaredMetric]] = (*PROCESS, *API, *FLEET)
_BY_NAME: Final = {metric.name: metric for metric in DECLARED}


def metric_named(name: str) -> DeclaredMetric:
    """Return the declaration of a metric, by its name without `penstock_`."""
    return _BY_NAME[f"penstock_{name}"]
