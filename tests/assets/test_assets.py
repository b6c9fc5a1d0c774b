"""Generated assets: expressions parse and name only declared metrics; Prometheus accepts them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from penstock.alerts.catalog import EVENT_RULES
from penstock.alerts.rules import BUILT_IN
from penstock.assets.alert_metrics import all_metrics
from penstock.assets.expressions import event_rules, measured_rules, process_rules
from penstock.assets.grafana import DASHBOARDS, WIDTH, dashboards
from penstock.assets.prometheus import RECORDED, alertmanager_file, rules_file, scrape_file
from tests.kits.shell import Shell

RULES = [*measured_rules(), *event_rules(), *process_rules()]
DECLARED = {name for metric in all_metrics() for name in metric.series}
LABELS = {name: set(metric.labels) for metric in all_metrics() for name in metric.series}
FOREIGN = {"up"}
"""Metrics of Prometheus itself."""
MADE = {name: json.loads(text) for name, text in dashboards().items()}
FILLED = {"$__rate_interval": "5m", "$pipeline": ".*", "$slo": "1"}


def queries() -> list[str]:
    """Return the expressions of all panels, with Grafana's variables filled in."""
    found = [
        target["expr"]
        for board in MADE.values()
        for panel in board["panels"]
        for target in panel["targets"]
    ]
    for name, value in FILLED.items():
        found = [expr.replace(name, value) for expr in found]
    return found


def selectors(node: Any) -> list[Any]:
    """Return the vector selectors of a parsed expression."""
    if isinstance(node, promql_parser.VectorSelector):
        return [node]
    found = []
    for name in ("expr", "lhs", "rhs", "vector_selector", "param"):
        part = getattr(node, name, None)
        if part is not None and not isinstance(part, str):
            found += selectors(part)
    for part in getattr(node, "args", None) or []:
        found += selectors(part)
    return found


@pytest.mark.parametrize("expr", [*queries(), *(one.expr for one in RULES), *RECORDED.values()])
def test_an_expression_names_only_what_is_declared(expr: str) -> None:
    """Every expression parses, and its metrics and matched labels are declared."""
    found = selectors(promql_parser.parse(expr))
    assert found or expr.startswith("vector(")
    for selector in found:
        assert selector.name in DECLARED | FOREIGN | set(RECORDED), selector.name
        if selector.name in DECLARED:
            matched = {one.name for one in selector.matchers.matchers} - {"__name__"}
            assert matched <= LABELS[selector.name] | {"le"}, (selector.name, matched)


def test_every_rule_is_exported() -> None:
    """Each built-in rule has an alert for each condition, each other rule for each severity."""
    found = {(one.rule, one.severity) for one in RULES}
    wanted = {(rule.name, one.severity) for rule in BUILT_IN for one in rule.conditions}
    wanted |= {(name, one) for name, rule in EVENT_RULES.items() for one in rule.severities}
    assert wanted <= found
    assert all(one.runbook for one in [*measured_rules(), *event_rules()])


@pytest.mark.parametrize("name", sorted(MADE))
def test_a_dashboard_is_valid(name: str) -> None:
    """Ids are unique, panels neither overlap nor leave the grid, and sources are variables."""
    board = MADE[name]
    assert board["uid"] == name
    assert board["title"] == DASHBOARDS[name][0]
    variables = {one["name"]: one for one in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) >= 9
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        taken = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= WIDTH
        assert not taken & cells, panel["title"]
        cells |= taken
        assert panel["targets"]
        assert len({one["refId"] for one in panel["targets"]}) == len(panel["targets"])
        for target in panel["targets"]:
            assert target["expr"]
            assert target["datasource"]["uid"] == "${datasource}"
        used = json.dumps(panel)
        assert {word for word in ("pipeline", "slo") if f"${word}" in used} <= set(variables)


def tool(name: str) -> str:
    """Return the path of a program of Prometheus; skip without it."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: Debian has prometheus and prometheus-alertmanager")
    return found


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    """`promtool check rules` and `check config` accept what is generated."""
    promtool = tool("promtool")
    (tmp_path / "penstock.rules.yml").write_text(rules_file())
    key = tmp_path / "key"
    key.write_text("x")
    config = tmp_path / "prometheus.yml"
    config.write_text(scrape_file().replace("/etc/prometheus/penstock.key", str(key)))
    out = run(promtool, "check", "rules", tmp_path / "penstock.rules.yml")
    assert f"{len(RULES) + len(RECORDED)} rules found" in out
    run(promtool, "check", "config", config)


def test_promtool_fires_the_rules(tmp_path: Path) -> None:
    """`promtool test rules`: a queue that waits fires by severity, a healthy one does not."""
    promtool = tool("promtool")
    (tmp_path / "penstock.rules.yml").write_text(rules_file())
    rule = next(one for one in measured_rules() if one.rule == "queue_age")
    assert rule.expr == "max by (subject) (penstock_queue_age_seconds) >= 300"

    def fired(at: str, name: str, *severities: str) -> dict[str, Any]:
        made = [one for one in measured_rules() if one.alert == name]
        expected = [
            {
                "exp_labels": {"severity": one.severity, "rule": one.rule, "subject": "default"},
                "exp_annotations": {
                    "summary": one.summary,
                    "description": "Wait of the next run in the queue of default: "
                    f"{'6m 40s' if at == '2m' else '16m 40s'}.",
                    "command": one.command,
                    "runbook": one.runbook,
                },
            }
            for one in made
            if one.severity in severities
        ]
        return {"eval_time": at, "alertname": name, "exp_alerts": expected}

    series = {
        'penstock_queue_age_seconds{subject="default",instance="a"}': "0 0 400 0 0 1000 1000",
        'penstock_queue_age_seconds{subject="default",instance="b"}': "0 0 400 0 0 1000 1000",
        "penstock_up": "1 1 1 1 1 1 1",
        'penstock_alerts{rule="breaker_open",severity="HIGH"}': "0 0 0 0 0 1 1",
    }
    breaker = next(one for one in event_rules() if one.rule == "breaker_open")
    tests = {
        "rule_files": ["penstock.rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": k, "values": v} for k, v in series.items()],
                "alert_rule_test": [
                    fired("1m", "PenstockQueueAge"),
                    fired("2m", "PenstockQueueAge", "MEDIUM"),
                    fired("4m", "PenstockQueueAge"),
                    fired("6m", "PenstockQueueAge", "MEDIUM", "HIGH"),
                    {"eval_time": "1m", "alertname": "PenstockBreakerOpen", "exp_alerts": []},
                    {
                        "eval_time": "6m",
                        "alertname": "PenstockBreakerOpen",
                        "exp_alerts": [
                            {
                                "exp_labels": {"severity": "HIGH", "rule": "breaker_open"},
                                "exp_annotations": {
                                    "summary": breaker.summary,
                                    "description": "Failures opened a breaker: 1 open alerts.",
                                    "command": breaker.command,
                                    "runbook": breaker.runbook,
                                },
                            }
                        ],
                    },
                ],
            }
        ],
    }
    (tmp_path / "tests.yml").write_text(json.dumps(tests))
    run(promtool, "test", "rules", tmp_path / "tests.yml")


def test_amtool_accepts_the_config(tmp_path: Path) -> None:
    """`amtool check-config` accepts the generated config."""
    config = tmp_path / "alertmanager.yml"
    config.write_text(alertmanager_file())
    assert "SUCCESS" in run(tool("amtool"), "check-config", config)


def test_the_command_writes_files(shell: Shell, tmp_path: Path) -> None:
    """`penstock assets` writes what the functions return, or prints it."""
    for kind, count in (("grafana", 3), ("prometheus", 2), ("alertmanager", 1)):
        out = tmp_path / kind
        written = shell.json("assets", kind, "--out", str(out))["files"]
        assert len(written) == len(list(out.iterdir())) == count
    assert (tmp_path / "prometheus" / "penstock.rules.yml").read_text() == rules_file()
    assert shell.ok("assets", "alertmanager") == alertmanager_file()
