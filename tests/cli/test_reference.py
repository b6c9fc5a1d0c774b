"""The committed reference pages match the code."""

from pathlib import Path

import pytest

from penstock.cli import reference

DOCS = Path(__file__).parents[2] / "docs" / "reference"
HOW = "run: python -m penstock.cli.reference docs/reference"


@pytest.mark.parametrize(
    ("name", "text"), [("cli.md", reference.cli_page()), ("settings.md", reference.settings_page())]
)
def test_pages_are_current(name: str, text: str) -> None:
    """The committed page equals the generated one."""
    assert (DOCS / name).read_text("utf-8") == text, HOW


def test_main_writes_both_pages(tmp_path: Path) -> None:
    """`main` writes both pages into the folder."""
    reference.main(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"cli.md", "settings.md"}
