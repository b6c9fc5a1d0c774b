"""The committed reference pages match the code."""

import importlib
import re
from pathlib import Path

import pytest

from penstock.cli import reference
from penstock.exports import PUBLIC_MODULES

DOCS = Path(__file__).parents[2] / "docs" / "reference"
HOW = "run: python -m penstock.cli.reference docs/reference"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cli.md", reference.cli_page()),
        ("settings.md", reference.settings_page()),
        ("public-api.md", reference.public_page()),
    ],
)
def test_pages_are_current(name: str, text: str) -> None:
    """The committed page equals the generated one."""
    assert (DOCS / name).read_text("utf-8") == text, HOW


def test_public_names_have_a_sentence() -> None:
    """Each public name has its own row with a whole sentence."""
    rows = [line for line in reference.public_page().splitlines() if line.startswith("| `")]
    names = [name for module in PUBLIC_MODULES for name in importlib.import_module(module).__all__]
    assert [row.split("`")[1] for row in rows] == names
    assert [row for row in rows if not re.search(r"\| [A-Z`][^|]{12,}\. \|$", row)] == []


def test_main_writes_every_page(tmp_path: Path) -> None:
    """`main` writes all pages into the folder."""
    reference.main(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"cli.md", "settings.md", "public-api.md"}
