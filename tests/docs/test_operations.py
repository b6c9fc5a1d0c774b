"""Pages for operators: their commands are executed, and a backup is restored."""

from __future__ import annotations

import re
import shlex
import sqlite3
from pathlib import Path

import pytest

from penstock import Pipeline, RunContext, connect, run_pending
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


def test_a_compact_copy_of_a_file(shell: Shell, tmp_path: Path) -> None:
    """The page's statement writes a smaller copy that is intact and can be worked on."""
    text = (DOCS / "operations" / "backup-and-restore.md").read_text("utf-8")
    (statement,) = re.findall(r'sqlite3 penstock\.db "(VACUUM INTO .*)"', text)
    shell.submit()
    shell.work()
    file, copy = tmp_path / "penstock.db", tmp_path / "compact.db"
    with sqlite3.connect(file) as source:  # what retention leaves behind: pages without rows
        source.execute("CREATE TABLE filling AS SELECT zeroblob(1000000) AS x")
        source.execute("DROP TABLE filling")
        source.commit()
        source.execute(statement.replace("/mnt/other/compact.db", str(copy)))
    source.close()
    assert copy.stat().st_size < file.stat().st_size - 900_000
    restored = Shell(copy)
    assert restored.json("verify")["is_intact"]
    restored.submit()
    assert restored.json("verify")["is_intact"]


def test_a_bad_deploy_of_a_pipeline_with_phases(shell: Shell) -> None:
    """The commands in the text of the page do what it says, on a partition that has completed."""
    page = (DOCS / "operations" / "roll-back-a-deploy.md").read_text("utf-8")
    words = {"PIPELINE": "shop", "PARTITION": "2026-03-02", "PHASE": "report"}
    named = re.findall(r"`penstock ([^`]*PARTITION[^`]*)`", page)
    given = [[words.get(word, word) for word in shlex.split(line)] for line in named]
    shop = Pipeline("shop", partition="day")
    load = shop.phase("load")
    report = shop.phase("report", after=load)

    @load.processor
    def orders(run: RunContext) -> None:
        """Load."""

    @report.processor
    def totals(run: RunContext) -> None:
        """Report."""

    def generation() -> int:
        """Work on what is due; return the generation of the newest flow, which has ended."""
        with connect(shell.url) as client:
            run_pending(client, [shop])
            flow = client.flows.list().items[0]
            assert flow.state == "COMPLETE"
            return flow.generation

    with connect(shell.url) as client:
        client.register([shop])
    shell.ok("trigger", "shop", "2026-03-02")
    assert generation() == 1
    assert [line[0] for line in given] == ["trigger", "replay"]
    shell.ok(*given[0])
    assert generation() == 2
    shell.ok(*given[1], "--yes")
    assert generation() == 3
