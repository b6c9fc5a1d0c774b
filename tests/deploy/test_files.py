"""What the deployment files say about commands, settings, versions and rights is true."""

import re
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from penstock import Pipeline, RunContext, Submission, connect, run_pending
from penstock.assembly.settings import load
from penstock.cli.root import COMMANDS
from penstock.testing import PostgresServer

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
_PINNED = re.compile(r"^([a-z0-9-]+)==([^ ]+)", re.MULTILINE)


def pins(path: Path) -> dict[str, str]:
    """Return the versions that a lock file pins."""
    return dict(_PINNED.findall(path.read_text("utf-8")))


def compose() -> dict[str, Any]:
    """Return the compose file."""
    read: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return read


def test_image_has_the_tested_versions() -> None:
    """Whatever the image and the tests both install has the same version."""
    tested, shipped = pins(ROOT / "requirements.lock"), pins(DEPLOY / "requirements.lock")
    shared = tested.keys() & shipped.keys()
    assert {name: shipped[name] for name in shared} == {name: tested[name] for name in shared}
    assert {"psycopg", "uvicorn", "cryptography"} <= shipped.keys()
    assert not {"pytest", "mypy", "ruff"} & shipped.keys()


def test_compose_names_commands() -> None:
    """Every service of the compose file runs a command that exists."""
    services = compose()["services"]
    commands = [service["command"][0] for service in services.values() if "command" in service]
    assert set(commands) <= COMMANDS.keys()
    assert {"scheduler", "worker", "api"} <= set(commands)
    for name, service in services.items():
        if name != "postgres":
            assert service["read_only"] is True


def environments() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the settings that each file passes as environment."""
    chart = yaml.safe_load((DEPLOY / "helm/penstock/values.yaml").read_text("utf-8"))
    yield "chart", chart["settings"]
    yield (
        "compose",
        compose()["x-penstock"]["environment"]
        | {"PENSTOCK_DATABASE_URL": "postgresql://penstock:x@postgres/penstock"},
    )
    lines = (DEPLOY / "systemd/penstock.env").read_text("utf-8").splitlines()
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    yield "systemd", {name: value for name, _, value in pairs}


@pytest.mark.parametrize(("name", "values"), list(environments()))
def test_settings_exist(name: str, values: dict[str, str]) -> None:
    """The settings of each file are known and valid."""
    assert load(values).log_format == "json" or name == "compose"


def test_chart_has_the_version_of_the_package() -> None:
    """The chart deploys this version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    chart = yaml.safe_load((DEPLOY / "helm/penstock/Chart.yaml").read_text("utf-8"))
    assert project["version"].startswith(chart["appVersion"])


def make_url(url: str, *, user: str) -> str:
    """Return a URL with another user."""
    return re.sub(r"//[^@]*@", f"//{user}@", url)


_rights = Pipeline("rights")


@_rights.processor
def work(run: RunContext) -> None:
    """Do nothing."""


@pytest.mark.postgres
def test_roles_are_enough() -> None:
    """The owner of roles.sql migrates; the application works and cannot change the schema."""
    with PostgresServer() as server:
        admin = server.create_database("least")
        roles = (DEPLOY / "postgres" / "roles.sql").read_text("utf-8")
        with closing(psycopg.connect(admin, autocommit=True)) as db:
            db.execute(roles.encode())
        owner, app = (make_url(admin, user=f"penstock_{role}") for role in ("owner", "app"))
        with connect(owner) as client:
            client.register([_rights])
        with connect(app) as client:
            run = client.runs.submit(Submission(pipeline="rights"))
            run_pending(client, [_rights])
            assert client.runs.get(run.run_id).state == "COMPLETED"
            assert client.keys.list().items == []
        with (
            closing(psycopg.connect(app)) as db,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            db.execute("DROP TABLE runs")
