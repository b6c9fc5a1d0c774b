"""Grafana dashboards, as the JSON that Grafana imports. Pure.

Three dashboards: health (current problems), trends, and capacity (queue, bus and limits). Every
dashboard has a variable for its Prometheus data source, so that it can be imported anywhere. Fleet
figures are the same in every API process: they are aggregated with `max`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

WIDTH: Final = 24
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA: Final = 39


class Query(NamedTuple):
    """An expression and the legend of its series."""

    expr: str
    legend: str = ""
    is_instant: bool = False


class Panel(NamedTuple):
    """A panel: its title, queries, chart type and width."""

    title: str
    queries: Sequence[Query]
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 12
    height: int = 8
    text: str = ""
    is_stacked: bool = False
    thresholds: Sequence[tuple[float | None, str]] = ((None, "green"),)


_RATE: Final = "$__rate_interval"
_RED: Final = ((None, "green"), (1, "red"))
_ENDS: Final = 'sum by (outcome) (increase(penstock_run_ends_total{pipeline=~"$pipeline"}'

HEALTH: Final[Sequence[Panel]] = (
    Panel("Open alerts", [Query("sum(max by (rule, severity) (penstock_alerts))")], "stat",
          width=4, height=5, thresholds=_RED),
    Panel("Database", [Query("min(penstock_up)")], "stat", width=4, height=5,
          thresholds=((None, "red"), (1, "green"))),
    Panel("Blocked flows", [Query('max(penstock_flows{state="blocked"})')], "stat", width=4,
          height=5, thresholds=_RED),
    Panel("Dead letters", [Query("sum(max by (origin, error_type) (penstock_dead_letters))")],
          "stat", width=4, height=5, thresholds=_RED),
    Panel("SLA breaches today", [Query("max(penstock_sla_breaches_today)")], "stat", width=4,
          height=5, thresholds=_RED),
    Panel("Workers", [Query("sum(max by (pool) (penstock_workers))")], "stat", width=4, height=5,
          thresholds=((None, "red"), (1, "green"))),
    Panel("Pipeline health today",
          [Query('sum by (state) (increase(penstock_flow_ends_total{pipeline=~"$pipeline"}[1d]))',
                 "{{state}}", is_instant=True)], "bargauge",
          text="Flows that ended in the last 24 hours, by state."),
    Panel("Phase by phase",
          [Query("sum by (phase, state) "
                 '(increase(penstock_phase_ends_total{pipeline=~"$pipeline"}[1d]))',
                 "{{phase}} {{state}}", is_instant=True)], "table",
          text="Phases that ended in the last 24 hours, by state."),
    Panel("Failures by processor and error",
          [Query("topk(20, sum by (pipeline, processor, error_type) "
                 '(increase(penstock_run_errors_total{pipeline=~"$pipeline"}[1d])))',
                 "{{pipeline}}/{{processor}} {{error_type}}", is_instant=True)], "table",
          text="The twenty most frequent failures of the last 24 hours."),
    Panel("Dead letters by origin",
          [Query("max by (origin, error_type) (penstock_dead_letters)",
                 "{{origin}} {{error_type}}")], is_stacked=True),
    Panel("End to end by mode",
          [Query("histogram_quantile(0.5, sum by (mode, le) "
                 f'(rate(penstock_flow_seconds_bucket{{pipeline=~"$pipeline"}}[{_RATE}])))',
                 "{{mode}} median")], unit="s"),
    Panel("Dependency health",
          [Query("sum by (phase, kind) "
                 '(increase(penstock_dependency_failures_total{pipeline=~"$pipeline"}[1d])) / '
                 "sum by (phase, kind) "
                 '(increase(penstock_dependency_checks_total{pipeline=~"$pipeline"}[1d]))',
                 "{{phase}} {{kind}}", is_instant=True)], "bargauge", unit="percentunit",
          text="Share of checks that found a dependency missing, by phase and kind.",
          thresholds=((None, "green"), (0.05, "yellow"), (0.2, "red"))),
    Panel("Acks and nacks",
          [Query("sum by (outcome) (increase(penstock_messages_handled_total[1h]))",
                 "{{outcome}}"),
           Query("sum by (response) (increase(penstock_push_requests_total[1h]))",
                 "push {{response}}")], is_stacked=True,
          text="Messages per hour by outcome, and responses of push endpoints."),
    Panel("Historical dependencies that failed",
          [Query("sum by (pipeline, phase) (increase("
                 'penstock_dependency_failures_total{pipeline=~"$pipeline",kind="historical"}[1d]))',
                 "{{pipeline}} {{phase}}")], width=24),
)  # fmt: skip
"""The eight panels for operators, below a row of figures that should be 0."""

TRENDS: Final[Sequence[Panel]] = (
    Panel("End to end by mode, 95th percentile",
          [Query('penstock:flow_seconds:p95_1d{pipeline=~"$pipeline"}', "{{pipeline}} {{mode}}"),
           Query("vector($slo)", "service level")], unit="s", width=24,
          text="The line is the variable slo, in seconds."),
    Panel("Phase completion",
          [Query("sum by (phase) (increase("
                 'penstock_phase_processors_completed_total{pipeline=~"$pipeline"}[1d])) / '
                 "sum by (phase) (increase("
                 'penstock_phase_processors_expected_total{pipeline=~"$pipeline"}[1d]))',
                 "{{phase}}")], unit="percentunit",
          thresholds=((None, "red"), (0.95, "yellow"), (1, "green"))),
    Panel("Quality at gates",
          [Query('avg by (phase) (penstock_gate_quality_ratio{pipeline=~"$pipeline"})',
                 "{{phase}}")], unit="percentunit"),
    Panel("Failure reasons",
          [Query("sum by (error_type) "
                 '(increase(penstock_run_errors_total{pipeline=~"$pipeline"}[7d]))',
                 "{{error_type}}", is_instant=True)], "piechart"),
    Panel("Top failing processors",
          [Query("topk(5, sum by (pipeline, processor) (increase("
                 'penstock_run_ends_total{pipeline=~"$pipeline",outcome=~"dead|failed"}[7d])))',
                 "{{pipeline}}/{{processor}}", is_instant=True)], "table"),
    Panel("Completeness at gates",
          [Query('avg by (pipeline, phase) '
                 '(penstock_gate_completeness_ratio{pipeline=~"$pipeline"})',
                 "{{pipeline}} {{phase}}")], "heatmap", unit="percentunit",
          thresholds=((None, "red"), (0.8, "yellow"), (1, "green"))),
    Panel("Slowest processors, 95th percentile",
          [Query('topk(10, penstock:run_seconds:p95_1h{pipeline=~"$pipeline"})',
                 "{{pipeline}}/{{processor}}")], unit="s"),
    Panel("Gate decisions",
          [Query("sum by (verdict) "
                 '(increase(penstock_gate_decisions_total{pipeline=~"$pipeline"}[1d]))',
                 "{{verdict}}")], is_stacked=True),
    Panel("What started phases",
          [Query("sum by (source) "
                 '(increase(penstock_gate_triggers_total{pipeline=~"$pipeline"}[1d]))',
                 "{{source}}")], is_stacked=True),
)  # fmt: skip
"""Trends of service levels, quality and failures."""

CAPACITY: Final[Sequence[Panel]] = (
    Panel("Runs by state", [Query("max by (state) (penstock_runs)", "{{state}}")],
          is_stacked=True),
    Panel("Ended runs", [Query(f"{_ENDS}[{_RATE}]))", "{{outcome}}")], is_stacked=True),
    Panel("Wait of the next run by pool",
          [Query("max by (subject) (penstock_queue_age_seconds)", "{{subject}}")], unit="s"),
    Panel("Wait from due to claimed",
          [Query("histogram_quantile(0.95, sum by (pipeline, le) "
                 f'(rate(penstock_run_wait_seconds_bucket{{pipeline=~"$pipeline"}}[{_RATE}])))',
                 "{{pipeline}} p95")], unit="s"),
    Panel("Backlog by subscription",
          [Query("sum by (subscription) (max by (subscription, state) "
                 "(penstock_subscription_messages))", "{{subscription}}")]),
    Panel("Oldest message",
          [Query("max by (subscription) (penstock_subscription_oldest_seconds)",
                 "{{subscription}}")], unit="s"),
    Panel("Limits: held and capacity",
          [Query("max by (limit) (penstock_limit_held)", "{{limit}} held"),
           Query("max by (limit) (penstock_limit_effective_capacity)", "{{limit}} capacity")]),
    Panel("Limits: waiting", [Query("max by (limit) (penstock_limit_waiting)", "{{limit}}")]),
    Panel("Limits: wait, 95th percentile",
          [Query('max by (limit) (penstock_limit_wait_seconds{quantile="0.95"})', "{{limit}}")],
          unit="s"),
    Panel("Quota errors",
          [Query(f"sum by (limit) (increase(penstock_quota_errors_total[{_RATE}]))",
                 "{{limit}}")]),
    Panel("Push endpoints, 95th percentile",
          [Query("histogram_quantile(0.95, sum by (subscription, le) "
                 f"(rate(penstock_push_request_seconds_bucket[{_RATE}])))",
                 "{{subscription}}")], unit="s"),
    Panel("HTTP processors, 95th percentile",
          [Query("histogram_quantile(0.95, sum by (processor, le) "
                 f"(rate(penstock_endpoint_request_seconds_bucket[{_RATE}])))",
                 "{{processor}}")], unit="s"),
    Panel("API requests by status",
          [Query(f"sum by (status) (rate(penstock_http_requests_total[{_RATE}]))",
                 "{{status}}")], unit="reqps", is_stacked=True),
    Panel("Outbox", [Query("max(penstock_outbox_waiting)", "waiting")]),
    Panel("Service errors",
          [Query(f"sum by (service) (increase(penstock_service_errors_total[{_RATE}]))",
                 "{{service}}")]),
    Panel("Dropped telemetry",
          [Query(f"sum by (signal) (increase(penstock_telemetry_dropped_total[{_RATE}]))",
                 "{{signal}}")]),
)  # fmt: skip
"""The queue, the bus, limits and the server."""

DASHBOARDS: Final = {
    "penstock-health": ("Penstock: health", HEALTH, "now-24h"),
    "penstock-trends": ("Penstock: trends", TRENDS, "now-30d"),
    "penstock-capacity": ("Penstock: queue, bus and limits", CAPACITY, "now-6h"),
}


def dashboards() -> dict[str, str]:
    """Return the dashboards as JSON, by name."""
    return {
        name: json.dumps(_dashboard(name, *declared), indent=2, ensure_ascii=False) + "\n"
        for name, declared in DASHBOARDS.items()
    }


def _dashboard(name: str, title: str, panels: Sequence[Panel], since: str) -> dict[str, Any]:
    placed, x, y, row_height = [], 0, 0, 0
    for number, panel in enumerate(panels, start=1):
        if x + panel.width > WIDTH:
            x, y, row_height = 0, y + row_height, 0
        placed.append(_panel(number, panel, x, y))
        x, row_height = x + panel.width, max(row_height, panel.height)
    return {
        "uid": name,
        "title": title,
        "tags": ["penstock"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": since, "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables(name)},
        "annotations": {"list": []},
        "panels": placed,
    }


def _variables(name: str) -> list[dict[str, Any]]:
    source = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
    }
    pipeline = {
        "name": "pipeline",
        "label": "Pipeline",
        "type": "query",
        "datasource": SOURCE,
        "query": "label_values(penstock_run_ends_total, pipeline)",
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "refresh": 2,
        "current": {"text": "All", "value": "$__all"},
    }
    slo = {"name": "slo", "label": "Service level (s)", "type": "textbox", "query": "7200",
           "current": {"text": "7200", "value": "7200"}}  # fmt: skip
    return [source, pipeline, slo] if name == "penstock-trends" else [source, pipeline]


def _panel(number: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    custom = {"stacking": {"mode": "normal"}} if panel.is_stacked else {}
    steps = [{"color": color, "value": value} for value, color in panel.thresholds]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "targets": [_target(n, query, panel.kind) for n, query in enumerate(panel.queries)],
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "custom": custom,
                "thresholds": {"mode": "absolute", "steps": steps},
            },
            "overrides": [],
        },
        "options": {},
    }


def _target(number: int, query: Query, kind: str) -> dict[str, Any]:
    return {
        "refId": chr(ord("A") + number),
        "datasource": SOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "instant": query.is_instant,
        "range": not query.is_instant,
        "format": "table" if kind == "table" else "heatmap" if kind == "heatmap" else "time_series",
    }
