"""Fixtures: a temporary database with the shop's pipelines, and a shell that runs commands."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock import connect, run_pending
from penstock.cli import cli
from tests.cli.shop import broken, hello, pair

SHOP = str(Path(__file__).parents[1] / "cli" / "shop.py")


@dataclass(frozen=True)
class CommandResult:
    """Output and exit code of a command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def error(self) -> Any:
        return json.loads(self.err)


class Shell:
    """Runs commands against one database."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:{path}"

    def __call__(self, *args: str, stdin: str | None = None) -> CommandResult:
        """Run a command and return its result, whatever the exit code."""
        result = CliRunner().invoke(cli, ["--database-url", self.url, *args], input=stdin)
        return CommandResult(result.exit_code, result.stdout, result.stderr)

    def ok(self, *args: str, stdin: str | None = None) -> str:
        """Run a command that must succeed and return its output."""
        result = self(*args, stdin=stdin)
        assert result.code == 0, result
        return result.out

    def json(self, *args: str, stdin: str | None = None) -> Any:
        """Run a command that must succeed with --json and return the parsed output."""
        return json.loads(self.ok(*args, "--json", stdin=stdin))

    def submit(self, pipeline: str = "hello", *more: str) -> str:
        """Submit a run and return its id."""
        return str(self.json("runs", "submit", pipeline, *more)["run_id"])

    def work(self) -> int:
        """Execute all due runs and return their number."""
        with connect(self.url) as client:
            return run_pending(client, [hello, broken, pair])


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove PENSTOCK_ variables and change to an empty folder."""
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def shop_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database in which the shop's pipelines are registered; copied by `shell`."""
    path = tmp_path_factory.mktemp("shop") / "shop.db"
    with connect(f"sqlite:{path}") as client:
        client.register([hello, broken, pair])
    return path


@pytest.fixture
def shell(alone: None, shop_template: Path, tmp_path: Path) -> Shell:  # noqa: ARG001
    """A shell on a fresh copy of the shop's database."""
    path = tmp_path / "penstock.db"
    shutil.copy(shop_template, path)
    return Shell(path)


@pytest.fixture
def bare(alone: None, tmp_path: Path) -> Shell:  # noqa: ARG001
    """A shell on a database that does not exist yet."""
    return Shell(tmp_path / "new.db")


Call = Callable[..., CommandResult]
