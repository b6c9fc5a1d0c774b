"""What the deployment files and their page say about commands, settings and versions is true."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from penstock import connect
from penstock.access.api_keys import KeyState
from penstock.assembly.settings import load
from penstock.cli.root import COMMANDS
from penstock.core.clock import SECOND
from tests.docs.test_commands import fault

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PAGE = (ROOT / "docs" / "operations" / "deploy.md").read_text("utf-8")
VERSION = "0.1.0"
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


def needed_by(package: str) -> set[str]:
    """Return the names of an installed package and of all it needs."""
    found: set[str] = set()
    left = [package]
    while left:
        found.add(name := left.pop())
        needed = [Requirement(line) for line in requires(name) or []]
        left += [
            one.name
            for one in needed
            if one.name not in found and (not one.marker or one.marker.evaluate({"extra": ""}))
        ]
    return found


def test_image_is_built_by_the_tested_backend() -> None:
    """The build backend has the versions and hashes of the tests' lock file, and all it needs.

    `make lock` writes deploy/requirements-build.lock.
    """
    text = (DEPLOY / "requirements-build.lock").read_text("utf-8")
    assert pins(DEPLOY / "requirements-build.lock").keys() == needed_by("hatchling")
    entries = re.findall(r"^\S.*?(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    tested = (ROOT / "requirements.lock").read_text("utf-8")
    assert [entry for entry in entries if entry not in tested] == []
    dockerfile = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    for line in dockerfile.splitlines():
        if " wheel " in line:
            assert "--no-build-isolation" in line
            assert "--no-index" in line


def test_compose_names_commands() -> None:
    """Every service of the compose file runs a command that exists."""
    services = compose()["services"]
    commands = {
        name: service["command"]
        for name, service in services.items()
        if name not in {"postgres", "key"}
    }
    assert [line for line in commands.values() if fault(line)] == []
    assert commands["migrate"] == ["db", "migrate"]
    assert {"scheduler", "worker", "api"} <= {line[0] for line in commands.values()}
    for name, service in services.items():
        if name != "postgres":
            assert service["read_only"] is True
            assert service["image"] == f"penstock:{VERSION}"


def test_compose_uses_the_roles() -> None:
    """Migration and scheduler connect as the owner, all others as the application role."""
    users = {
        name: re.search(r"//(\w+):", service["environment"]["PENSTOCK_DATABASE_URL"])
        for name, service in compose()["services"].items()
        if name != "postgres"
    }
    owner, app = "penstock_owner", "penstock_app"
    assert {name: found and found[1] for name, found in users.items()} == {
        "migrate": owner, "scheduler": owner, "worker": app, "api": app, "key": app,
    }  # fmt: skip


def test_compose_waits_for_the_real_server() -> None:
    """PostgreSQL is healthy over TCP only, and what depends on it is repeated until it succeeds."""
    services = compose()["services"]
    assert "--host=127.0.0.1" in services["postgres"]["healthcheck"]["test"]
    assert services["migrate"]["restart"] == services["key"]["restart"] == "on-failure"
    mounted = [one.split(":")[0] for one in services["postgres"]["volumes"] if one.startswith(".")]
    assert [one for one in mounted if not (DEPLOY / one).is_file()] == []
    assert len(mounted) == 2


def penstock_on_path(folder: Path) -> dict[str, str]:
    """Return an environment with a database in a folder and the command `penstock`."""
    command = folder / "bin" / "penstock"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m penstock "$@"\n')
    command.chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    path = f"{command.parent}:{kept['PATH']}"
    return {**kept, "PATH": path, "PENSTOCK_DATABASE_URL": f"sqlite:{folder / 'penstock.db'}"}


def test_compose_creates_one_key(tmp_path: Path) -> None:
    """The service `key` creates a key if there is no usable one, and prints nothing."""
    key = compose()["services"]["key"]
    assert key["entrypoint"] == ["sh", "-c"]
    (script,) = key["command"]
    assert [one.split(":")[1] for one in key["volumes"]] == ["/app/state"]
    script = script.replace("/app/state", str(tmp_path)).replace("$$", "$")  # as Compose does
    env, file = penstock_on_path(tmp_path), tmp_path / "admin.key"

    def start() -> tuple[int, str, str]:
        done = subprocess.run(
            ["sh", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, file.read_text() if file.exists() else ""

    with connect(env["PENSTOCK_DATABASE_URL"]) as client:
        code, shown, first = start()
        assert (code, shown) == (0, "")
        assert file.stat().st_mode & 0o777 == 0o600
        made = client.keys.authenticate(first.strip())
        assert made is not None
        assert start() == (0, "", first)
        (one,) = client.keys.list().items
        client.keys.revoke(one.key_id)
        code, shown, second = start()
        assert (code, shown, second != first) == (0, "", True)
        assert [one.state for one in client.keys.list().items] == [KeyState.ACTIVE]
        # A database that cannot be read for a moment is not a database without keys.
        command = tmp_path / "bin" / "penstock"
        real = command.read_text()
        command.write_text(real.replace("\n", '\ncase "$*" in "keys list"*) exit 5;; esac\n', 1))
        assert start() == (5, "", second)
        command.write_text(real)
        assert start() == (0, "", second)
        assert len(client.keys.list().items) == 1


def environments() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the settings that each file passes as environment."""
    chart = yaml.safe_load((DEPLOY / "helm/penstock/values.yaml").read_text("utf-8"))
    yield "chart", chart["settings"]
    yield (
        "compose",
        compose()["x-penstock"]["environment"]
        | {"PENSTOCK_DATABASE_URL": "postgresql://penstock:x@postgres/penstock"},
    )
    shared = variables("penstock.env")
    yield "systemd", shared
    yield "systemd, scheduler", shared | variables("scheduler.env")


def variables(file: str) -> dict[str, str]:
    """Return the variables of an environment file of systemd."""
    lines = (DEPLOY / "systemd" / file).read_text("utf-8").splitlines()
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name: value for name, _, value in pairs}


@pytest.mark.parametrize(("name", "values"), list(environments()))
def test_settings_exist(name: str, values: dict[str, str]) -> None:
    """The settings of each file are known and valid."""
    assert load(values).log_format == "json" or name == "compose"


def test_chart_has_the_version_of_the_package() -> None:
    """The chart deploys this version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    chart = yaml.safe_load((DEPLOY / "helm/penstock/Chart.yaml").read_text("utf-8"))
    assert project["version"].startswith(chart["appVersion"])
    assert chart["appVersion"] == VERSION
    assert set(re.findall(r"\bpenstock:([\w.]+)", PAGE)) == {VERSION}


def test_values_on_the_page_exist() -> None:
    """Every value of the chart that the page sets or names is in values.yaml."""
    values = yaml.safe_load((DEPLOY / "helm/penstock/values.yaml").read_text("utf-8"))
    section = PAGE.split("## Kubernetes")[1].split("\n## ")[0]
    named = re.findall(r"--set '?([\w.]+)=|`((?:database|image|api|workers)\.[\w.]+)`", section)
    paths = {"".join(one).replace("NAME", "default") for one in named}
    assert {"image.tag", "pipelines", "workers.default.autoscaling.enabled"} <= paths
    for path in paths:
        found = values
        for part in path.split("."):
            assert part in found, path
            found = found[part]


def unit(name: str) -> str:
    """Return the text of a systemd unit."""
    return (DEPLOY / "systemd" / name).read_text("utf-8")


UNITS = ("penstock@.service", "penstock-worker@.service")


def test_instances_of_the_units() -> None:
    """Every instance on the page is a command, and has a state folder and settings of its own."""
    instances = set(re.findall(r"penstock@(\w+)(?!\w*\.service)", PAGE))
    assert instances == {"scheduler", "api"}
    assert instances <= COMMANDS.keys()
    assert set(re.findall(r"penstock-worker@(\w+)(?!\w*\.service)", PAGE)) == {"a"}
    for name, command, folder, file in (
        (UNITS[0], "%i", "%i", "%i"),
        (UNITS[1], "worker", "worker-%i", "worker-%i"),
    ):
        text = unit(name)
        for line in (
            f"ExecStart=/opt/penstock-{VERSION}/bin/penstock {command}",
            f"EnvironmentFile=-/etc/penstock/{file}.env",
            "DynamicUser=yes",
            f"StateDirectory=penstock/{folder}",
        ):
            assert f"\n{line}\n" in text
    urls = (variables(file)["PENSTOCK_DATABASE_URL"] for file in ("penstock.env", "scheduler.env"))
    assert [re.findall(r"//(\w+)", url) for url in urls] == [["penstock_app"], ["penstock_owner"]]


def test_units_protect_alike() -> None:
    """The units differ only in what they run: rights and the way they stop are the same."""
    own = re.compile(
        r"#|Description=|EnvironmentFile=|ExecStart=|StateDirectory=|WorkingDirectory="
    )
    kept = [[line for line in unit(name).splitlines() if not own.match(line)] for name in UNITS]
    assert kept[0] == kept[1]
    assert {"KillMode=mixed", "CapabilityBoundingSet="} <= set(kept[0])


def test_units_wait_for_the_drain() -> None:
    """A process has its drain and the 15 s that closing takes at most before SIGKILL."""
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit(UNITS[0]), re.MULTILINE)
    assert int(seconds) == load(variables("penstock.env")).drain // SECOND + 15


@pytest.mark.parametrize(("name", "instance"), [(UNITS[0], "scheduler"), (UNITS[1], "a")])
def test_unit_is_valid(name: str, instance: str, tmp_path: Path) -> None:
    """Systemd accepts the unit, without a warning."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd here")
    made = tmp_path / name.replace("@", f"@{instance}")
    made.write_text(unit(name).replace(f"/opt/penstock-{VERSION}/bin/penstock", sys.executable))
    done = subprocess.run(
        [program, "verify", "--man=no", str(made)], capture_output=True, text=True, check=False
    )
    faults = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    assert (done.returncode, faults) == (0, [])


def test_environments_of_versions() -> None:
    """The pages install and run each version in its own folder; the units name this version."""
    upgrade = (ROOT / "docs/operations/upgrade.md").read_text("utf-8")
    assert set(re.findall(r"/opt/penstock-([\d.]+\d)", PAGE)) == {VERSION}
    (newer,) = set(re.findall(r"/opt/penstock-([\d.]+\d)", upgrade))
    assert newer != VERSION
    for text, version in ((PAGE, VERSION), (upgrade, newer)):
        folder = f"/opt/penstock-{version}/bin"
        assert f"{folder}/pip install --require-hashes" in text
        assert f"dist/penstock_engine-{version}-py3-none-any.whl" in text
        used = re.findall(r"^(?:as_owner )?(/opt/\S+/penstock) (\w+)", text, re.MULTILINE)
        used += re.findall(r"^as_owner (\S+) (\w+)", text, re.MULTILINE)
        assert used
        assert {path for path, _ in used} == {f"{folder}/penstock"}
        assert {command for _, command in used} <= COMMANDS.keys()
        assert all(name in text for name in UNITS)


def test_settings_on_the_page_exist() -> None:
    """Every variable that the page sets is a setting, with a valid value where it has one."""
    given = dict(re.findall(r"\b(PENSTOCK_[A-Z_]+)=([^\s,…]+)", PAGE))
    given["PENSTOCK_DATABASE_URL"] = "sqlite:penstock.db"
    named = dict.fromkeys(re.findall(r"\bPENSTOCK_[A-Z_]+", PAGE), "")
    assert {"PENSTOCK_API_PORT", "PENSTOCK_METRICS_HOST"} <= given.keys()
    load(given)
    reference = (ROOT / "docs/reference/settings.md").read_text("utf-8")
    assert [name for name in named if f"`{name}`" not in reference] == []


def test_commands_in_a_container(tmp_path: Path) -> None:
    """The commands of the page create a database and the key that `up` asks for."""
    image = rf"^docker run .*?-v penstock:/app/state penstock:{re.escape(VERSION)} (.*)$"
    lines = [shlex.split(line) for line in re.findall(image, PAGE, re.MULTILINE)]
    assert [line[0] for line in lines] == ["db", "keys", "up"]
    assert [line for line in lines if fault(line)] == []
    migrate, create, up = lines
    env = penstock_on_path(tmp_path)

    def run(words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["penstock", *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )

    assert run(migrate).returncode == 0
    refused = run([*up, "--port", "0"])
    assert refused.returncode == 2
    asked = re.search(r"penstock (keys create) NAME (--role admin)", refused.stderr)
    assert asked is not None, refused.stderr
    assert [*asked[1].split(), create[2], *asked[2].split()] == create
    assert run(create).returncode == 0
    with connect(env["PENSTOCK_DATABASE_URL"]) as client:
        assert [one.state for one in client.keys.list().items] == [KeyState.ACTIVE]


def test_commands_of_cloud_run() -> None:
    """Each process on Cloud Run has a command that exists, and its role in the database."""
    text = PAGE.replace("\\\n", " ")
    found = [
        line for line in text.splitlines() if re.match(r"gcloud run (jobs|worker|deploy)", line)
    ]
    assert len(found) == 5
    for line in found:
        (words,) = re.findall(r"--args=(\S+)", line)
        assert fault(words.split(",")) == ""
        (secret,) = re.findall(r"PENSTOCK_DATABASE_URL=penstock-(\w+):", line)
        needs_owner = words in {"db,migrate", "scheduler"}
        assert secret == ("owner" if needs_owner else "app"), line
        if line.startswith("gcloud run deploy"):  # a service listens on the port
            (port,) = re.findall(r"--port=(\d+)", line)
            kind = "API" if words == "api" else "METRICS"
            assert f"PENSTOCK_{kind}_HOST=0.0.0.0,PENSTOCK_{kind}_PORT={port}" in line
