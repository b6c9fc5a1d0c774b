"""`penstock init`: every template is a project whose test passes and whose README is true."""

import builtins
import json
import keyword
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, chdir, closing, contextmanager
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

import penstock
from penstock import connect
from penstock.cli.root import cli
from penstock.core.errors import InvalidInput
from penstock.scaffold.project import TEMPLATES, project_files, write_project

PATIENCE = 60
_STEPS = ["Test it", "Run it", "Break it"]
_CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LONG_RUNNING = ("penstock up", "python service.py")
_NEEDS_DEAD_LETTER = "penstock dlq "
_IMPORTING = ("penstock pipelines register", "penstock simulate")


class Project:
    """A project in a folder of its own, and the commands of its README."""

    def __init__(self, folder: Path, template: str, name: str = "sales") -> None:
        self.folder = folder
        write_project(project_files(name, template, folder))
        ours = {k for k in os.environ if k.startswith("PENSTOCK_")}
        self.changes = {**dict.fromkeys(ours), "PENSTOCK_API_PORT": "0"}
        inherited = {k: v for k, v in os.environ.items() if k not in ours}
        self.env = {**inherited, "PENSTOCK_API_PORT": "0", "PYTHONUNBUFFERED": "1"}

    @property
    def readme(self) -> str:
        """The text of the README."""
        return (self.folder / "README.md").read_text("utf-8")

    def steps(self) -> dict[str, list[str]]:
        """Return the commands of the README by section, without comments."""
        sections = [part.partition("\n") for part in self.readme.split("\n## ")[1:]]
        return {
            title: [
                re.sub(r"\s+# .*$", "", line)
                for block in _CONSOLE.findall(text)
                for line in block.splitlines()
            ]
            for title, _, text in sections
        }

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

    def dead_letters(self) -> list[str]:
        """Poll until there are dead letters; return their ids."""
        pause = threading.Event()
        with connect(f"sqlite:{self.folder / 'penstock.db'}") as client:
            for _ in range(PATIENCE * 20):
                if found := client.dead_letters.list().items:
                    return [one.dead_letter_id for one in found]
                pause.wait(0.05)
        return []

    def replay(self) -> None:
        """Replay the dead letter as the README says; this closes it."""
        (line,) = re.findall(r"`(penstock dlq replay ID [^`]+)`", self.readme)
        (dead_letter,) = self.dead_letters()
        self.types(line.replace("ID", dead_letter, 1))
        with connect(f"sqlite:{self.folder / 'penstock.db'}") as client:
            assert client.dead_letters.list().items == []

    @contextmanager
    def runs(self, line: str) -> Iterator[str]:
        """Start a line that does not end by itself; yield what it prints until it is up."""
        process = subprocess.Popen(
            self.words(line), cwd=self.folder, env=self.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            printed = ""
            for text in process.stdout:
                printed += text
                if "Ctrl-C" in text:
                    break
            assert "Ctrl-C" in printed
            yield printed
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("template", TEMPLATES)
def test_readme_is_true(template: str, tmp_path: Path) -> None:
    """Every command of a project's README succeeds; `penstock init` names its steps."""
    project = Project(tmp_path / "sales", template)
    steps = project.steps()
    assert list(steps) == _STEPS
    (test,) = steps["Test it"]
    assert project.types(test) == "ok\n"
    with ExitStack() as running:
        for line in [*steps["Run it"], *steps["Break it"]]:
            if line in _LONG_RUNNING:
                running.enter_context(project.runs(line))
                continue
            if line.startswith(_NEEDS_DEAD_LETTER):
                assert len(project.dead_letters()) == 1
            project.types(line)
        if template != "daily":
            project.replay()


def test_the_hint_names_the_steps_of_the_readme(tmp_path: Path) -> None:
    """What `penstock init` says to do next are the sections of every README."""
    words = ["init", "sales", "--folder", str(tmp_path / "sales")]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert f"follow README.md: {', '.join(_STEPS).lower()}." in done.output


def test_example_data_is_the_same_when_it_is_made_again(tmp_path: Path) -> None:
    """The rows that are counted are not doubled."""
    project = Project(tmp_path / "sales", "daily")
    counted = []
    for _ in range(2):
        project.types("python make_data.py")
        with closing(sqlite3.connect(project.folder / "data.db")) as db:
            tables = ("till", "open_shops")
            counted.append([len(db.execute(f"SELECT * FROM {t}").fetchall()) for t in tables])
    assert counted == [[6, 2], [6, 2]]


def test_the_consumer_uses_the_database_of_the_settings(tmp_path: Path) -> None:
    """The service and `penstock up` use the database that PENSTOCK_DATABASE_URL names."""
    project = Project(tmp_path / "sales", "consumer")
    elsewhere = tmp_path / "elsewhere.db"
    project.env["PENSTOCK_DATABASE_URL"] = f"sqlite:{elsewhere}"
    with project.runs("python service.py"):
        pass
    assert elsewhere.exists()
    assert not (project.folder / "penstock.db").exists()


def test_up_without_pipelines_is_explained(tmp_path: Path) -> None:
    """`penstock up` of the consumer project has no pipelines; its README says why it is right."""
    project = Project(tmp_path / "sales", "consumer")
    with project.runs("penstock up") as printed:
        assert "  pipelines  none: add" in printed
    assert "`pipelines  none`. That is right here" in project.readme


@pytest.mark.parametrize("name", ["ab", "a" * 40])
@pytest.mark.parametrize("template", TEMPLATES)
def test_comments_of_commands_are_aligned(name: str, template: str, tmp_path: Path) -> None:
    """In a block of commands all comments begin in one column, however long the name is."""
    (readme,) = [f.text for f in project_files(name, template, tmp_path) if f.path.suffix == ".md"]
    blocks = _CONSOLE.findall(readme)
    assert blocks
    for block in blocks:
        commented = [line for line in block.splitlines() if " # " in line]
        assert len({line.index("# ") for line in commented}) <= 1, block
        assert all("  # " in line for line in commented)


def test_files_are_never_overwritten(tmp_path: Path) -> None:
    """One file that exists refuses the whole project, and nothing is written."""
    (tmp_path / "pipeline.py").write_text("mine")
    with pytest.raises(InvalidInput, match=r"pipeline\.py"):
        write_project(project_files("sales", "daily", tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.py"]


def _possible_names(template: str) -> list[str]:
    """Return names that could collide: identifiers of the template, keywords, builtins, modules."""
    found = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *sys.stdlib_module_names}
    found |= {"penstock", "pytest", "test", "tests", "data", "default"}
    for file in project_files("my_name", template, Path()):
        found |= set(re.findall(r"[a-z][a-z0-9_]+", file.text))
        found.add(file.path.stem)
    return sorted(name for name in found if re.fullmatch("[a-z][a-z0-9_]{1,39}", name))


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_name_makes_a_module_that_can_be_imported(
    template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also names that the code of the template uses, keywords and names of modules."""
    monkeypatch.chdir(tmp_path)
    stem = "service" if template == "consumer" else "pipeline"
    for name in _possible_names(template):
        texts = {file.path.name: file.text for file in project_files(name, template, tmp_path)}
        for file, text in texts.items():
            if file.endswith(".py"):
                compile(text, f"{name}/{file}", "exec")
        made = ModuleType(stem)
        exec(texts[f"{stem}.py"], vars(made))
        if template != "consumer":
            assert made.pipeline.name == name
            made.pipeline.check()


@pytest.mark.parametrize(
    ("template", "name"),
    [
        *(("daily", name) for name in ("orders", "load", "per", "class", "json", "test")),
        *(("schedules", name) for name in ("build", "run", "pipeline", "list", "penstock")),
        *(("consumer", name) for name in ("app", "state", "devices", "message", "import")),
    ],
)
def test_projects_with_such_names_work(template: str, name: str, tmp_path: Path) -> None:
    """Their tests pass, and their folder hides no module from a command run next to it."""
    project = Project(tmp_path / name, template, name)
    (test,) = project.steps()["Test it"]
    assert project.types(test) == "ok\n"
    line = [sys.executable, "-c", "import json, penstock; print(penstock.__file__, json.dumps({}))"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"{penstock.__file__} {{}}\n"


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
