"""`penstock items` on a flow that ran to its end, and what `explain` says about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock import FlowRequest, PermanentError, Pipeline, connect, run_pending, upstream
from penstock.cli import cli

fan = Pipeline("fan")
listing = fan.phase("listing")
games = fan.phase("games", after=listing)


@listing.processor
def list_games(_: Any) -> list[str]:
    """List twelve games."""
    return [f"g{n:02}" for n in range(12)]


@games.processor(each=upstream(list_games), min_items=0.5)
def game(run: Any) -> dict[str, str]:
    """Fail for two of the games, until they are retried."""
    if run.item in ("g03", "g07") and run.held.parent_run_id is None:
        raise PermanentError("no box score")
    return {"game": run.item_key}


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a flow; return its id."""
    url = f"sqlite:{tmp_path}/items.db"
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", url)
    with connect(url) as client:
        client.register([fan])
        opened = client.flows.trigger(FlowRequest(pipeline="fan", partition="d"))
        run_pending(client, [fan])
    return opened.flow.flow_id


def shell(*arguments: str) -> str:
    """Run a command that succeeds; return its output."""
    done = CliRunner().invoke(cli, list(arguments))
    assert done.exit_code == 0, done.output + done.stderr
    return done.stdout


def test_show_list_and_retry(flow: str, tmp_path: Path) -> None:
    """Counts and first failures are shown; a retry by hand completes the phase."""
    shown = shell("items", "show", flow)
    assert "games/game" in shown
    assert "g03" in shown
    assert f"penstock items retry {flow} --processor game" in shown
    listed = json.loads(shell("items", "list", flow, "--state", "failed", "--json"))
    assert [item["item_key"] for item in listed["items"]] == ["g03", "g07"]
    assert "10 of 12 items done, 2 failed" in shell("explain", flow)
    assert "2 items will run again" in shell("items", "retry", flow, "--dry-run")
    assert "2 items will run again" in shell("items", "retry", flow)
    with connect(f"sqlite:{tmp_path}/items.db") as client:
        run_pending(client, [fan])
        (one,) = client.items.summary(flow).items
        assert (one.succeeded, one.failed) == (12, 0)
    assert "nothing to retry" in shell("items", "retry", flow)
    assert shell("trace", flow).count("game ") < 12
