"""The tutorial, executed exactly as written."""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import connect

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-pipeline.md"
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINES_MAX = 40
PATIENCE = 60


def blocks(kind: str) -> list[str]:
    """Return the blocks of one language."""
    return [found[2] for found in _FENCED.finditer(PAGE.read_text("utf-8")) if found[1] == kind]


def commands() -> list[str]:
    """Return the typed commands, in order."""
    lines = [line for block in blocks("console") for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


class Newcomer:
    """A user who types commands in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        self.env = {**inherited, "PENSTOCK_API_PORT": "0", "PYTHONUNBUFFERED": "1"}
        for name, text in zip(("sales.py", "test_sales.py", "make_data.py"), blocks("python"),
                              strict=True):  # fmt: skip
            (folder / name).write_text(text)

    def words(self, line: str) -> list[str]:
        """Return a line of the page as a program and its arguments."""
        program, *rest = shlex.split(line)
        return [sys.executable, *(["-m", "penstock"] if program == "penstock" else []), *rest]

    def types(self, line: str) -> str:
        """Run a line that must succeed; return its output."""
        done = self.runs(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def runs(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line to its end."""
        return subprocess.run(
            self.words(line), cwd=self.folder, env=self.env, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip

    def waits(self, day: str, generation: int, phase: str, state: str) -> None:
        """Poll until a phase of one generation of a flow is in this state."""
        pause = threading.Event()
        with connect(f"sqlite:{self.folder / 'penstock.db'}") as client:
            for _ in range(PATIENCE * 20):
                for flow in client.flows.list().items:
                    if (flow.partition, flow.generation) == (day, generation):
                        shown = client.flows.get(flow.flow_id)
                        found = {one.phase: str(one.state) for one in shown.phases}
                        if found[phase] == state:
                            return
                pause.wait(0.05)
        raise AssertionError(
            f"{phase} of {day} is not {state}: {self.types(f'penstock explain sales {day}')}"
        )


@pytest.fixture
def newcomer(tmp_path: Path) -> Newcomer:
    """A user in an empty folder."""
    return Newcomer(tmp_path)


@pytest.fixture
def up(newcomer: Newcomer) -> Iterator[subprocess.Popen[str]]:
    """Run `penstock up` as on the page, after creating the data."""
    make, start = commands()[:2]
    newcomer.types(make)
    process = subprocess.Popen(
        newcomer.words(start), cwd=newcomer.folder, env=newcomer.env, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("Penstock is up"):
            break
    yield process
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    process.stdout.close()


def test_forty_lines(newcomer: Newcomer) -> None:
    """The pipeline is as short as stated, and its test passes."""
    assert len((newcomer.folder / "sales.py").read_text().splitlines()) <= LINES_MAX
    newcomer.types("python test_sales.py")


def test_the_page_from_top_to_bottom(newcomer: Newcomer, up: subprocess.Popen[str]) -> None:
    """Every command works and has the result that the page describes."""
    first, explain, second, why, data, again, explain_again, create, due, simulate = commands()[2:]
    newcomer.types(first)
    newcomer.waits("2025-12-30", 1, "report", "DEGRADED")
    assert "weather" in newcomer.types(explain)
    newcomer.types(second)
    newcomer.waits("2025-12-31", 1, "total", "BLOCKED")
    assert "0/6 rows" in newcomer.types(why)
    newcomer.types(data)
    assert "Superseded" in newcomer.types(again)
    newcomer.waits("2025-12-31", 2, "report", "DEGRADED")
    output = newcomer.types(explain_again)
    assert "generation 2" in output
    assert "An older flow is still open" not in output
    older = newcomer.types("penstock explain sales 2025-12-31 --generation 1")
    assert "the flow was cancelled" in older
    assert "PROCEED_DEGRADED" in newcomer.types("penstock gate history sales 2025-12-31")
    newcomer.types(create)
    assert "sales" in newcomer.types(due)
    assert "0 failed" in newcomer.types(simulate)
    assert up.poll() is None


def test_a_schedule_with_several_starts_a_day(newcomer: Newcomer) -> None:
    """It is refused with the option that the page names; with the option it is accepted."""
    (option,) = re.findall(r"`(partition=day\(.*?repeats=True\))`", PAGE.read_text("utf-8"))
    script = newcomer.folder / "sales.py"
    text = script.read_text()
    often = 'penstock configs create default sales --cron "* * * * *"'
    newcomer.types("penstock pipelines register sales.py")
    refused = newcomer.runs(often)
    assert refused.returncode == 2
    assert "repeats=True" in refused.stderr
    text = text.replace('partition="day"', option)
    script.write_text(text.replace("import Pipeline", "import day, Pipeline"))
    newcomer.types("penstock pipelines register sales.py")
    newcomer.types(often)
