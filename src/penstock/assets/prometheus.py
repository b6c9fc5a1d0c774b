"""Prometheus rules and an Alertmanager config, as YAML. Pure.

Values are written as JSON, which is valid YAML, so no YAML library is needed.
"""

from __future__ import annotations

import json
from typing import Any, Final

from penstock.alerts.severity import SEVERITIES
from penstock.assets.expressions import (
    PrometheusRule,
    event_rules,
    measured_rules,
    process_rules,
)

RECORDED: Final = {
    "penstock:runs:rate5m": "sum by (pipeline, outcome) (rate(penstock_run_ends_total[5m]))",
    "penstock:run_failures:ratio1h": (
        'sum by (pipeline) (rate(penstock_run_ends_total{outcome=~"dead|failed"}[1h])) / '
        "sum by (pipeline) (rate(penstock_run_ends_total[1h]))"
    ),
    "penstock:run_seconds:p95_1h": (
        "histogram_quantile(0.95, "
        "sum by (pipeline, processor, le) (rate(penstock_run_seconds_bucket[1h])))"
    ),
    "penstock:flow_seconds:p95_1d": (
        "histogram_quantile(0.95, "
        "sum by (pipeline, mode, le) (rate(penstock_flow_seconds_bucket[1d])))"
    ),
    "penstock:dependency_failures:ratio1d": (
        "sum by (pipeline, phase, kind) (rate(penstock_dependency_failures_total[1d])) / "
        "sum by (pipeline, phase, kind) (rate(penstock_dependency_checks_total[1d]))"
    ),
}
"""Recording rules for dashboards that query long ranges."""


def rules_file() -> str:
    """Return the recording and alerting rules."""
    recorded = [{"record": name, "expr": expr} for name, expr in RECORDED.items()]
    groups = [
        {"name": "penstock-recorded", "rules": recorded},
        {"name": "penstock-measured", "rules": [_rule(one) for one in measured_rules()]},
        {"name": "penstock-events", "rules": [_rule(one) for one in event_rules()]},
        {"name": "penstock-processes", "rules": [_rule(one) for one in process_rules()]},
    ]
    return _yaml({"groups": groups})


def scrape_file() -> str:
    """Return a scrape config: the API, workers, schedulers and consumers."""
    key = {"type": "Bearer", "credentials_file": "/etc/prometheus/penstock.key"}
    jobs = [
        {
            "job_name": "penstock",
            "authorization": key,
            "static_configs": [{"targets": ["127.0.0.1:8080"]}],
        },
        {
            "job_name": "penstock-workers",
            "static_configs": [{"targets": ["127.0.0.1:9464"]}],
        },
    ]
    return _yaml({"rule_files": ["penstock.rules.yml"], "scrape_configs": jobs})


def alertmanager_file() -> str:
    """Return an Alertmanager config: one group per rule and subject, routed by severity."""
    ranked = list(reversed(SEVERITIES))
    paged, rest = ranked[:2], ranked[2:]
    return _yaml(
        {
            "route": {
                "receiver": "team",
                "group_by": ["alertname", "subject"],
                "group_wait": "30s",
                "group_interval": "5m",
                "repeat_interval": "4h",
                "routes": [
                    {
                        "receiver": "on-call",
                        "matchers": [f'severity=~"{"|".join(paged)}"'],
                        "repeat_interval": "1h",
                    },
                    {"receiver": "team", "matchers": [f'severity=~"{"|".join(rest)}"']},
                ],
            },
            "inhibit_rules": [
                {
                    "source_matchers": [f'severity="{worse}"'],
                    "target_matchers": [f'severity=~"{"|".join(ranked[n + 1 :])}"'],
                    "equal": ["alertname", "subject"],
                }
                for n, worse in enumerate(ranked[:-1])
            ],
            "receivers": [
                {
                    "name": name,
                    "webhook_configs": [
                        {"url": f"http://127.0.0.1:9095/{name}", "send_resolved": True}
                    ],
                }
                for name in ("on-call", "team")
            ],
        }
    )


def _rule(one: PrometheusRule) -> dict[str, Any]:
    annotations = {
        "summary": one.summary,
        "description": one.description,
        "command": one.command,
    }
    if one.runbook is not None:
        annotations["runbook"] = one.runbook
    made: dict[str, Any] = {"alert": one.alert, "expr": one.expr}
    if one.for_seconds:
        made["for"] = f"{one.for_seconds}s"
    made["labels"] = {"severity": one.severity, "rule": one.rule}
    if one.condition:
        made["labels"]["condition"] = one.condition
    return {**made, "annotations": annotations}


def _yaml(value: Any) -> str:
    """Return a value as YAML: block style for mappings and lists, JSON for scalars."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> list[str]:
    if isinstance(value, dict):
        lines = []
        for key, item in value.items():
            if isinstance(item, dict | list) and item:
                lines += [f"{key}:", *(f"  {line}" for line in _lines(item))]
            else:
                lines.append(f"{key}: {_scalar(item)}")
        return lines
    lines = []
    for item in value:
        nested = _lines(item) if isinstance(item, dict | list) else [_scalar(item)]
        lines += [f"- {nested[0]}", *(f"  {line}" for line in nested[1:])]
    return lines


def _scalar(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
