"""Pages for operators: their commands are executed, and a backup is restored."""

from __future__ import annotations

import re
import shlex
import sqlite3
from pathlib import Path

import pytest

from penstock import connect
from penstock.services.upkeep import Sealer
from tests.kits.shell import Shell, alone, shell, shop_template

__all__ = ["alone", "shell", "shop_template"]

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("operations/export-history.md", "operations/roll-back-a-deploy.md",
         "how-to/spread-starts.md", "how-to/spool-events.md")  # fmt: skip
_BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """Return the commands of a page's shell blocks."""
    text = (DOCS / page).read_text("utf-8")
    lines = [line.strip() for block in _BLOCK.findall(text) for line in block.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("penstock")]


@pytest.mark.parametrize("page", PAGES)
def test_commands_run(page: str, shell: Shell, tmp_path: Path) -> None:
    """Every command of the page does its work on a database with some history."""
    shell.submit()
    shell.submit("broken")
    shell.work()
    shell.ok("configs", "create", "acme", "hello", "--cron", "0 2 * * *")
    (tmp_path / "spool").mkdir()
    found = commands(page)
    assert found
    for line in found:
        result = shell(*line)
        assert result.code == 0, (line, result)


def test_backup_of_a_file(shell: Shell, tmp_path: Path) -> None:
    """SQLite's own backup of a file in use is complete, intact and can be worked on."""
    shell.submit()
    copy = tmp_path / "backup.db"
    with connect(shell.url) as client:
        Sealer(client.store).run_once()
        source, target = sqlite3.connect(tmp_path / "penstock.db"), sqlite3.connect(copy)
        source.backup(target)
        source.close()
        target.close()
        before = client.views.verify()
    restored = Shell(copy)
    found = restored.json("verify")
    assert (found["is_intact"], found["entries"]) == (True, before.entries)
    restored.submit()
    assert restored.json("verify")["is_intact"]
