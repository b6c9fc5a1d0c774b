"""`promtool test rules` for every generated rule: it fires at its threshold, and not below."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.alerts.rules import BUILT_IN
from penstock.assets.alert_metrics import NOT_EXPORTED, alert_metric, exported_value
from penstock.assets.expressions import (
    UNLABELLED,
    PrometheusRule,
    event_rules,
    measured_rules,
    process_rules,
)
from penstock.assets.prometheus import rules_file
from tests.assets.test_assets import run, tool

MINUTES = 75
"""Longer than any rule holds, and than the ranges of rates."""
QUERY = 'count by (alertname, severity, rule, condition) (ALERTS{alertstate="firing"})'
REQUESTS = "penstock_http_requests_total"
GATES = "penstock_gate_seconds_bucket"
DROPPED = 'penstock_telemetry_dropped_total{signal="spans"}'


def constant(value: float) -> str:
    """Return a series that keeps its value."""
    return f"{value:.6f}+0x{MINUTES}"


def growing(step: float) -> str:
    """Return a series that grows."""
    return f"0+{step}x{MINUTES}"


def thresholds() -> dict[str, list[float]]:
    """Return the thresholds of every exported metric, in its base unit."""
    found: dict[str, list[float]] = {}
    for rule in BUILT_IN:
        for one in rule.conditions:
            if one.metric not in NOT_EXPORTED:
                value = exported_value(one.metric, one.threshold)
                found.setdefault(alert_metric(one.metric).name, []).append(value)
    return found


def measured(is_over: bool) -> dict[str, str]:
    """Return series of all measured metrics: at the highest threshold, or below the lowest."""
    made = {}
    for name, values in thresholds().items():
        labels = "" if name in UNLABELLED else '{subject="x"}'
        made[f"{name}{labels}"] = constant(max(values) if is_over else 0.99 * min(values) - 1e-6)
    return made


def others(is_over: bool) -> dict[str, str]:
    """Return what event rules and rules about processes compare: broken, or healthy."""
    made = {
        f'penstock_alerts{{rule="{one.rule}",severity="{one.severity}"}}': constant(is_over)
        for one in event_rules()
    }
    made["penstock_up"] = made['up{job="penstock",instance="a"}'] = constant(not is_over)
    made[f'{REQUESTS}{{status="200"}}'] = growing(100)
    made[f'{REQUESTS}{{status="500"}}'] = growing(50 if is_over else 0)
    made[f'{GATES}{{le="10"}}'] = growing(0 if is_over else 10)
    made[f'{GATES}{{le="60"}}'] = made[f'{GATES}{{le="+Inf"}}'] = growing(10)
    made[DROPPED] = growing(60 if is_over else 0)
    return made


def case(series: dict[str, str], rules: list[PrometheusRule]) -> dict[str, Any]:
    """Return a test: with these series exactly these rules fire."""
    labels = Counter((one.alert, one.severity, one.rule, one.condition) for one in rules)
    samples = [
        {
            "labels": f'{{alertname="{alert}",severity="{severity}",rule="{rule}"'
            + (f',condition="{condition}"' if condition else "")
            + "}",
            "value": 1,
        }
        for alert, severity, rule, condition in labels
    ]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": QUERY, "eval_time": f"{MINUTES}m", "exp_samples": samples},
        ],
    }


@pytest.mark.parametrize("is_over", [True, False], ids=["at the threshold", "below"])
def test_every_rule(tmp_path: Path, is_over: bool) -> None:
    """All rules fire once their series reach the threshold; below it none does."""
    promtool = tool("promtool")
    rules = [*measured_rules(), *event_rules(), *process_rules()] if is_over else []
    (tmp_path / "penstock.rules.yml").write_text(rules_file())
    tests = {
        "rule_files": ["penstock.rules.yml"],
        "evaluation_interval": "1m",
        "tests": [case(measured(is_over) | others(is_over), rules)],
    }
    (tmp_path / "tests.yml").write_text(json.dumps(tests))
    run(promtool, "test", "rules", tmp_path / "tests.yml")
