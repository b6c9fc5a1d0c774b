"""Every detection has a runbook, and every command in it works where the runbook says so."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner

from penstock import Pipeline, connect, game_day_modes, same_day
from penstock.cli import cli
from penstock.detection.client import Rule
from penstock.detection.finding import LADDER_RULES
from penstock.flows.records import FlowRequest
from penstock.schedules.records import Config
from tests.docs.test_commands import fault
from tests.kits.dump import raw
from tests.kits.flows import work

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "runbooks.md"
RULES = (*get_args(Rule), "breaker_open", *LADDER_RULES)
SERVICES = {"scheduler", "worker"}
"""Commands that run until they are stopped; they are only parsed."""


def sections() -> dict[str, str]:
    """The text of each section by its heading."""
    parts = re.split(r"^## ", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0].strip(): part.partition("\n")[2] for part in parts}


def commands(text: str) -> list[str]:
    """The commands in a section."""
    return [" ".join(line.split()) for line in re.findall(r"`penstock ([^`]+)`", text)]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A database with a flow that runs, an open breaker, a config, and the ids of these."""
    folder = tmp_path_factory.mktemp("runbooks")
    nba = Pipeline(
        "nba", partition="day", warehouse="sqlite::memory:", modes=game_day_modes(),
        customer_column="shop", freshness={"nba_raw.box": "2h"},
    )  # fmt: skip
    nba.phase("raw").external("box")
    nba.phase("analytics", after="raw").processor("players", needs=[same_day("nba_raw.box")])(work)
    with connect(f"sqlite:{folder / 'penstock.db'}") as client:
        client.register([nba])
        config = client.configs.create("acme", Config(pipeline="nba", cron="0 7 * * *"))
        made = client.flows.trigger(
            FlowRequest(pipeline="nba", customer="acme", partition="2025-11-15", mode="same_day")
        )
        raw(client.store, "INSERT INTO breakers SELECT customer, pipeline, partition, 'analytics',"
                          " 5, created_at, NULL, created_at FROM flows")  # fmt: skip
    ids = {"FLOW": made.flow.flow_id, "RUN": made.run_ids[0], "CONFIG": config.config_id}
    return folder / "penstock.db", ids


def test_every_rule_has_a_section() -> None:
    """The heading is the name of the rule, which alerts and detections link to."""
    found = sections()
    assert [rule for rule in RULES if rule not in found] == []
    assert [rule for rule in RULES if not commands(found[rule])] == []


@pytest.mark.parametrize("rule", RULES)
def test_commands(rule: str, scene: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """Every command of the section runs on the scene, each on a copy of its own."""
    database, ids = scene
    for line in commands(sections()[rule]):
        args = [ids.get(word, word) for word in shlex.split(line)]
        assert fault(args) == "", line
        if args[0] in SERVICES:
            continue
        copy = tmp_path / "penstock.db"
        for suffix in ("", "-wal", "-shm"):
            (tmp_path / f"penstock.db{suffix}").unlink(missing_ok=True)
        shutil.copy(database, copy)
        result = CliRunner().invoke(cli, ["--database-url", f"sqlite:{copy}", *args], input="y\n")
        expected = {0, 1} if args[0] == "doctor" else {0}
        assert result.exit_code in expected, (line, result.output)
