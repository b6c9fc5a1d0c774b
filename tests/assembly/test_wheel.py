"""The wheel that users install: what it holds, and that it works outside the source tree.

The wheel is built by the locked build backend and installed into an environment of its own. The
dependencies come from the environment of the tests, so that nothing is downloaded.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA_SUFFIXES = (".sql", ".typed", ".html", ".css", ".js", ".svg", ".txt")
METADATA = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
BUILD = (sys.executable, "-m", "hatchling", "build", "--target", "wheel")

IMPORT_ALL = """
import importlib, json, sys

names = json.load(sys.stdin)
for name in names:
    importlib.import_module(name)
import penstock
for name in penstock.__all__:
    getattr(penstock, name)
files = [m.__file__ for n, m in sys.modules.items() if n.partition(".")[0] == "penstock"]
print(json.dumps({"files": files, "path": sys.path}))
"""

PIPELINE = """
import json

from penstock import Pipeline, Result, RunContext, Submission, connect, run_pending

double = Pipeline("double")


@double.processor()
def twice(run: RunContext) -> Result:
    return Result(summary={"value": 2 * run.parameters["value"]}, records=1)


with connect("sqlite:penstock.db") as client:
    client.register([double])
    run = client.runs.submit(Submission(pipeline="double", parameters={"value": 21}))
    assert run_pending(client, [double]) == 1
    done = client.runs.get(run.run_id)
    print(done.state, json.dumps(done.result))
"""


def content_faults(held: Collection[str], package: Collection[str]) -> list[str]:
    """Return what the wheel lacks, and what it holds besides the package and its metadata.

    `held` are the paths in the wheel, `package` the paths of the package's files below `src`.
    """
    metadata = {name for name in held if name.partition("/")[0].endswith(".dist-info")}
    found = {name.partition("/")[2] for name in metadata}
    return [
        *(f"lacks {name}" for name in sorted(set(package) - set(held))),
        *(f"lacks {name} of its metadata" for name in METADATA if name not in found),
        *(f"must not hold {name}" for name in sorted(set(held) - metadata - set(package))),
    ]


def package_files(src: Path) -> set[str]:
    """Return the files that the package consists of, as paths below `src`."""
    return {
        path.relative_to(src).as_posix()
        for path in (src / "penstock").rglob("*")
        if path.suffix in (".py", *DATA_SUFFIXES)
    }


@dataclass(frozen=True)
class Installed:
    """An environment in which the wheel is installed, and an empty directory to work in."""

    environment: Path
    directory: Path

    def run(self, *command: str, stdin: str | None = None) -> str:
        """Run a program of the environment, which must succeed, and return its output."""
        program, *rest = command
        return _run([str(_programs(self.environment) / program), *rest], self.directory, stdin)


def _programs(environment: Path) -> Path:
    return environment / ("Scripts" if os.name == "nt" else "bin")


def _run(command: Sequence[str], directory: Path, stdin: str | None = None) -> str:
    left_out = ("PENSTOCK_", "PYTHON", "COVERAGE_")
    done = subprocess.run(
        command,
        cwd=directory,
        input=stdin,
        env={name: value for name, value in os.environ.items() if not name.startswith(left_out)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the tree as it is."""
    folder = tmp_path_factory.mktemp("wheel")
    _run([*BUILD, "--directory", str(folder)], ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """An environment with the wheel, and with the dependencies of the test environment.

    A path in a `.pth` file adds one folder and does not read the `.pth` files in that folder, so
    an editable installation of the source tree stays out of reach.
    """
    environment = tmp_path_factory.mktemp("environment")
    venv.create(environment, with_pip=False, symlinks=os.name != "nt")
    python = str(_programs(environment) / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    options = ["--quiet", "--no-deps", "--no-index", "--no-compile"]
    _run([*pip, "install", *options, str(wheel)], environment)
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own_packages = Path(_run([python, "-c", ask], environment).strip())
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (own_packages / "dependencies.pth").write_text("\n".join(sorted(dependencies)) + "\n")
    return Installed(environment, tmp_path_factory.mktemp("empty"))


def test_contents(wheel: Path) -> None:
    """The wheel holds every file of the package, its metadata and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        held = archive.namelist()
    package = package_files(ROOT / "src")
    assert sum(name.endswith(".sql") for name in package) > 30
    assert "penstock/py.typed" in package
    assert content_faults(held, package) == []


@pytest.mark.parametrize(
    ("lacking", "extra", "faults"),
    [
        ((), (), []),
        (("penstock/db/sql/a.sql",), (), ["lacks penstock/db/sql/a.sql"]),
        (("penstock/py.typed",), (), ["lacks penstock/py.typed"]),
        (("penstock-1.dist-info/RECORD",), (), ["lacks RECORD of its metadata"]),
        ((), ("tests/conftest.py",), ["must not hold tests/conftest.py"]),
        ((), ("benchmarks/queue.py",), ["must not hold benchmarks/queue.py"]),
        ((), (".venv/pyvenv.cfg",), ["must not hold .venv/pyvenv.cfg"]),
        ((), ("penstock/local.db",), ["must not hold penstock/local.db"]),
    ],
)
def test_contents_rule(lacking: tuple[str, ...], extra: tuple[str, ...], faults: list[str]) -> None:
    """The rule reports a file that is missing and a file that does not belong."""
    package = {"penstock/__init__.py", "penstock/py.typed", "penstock/db/sql/a.sql"}
    complete = package | {f"penstock-1.dist-info/{name}" for name in METADATA}
    assert content_faults((complete - set(lacking)) | set(extra), package) == faults


def test_every_module_imports(installed: Installed) -> None:
    """Every module and public name loads from the wheel, without the source tree."""
    modules = sorted(
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in package_files(ROOT / "src")
        if name.endswith(".py") and not name.endswith("/__main__.py")
    )
    loaded = json.loads(installed.run("python", "-c", IMPORT_ALL, stdin=json.dumps(modules)))
    assert len(loaded["files"]) >= len(modules)
    outside = [f for f in loaded["files"] if installed.environment not in Path(f).parents]
    assert outside == []
    assert [path for path in loaded["path"] if path in {str(ROOT), str(ROOT / "src")}] == []


def test_command(installed: Installed) -> None:
    """The installed command prints its help, and the version of the distribution."""
    out = installed.run("penstock", "--help")
    assert out.startswith("Usage: penstock ")
    assert re.fullmatch(r"penstock \d+\.\S+\n", installed.run("penstock", "--version"))


def test_name(wheel: Path) -> None:
    """The distribution has its own name on the package index; the import keeps the short one."""
    assert wheel.name.startswith("penstock_engine-")


def test_migrations_and_a_run(installed: Installed) -> None:
    """A database is created, a second migration finds nothing to do, and a run completes."""
    database = ("--database-url", "sqlite:penstock.db")
    first = json.loads(installed.run("penstock", *database, "db", "migrate", "--json"))
    again = json.loads(installed.run("penstock", *database, "db", "migrate", "--json"))
    assert first["applied"]
    assert again["applied"] == []
    out = installed.run("python", "-c", PIPELINE)
    assert out == 'COMPLETED {"value": 42}\n'
