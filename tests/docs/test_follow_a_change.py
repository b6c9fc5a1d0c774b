"""The page about a change that got stuck: its blocks run in order, its output is what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli import cli

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "follow-a-change.md"
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_AGO = re.compile(r"\(\d+ (?:d|y) ago\)")
SKIP = "…"
"""A line of the page that stands for any number of lines."""


def matches(shown: list[str], printed: list[str]) -> bool:
    """Whether printed lines are those shown, where `…` stands for any of them."""
    if not shown:
        return not printed
    if shown[0].strip() == SKIP:
        return any(matches(shown[1:], printed[n:]) for n in range(len(printed) + 1))
    return bool(printed) and shown[0] == printed[0] and matches(shown[1:], printed[1:])


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command prints what the page shows, from the failure to the last phase."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_DATABASE_URL", raising=False)
    names: dict[str, object] = {}
    commands = 0
    for found in _FENCED.finditer(PAGE.read_text("utf-8")):
        if found[1] == "python":
            exec(compile(found[2], str(PAGE), "exec"), names)
            continue
        line, *shown = found[2].rstrip("\n").split("\n")
        result = CliRunner().invoke(cli, line.removeprefix("$ penstock ").split())
        assert result.exit_code == 0, result.output
        printed = [_AGO.sub("(ago)", text) for text in result.stdout.rstrip("\n").split("\n")]
        assert matches([_AGO.sub("(ago)", text) for text in shown], printed), result.stdout
        commands += 1
    assert commands == 5
    last = CliRunner().invoke(cli, ["entity", "players:1630567", "--limit", "1", "--json"])
    assert '"reached_last": true' in last.stdout
