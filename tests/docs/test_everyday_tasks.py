"""Every command of the page of everyday tasks works on a database with such work."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock import Pipeline, connect
from penstock.assembly.process import run_pending
from penstock.cli import cli
from penstock.core.ids import encode
from penstock.flows.records import FlowRequest
from penstock.schedules.records import Config
from penstock.worker.context import RunContext
from tests.docs.test_commands import fault

PAGE = Path(__file__).parents[2] / "docs" / "operations" / "everyday-tasks.md"
COMMANDS = [" ".join(line.split()) for line in re.findall(r"`penstock ([^`]+)`", PAGE.read_text())]
ELSEWHERE = {"db", "interventions"}
"""Commands that need a server or an approval; their own tests run them, here they are parsed."""


def pull(run: RunContext) -> None:
    """Report a changed player."""
    run.entities("players", [1630567])


def fail(_: RunContext) -> None:
    """Fail permanently."""
    raise ValueError("no such column")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A database with a flow whose second phase failed, a dead letter and a config."""
    file = tmp_path_factory.mktemp("tasks") / "penstock.db"
    nba = Pipeline("nba", partition="day")
    raw = nba.phase("raw")
    raw.processor("pull")(pull)
    nba.phase("analytics", after=raw).processor("players", retry={"max_attempts": 1})(fail)
    with connect(f"sqlite:{file}") as client:
        client.register([nba])
        client.configs.create("acme", Config(pipeline="nba", cron="0 7 * * *"))
        made = client.flows.trigger(
            FlowRequest(pipeline="nba", customer="acme", partition="2025-11-15")
        )
        run_pending(client, [nba])
        dead = client.dead_letters.list(pipeline="nba").items[0]
    assert dead.run_id is not None
    ids = {"FLOW": made.flow.flow_id, "RUN": dead.run_id, "INTERVENTION": encode("int", 1)}
    return file, ids


def test_the_page_has_twenty_tasks() -> None:
    assert len(COMMANDS) >= 20


@pytest.mark.parametrize("line", COMMANDS)
def test_commands(line: str, scene: tuple[Path, dict[str, str]], tmp_path: Path) -> None:
    """Each command runs on a copy of its own."""
    database, ids = scene
    args = [ids.get(word, word) for word in shlex.split(line)]
    assert fault(args) == "", line
    if args[0] in ELSEWHERE:
        return
    copy = tmp_path / "penstock.db"
    shutil.copy(database, copy)
    env = {"PENSTOCK_AUDIT_SINK": f"parquet:{tmp_path / 'sink'}"}
    result = CliRunner().invoke(cli, ["--database-url", f"sqlite:{copy}", *args], env=env)
    expected = {0, 1} if args[0] in ("doctor", "health") else {0}
    assert result.exit_code in expected, (line, result.output)
    assert result.output.strip(), line
