"""The reference pages say what the code says."""

from pathlib import Path

import pytest

from penstock.cli import reference

DOCS = Path(__file__).parents[2] / "docs" / "reference"
HOW = "run: python -m penstock.cli.reference docs/reference"


@pytest.mark.parametrize(
    ("name", "text"), [("cli.md", reference.cli_page()), ("settings.md", reference.settings_page())]
)
def test_in_step(name: str, text: str) -> None:
    """A changed command or setting changes its page."""
    assert (DOCS / name).read_text("utf-8") == text, HOW


def test_writing(tmp_path: Path) -> None:
    """The module writes both pages."""
    reference.main(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"cli.md", "settings.md"}
