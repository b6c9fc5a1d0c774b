"""`penstock init`: every template is a project whose test passes and whose README is true."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock import connect
from penstock.cli.root import cli
from penstock.core.errors import InvalidInput
from penstock.scaffold.project import TEMPLATES, project_files, write_project

PATIENCE = 60
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LONG_RUNNING = ("penstock up", "python service.py")
_ELSEWHERE = ("pip install",)
_IMPORTING = ("penstock pipelines register", "penstock simulate")


class Project:
    """A project in a folder of its own, and the commands of its README."""

    def __init__(self, folder: Path, template: str) -> None:
        self.folder = folder
        write_project(project_files("sales", template, folder))
        ours = {k for k in os.environ if k.startswith("PENSTOCK_")}
        self.changes = {**dict.fromkeys(ours), "PENSTOCK_API_PORT": "0"}
        inherited = {k: v for k, v in os.environ.items() if k not in ours}
        self.env = {**inherited, "PENSTOCK_API_PORT": "0", "PYTHONUNBUFFERED": "1"}

    def commands(self) -> list[str]:
        """Return the commands of the README, without comments."""
        found = _CONSOLE.findall((self.folder / "README.md").read_text("utf-8"))
        lines = [line for block in found for line in block.splitlines() if line]
        return [re.sub(r"\s+# .*$", "", line) for line in lines]

    def words(self, line: str) -> list[str]:
        """Return a line as a program and its arguments."""
        program, *rest = shlex.split(line)
        if rest[:1] == ["simulate"]:
            rest += ["--seeds", "1"]
        return [sys.executable, *(["-m", "penstock"] if program == "penstock" else []), *rest]

    def types(self, line: str) -> str:
        """Run a line to its end; return its output.

        A command runs in this process, which takes a tenth of the time, unless it imports the
        project's files.
        """
        program, *rest = shlex.split(line)
        if program == "penstock" and not line.startswith(_IMPORTING):
            with chdir(self.folder):
                ran = CliRunner().invoke(cli, rest, env=self.changes)
            assert ran.exit_code == 0, f"{line}\n{ran.output}"
            return ran.stdout
        done = subprocess.run(
            self.words(line), cwd=self.folder, env=self.env, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def dead_letter_groups(self) -> list[object]:
        """Poll until there are groups of dead letters."""
        pause = threading.Event()
        with connect(f"sqlite:{self.folder / 'penstock.db'}") as client:
            for _ in range(PATIENCE * 20):
                if found := client.dead_letters.groups():
                    return list(found)
                pause.wait(0.05)
        return []

    @contextmanager
    def runs(self, line: str) -> Iterator[None]:
        """Start a line that does not end by itself; continue once the process is up."""
        process = subprocess.Popen(
            self.words(line), cwd=self.folder, env=self.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            assert any("Ctrl-C" in printed for printed in process.stdout)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("template", TEMPLATES)
def test_readme_is_true(template: str, tmp_path: Path) -> None:
    """Every command of a project's README succeeds, its test included."""
    project = Project(tmp_path / "sales", template)
    lines = project.commands()
    assert any(line.startswith("python test_") for line in lines)
    with ExitStack() as running:
        for line in lines:
            if line in _LONG_RUNNING:
                running.enter_context(project.runs(line))
            elif not line.startswith(_ELSEWHERE):
                project.types(line)
        if template == "consumer":
            assert len(project.dead_letter_groups()) == 1


def test_files_are_never_overwritten(tmp_path: Path) -> None:
    """One file that exists refuses the whole project, and nothing is written."""
    (tmp_path / "pipeline.py").write_text("mine")
    with pytest.raises(InvalidInput, match=r"pipeline\.py"):
        write_project(project_files("sales", "daily", tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.py"]


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("My-Pipe", "my_pipe"), ("2fast", "fast"), ("a", "my_pipeline"), ("größe", "gr_e")],
)
def test_bad_names(name: str, suggestion: str) -> None:
    """A name that Python or a pipeline cannot have is refused with one that works."""
    with pytest.raises(InvalidInput, match=f"penstock init {suggestion}"):
        project_files(name, "daily", Path(name))


def test_dry_run(tmp_path: Path) -> None:
    """A dry run lists the files and writes none."""
    folder = tmp_path / "new"
    words = ["init", "sales", "--folder", str(folder), "--dry-run", "--json"]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    listed = json.loads(done.stdout)
    assert "pipeline.py" in listed["files"]
    assert not folder.exists()
