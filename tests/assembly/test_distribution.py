"""The name on the package index: `penstock` belongs to another project there."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

import penstock
from penstock.cli import cli
from penstock.exports import DISTRIBUTION
from tests.tidy.files import sources_read

ROOT = Path(__file__).parents[2]
WRONG = re.compile(
    r"(?<![\w-])penstock\[(?:postgres|duckdb|bigquery|oidc|dev|\{)"  # an extra of the other project
    r"|pip install (?:-\S+ )*['\"]?penstock(?![\w-])"
)


def wrong_names(path: str, text: str) -> list[str]:
    """Return the lines that would install the other project."""
    lines = enumerate(text.splitlines(), 1)
    return [f"{path}:{number} {line.strip()}" for number, line in lines if WRONG.search(line)]


def test_name() -> None:
    """The project, the version and the command line use one name."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert declared["name"] == DISTRIBUTION == "penstock-engine"
    assert declared["scripts"] == {"penstock": "penstock.cli:main"}
    assert penstock.__version__ == version(DISTRIBUTION)
    printed = CliRunner().invoke(cli, ["--version"])
    assert printed.output == f"penstock {version(DISTRIBUTION)}\n"


def test_hints() -> None:
    """No page, hint or docstring tells a reader to install the other project."""
    sources = [one for one in sources_read(ROOT) if not one.path.startswith("tests/")]
    assert len(sources) > 300
    faults = [wrong_names(one.path, one.text) for one in sources]
    assert [fault for found in faults for fault in found] == []


@pytest.mark.parametrize(
    ("text", "is_wrong"),
    [
        ("pip install penstock", True),
        ("pip install 'penstock[oidc]'", True),
        ("needs `penstock[postgres]`", True),
        ("pip install -U penstock", True),
        ("pip install penstock-engine", False),
        ("pip install 'penstock-engine[oidc]'", False),
        ("needs `penstock-engine[postgres]`", False),
        ("from penstock import Pipeline", False),
    ],
)
def test_hints_rule(text: str, is_wrong: bool) -> None:
    """The rule tells the two projects apart."""
    assert bool(wrong_names("page.md", text)) is is_wrong
