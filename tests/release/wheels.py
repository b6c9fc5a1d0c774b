"""Builds the wheel and the source distribution and tries the wheel in clean environments.

    python -m tests.release.wheels --pythons "python3.11 python3.13" [--suite "tests/core -x"]

For each interpreter a new environment gets the wheel and its dependencies from the package index,
nothing else, and is then asked to do real work outside the source tree: import every module,
migrate a database, run a pipeline, serve the command line, play `penstock demo` to its end.
`--suite` also installs the locked dependencies of the tests and runs tests against the installed
wheel. An interpreter that does not exist is reported and skipped. One JSON line per interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.core.clock import SystemClock
from tests.assembly.test_wheel import PIPELINE, content_faults, package_files

ROOT: Final = Path(__file__).parents[2]
PYTHONS: Final = "python3.11 python3.12 python3.13"
OLDEST: Final = (3, 11)
INSTALL_SECONDS: Final = 600
RUN_SECONDS: Final = 300
LEFT_OUT: Final = ("PENSTOCK_", "PYTHON", "COVERAGE_", "VIRTUAL_ENV")
GENERATED: Final = frozenset({"PKG-INFO"})
"""Files of a source distribution that the build writes."""


EXTRAS: Final = {
    "apprise", "cryptography", "duckdb", "google", "grpc", "grpc_status", "jwt", "nats",
    "opentelemetry", "psycopg", "sentry_sdk",
}  # fmt: skip
"""Packages of extras: a module that needs one may lack it, any other missing package is a fault."""
IMPORT_ALL: Final = """
import importlib, json, sys

missing = {}
for name in json.load(sys.stdin):
    try:
        importlib.import_module(name)
    except ImportError as error:  # the cause of "PostgreSQL needs its driver" is the package
        first = error.__cause__ if isinstance(error.__cause__, ImportError) else error
        missing[name] = (first.name or str(first)).partition(".")[0]
import penstock
for name in penstock.__all__:
    getattr(penstock, name)
files = [m.__file__ for n, m in sys.modules.items() if n.partition(".")[0] == "penstock"]
print(json.dumps({"files": files, "missing": missing}))
"""

DEMO: Final = ("demo", "--seconds", "1", "--customers", "20", "--flood", "300")
PLAIN_DEMO: Final = "This is the saas demo, because the nba demo needs duckdb"
"""Beginning of what `penstock demo` prints without extras."""


class Failed(Exception):
    """A step failed; the text is its output."""


def run(
    command: Sequence[str], folder: Path, timeout: int, stdin: str | None = None, **more: str
) -> str:
    """Run a program outside the source tree; return its output, or raise.

    more: further variables of its environment.
    """
    environment = {n: v for n, v in os.environ.items() if not n.startswith(LEFT_OUT)} | more
    done = subprocess.run(
        command, cwd=folder, input=stdin, env=environment, timeout=timeout,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Failed(f"{' '.join(command)[:200]}\n{done.stdout[-1_500:]}\n{done.stderr[-1_500:]}")
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """Build both distributions from the tree; return (wheel, sdist)."""
    run([sys.executable, "-m", "hatchling", "build", "--directory", str(folder)], ROOT, 120)
    (wheel,) = folder.glob("*.whl")
    (sdist,) = folder.glob("*.tar.gz")
    return wheel, sdist


def wheel_faults(wheel: Path) -> list[str]:
    """Return what the wheel lacks or has too much."""
    with zipfile.ZipFile(wheel) as archive:
        return content_faults(archive.namelist(), package_files(ROOT / "src"))


def sdist_faults(names: Iterable[str], tracked: Collection[str]) -> list[str]:
    """Return the files of a source distribution that are not in Git, such as a local secret.

    `names` are the paths in the archive, below its one folder.
    """
    held = {name.partition("/")[2] for name in names}
    return [
        f"the source distribution has {name}, which is not in Git"
        for name in sorted(held - set(tracked) - GENERATED)
    ]


def files_of(sdist: Path) -> list[str]:
    """Return the paths of the files and links in a source distribution."""
    with tarfile.open(sdist) as archive:
        return [one.name for one in archive.getmembers() if not one.isdir()]


def tracked_files() -> list[str]:
    """Return the files that Git knows in this tree."""
    return run(["git", "ls-files", "-z"], ROOT, 60).rstrip("\0").split("\0")


def wheel_of_sdist(sdist: Path, folder: Path) -> Path:
    """Unpack the source distribution and build the wheel from it, as an installer does."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    run([sys.executable, "-m", "hatchling", "build", "--target", "wheel"], source, 120)
    (wheel,) = (source / "dist").glob("*.whl")
    return wheel


def names_in(wheel: Path) -> list[str]:
    """Return the files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return sorted(archive.namelist())


def interpreters(words: str) -> Iterator[tuple[str, str | None, str]]:
    """Yield (name, path or None, version or the reason why it is skipped)."""
    for name in words.split():
        path, version = next(versions(name), ("", ""))
        if not path:
            yield name, None, "there is no such interpreter on this machine"
        elif tuple(map(int, version.split(".")[:2])) < OLDEST:
            yield name, None, f"{version} is older than {'.'.join(map(str, OLDEST))}"
        else:
            yield name, path, version


def versions(name: str) -> Iterator[tuple[str, str]]:
    """Yield the interpreters of a name that start: on the path, then those that pyenv has."""
    kept = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    found = sorted(kept.glob(f"*/bin/{name}")) if os.sep not in name else []
    for path in [shutil.which(name), *map(str, found)]:
        if path is None:
            continue
        ask = [path, "-c", "import platform; print(platform.python_version())"]
        done = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode == 0:
            yield path, done.stdout.strip()


def try_wheel(python: str, wheel: Path, folder: Path, suite: Sequence[str]) -> dict[str, Any]:
    """Install the wheel into a new environment and use it; return the figures."""
    environment, work = folder / "environment", folder / "work"
    work.mkdir()
    run([python, "-m", "venv", str(environment)], folder, INSTALL_SECONDS)
    bin_folder = environment / ("Scripts" if os.name == "nt" else "bin")
    inside = str(bin_folder / "python")
    pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--only-binary", ":all:", f"{wheel}"], work, INSTALL_SECONDS)
    listed = json.loads(run([inside, "-m", "pip", "list", "--format", "json"], work, RUN_SECONDS))
    modules = sorted(_modules())
    loaded = json.loads(run([inside, "-c", IMPORT_ALL], work, RUN_SECONDS, json.dumps(modules)))
    lacking = {n: one for n, one in loaded["missing"].items() if one not in EXTRAS}
    if lacking:
        raise Failed(f"modules that need a package that no extra has: {lacking}")
    outside = [one for one in loaded["files"] if environment not in Path(one).parents]
    if outside:
        raise Failed(f"loaded from outside the environment: {outside[:3]}")
    command = str(bin_folder / "penstock")
    version = run([command, "--version"], work, RUN_SECONDS).split()[1]
    database = ("--database-url", "sqlite:penstock.db")
    run([command, *database, "db", "migrate", "--json"], work, RUN_SECONDS)
    if run([inside, "-c", PIPELINE], work, RUN_SECONDS) != 'COMPLETED {"value": 42}\n':
        raise Failed("the pipeline did not complete")
    health = json.loads(run([command, *database, "status", "--json"], work, RUN_SECONDS))
    played = run([command, *DEMO], work, RUN_SECONDS, TMPDIR=str(work))
    if not played.startswith(PLAIN_DEMO) or "No run was lost." not in played:
        raise Failed(f"`penstock demo` of the plain wheel is another one: {played[:500]}")
    figures: dict[str, Any] = {
        "version": version, "packages": len(listed),
        "modules": len(modules) - len(loaded["missing"]), "need_extras": len(loaded["missing"]),
        "status": bool(health), "demo": "saas",
    }  # fmt: skip
    if suite:
        figures["suite"] = _suite(inside, pip, wheel, suite)
    return figures


def _suite(inside: str, pip: Sequence[str], wheel: Path, suite: Sequence[str]) -> str:
    """Run tests of the tree against the installed wheel; return pytest's last line."""
    lock = ["--require-hashes", "-r", str(ROOT / "requirements.lock")]
    run([*pip, "--only-binary", ":all:", *lock], ROOT, 2 * INSTALL_SECONDS)
    run([*pip, "--no-deps", "--force-reinstall", str(wheel)], ROOT, INSTALL_SECONDS)
    where = "import penstock; print(penstock.__file__)"
    found = run([inside, "-c", where], ROOT, RUN_SECONDS).strip()
    if Path(inside).parents[1] not in Path(found).parents:
        raise Failed(f"the tests would not use the wheel but {found}")
    tests = ["-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *suite]
    return run([inside, *tests], ROOT, 3_600).strip().splitlines()[-1].strip("= ")


def _modules() -> Iterator[str]:
    """Yield the modules of the package."""
    for name in package_files(ROOT / "src"):
        if name.endswith(".py") and not name.endswith("/__main__.py"):
            yield name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the wheel with each interpreter; return 1 if one failed or none exists."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pythons", default=os.environ.get("PYTHONS", PYTHONS))
    parser.add_argument("--suite", default="", help="arguments of pytest, run on the wheel")
    given = parser.parse_args(arguments)
    clock, failed, tried = SystemClock(), 0, 0
    with tempfile.TemporaryDirectory(prefix="penstock-wheel-") as name:
        folder = Path(name)
        (folder / "dist").mkdir()
        wheel, sdist = build(folder / "dist")
        faults = wheel_faults(wheel) + sdist_faults(files_of(sdist), tracked_files())
        (folder / "sdist").mkdir()
        if names_in(wheel_of_sdist(sdist, folder / "sdist")) != names_in(wheel):
            faults.append("the wheel built from the source distribution has other files")
        _say({"wheel": wheel.name, "sdist": sdist.name, "faults": faults})
        failed += bool(faults)
        for python, path, about in interpreters(given.pythons):
            if path is None:
                _say({"python": python, "skipped": about})
                continue
            began, place = clock.monotonic(), folder / python.replace(os.sep, "_")
            place.mkdir()
            tried += 1
            try:
                found = try_wheel(path, wheel, place, shlex.split(given.suite))
            except (Failed, subprocess.TimeoutExpired) as error:
                failed += 1
                found = {"error": str(error)}
            seconds = round(clock.monotonic() - began, 1)
            _say({"python": about, "faults": int("error" in found), **found, "seconds": seconds})
            shutil.rmtree(place, ignore_errors=True)
    return 1 if failed or not tried else 0


def _say(found: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
