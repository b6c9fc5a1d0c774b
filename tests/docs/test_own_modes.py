"""docs/how-to/own-modes.md: its commands run, and they show what the page says."""

import re
from pathlib import Path

from tests.docs.test_commands import commands
from tests.docs.test_docs import ROOT, blocks
from tests.kits.shell import Shell, alone, bare

__all__ = ["alone", "bare"]

TEXT = (ROOT / "docs" / "how-to" / "own-modes.md").read_text("utf-8")


def test_commands_run(bare: Shell, tmp_path: Path) -> None:
    """Every command of the page does its work, in the order of the page."""
    (tmp_path / "figures.py").write_text(blocks(TEXT)[0][1])
    shell_lines = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    found = commands("".join(shell_lines))
    outputs = {" ".join(line[:2]): bare.ok(*line) for line in found}
    assert len(found) == "".join(shell_lines).count("\n")
    assert "mode noon" in outputs["configs create"]  # the second config
    assert "noon      11:00" in outputs["pipelines show"]
    assert " noon " in outputs["flows list"]
    assert " noon " in outputs["explain figures"].splitlines()[0]
