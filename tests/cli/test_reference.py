"""The committed reference pages match the code."""

import importlib
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest

from penstock.assets.events_page import events_page
from penstock.assets.metrics_page import metrics_page
from penstock.bus.transports.table import transports_page
from penstock.cli import python_reference, reference
from penstock.cli.python_meanings import MEANINGS
from penstock.exports import PUBLIC_MODULES

DOCS = Path(__file__).parents[2] / "docs" / "reference"
HOW = "run: python -m penstock.cli.reference docs/reference"


@cache
def python_page() -> str:
    """Return the page of the Python API, generated once."""
    return python_reference.python_page()


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("cli.md", reference.cli_page),
        ("settings.md", reference.settings_page),
        ("events.md", partial(events_page, reference.NOTE)),
        ("metrics.md", partial(metrics_page, reference.NOTE)),
        ("public-api.md", reference.public_page),
        ("python.md", python_page),
        ("transports.md", partial(transports_page, reference.NOTE)),
    ],
)
def test_pages_are_current(name: str, page: Callable[[], str]) -> None:
    """The committed page equals the generated one."""
    assert (DOCS / name).read_text("utf-8") == page(), HOW


def test_public_names_have_a_sentence() -> None:
    """Each public name has its own row with a whole sentence."""
    rows = [line for line in reference.public_page().splitlines() if line.startswith("| `")]
    names = [name for module in PUBLIC_MODULES for name in importlib.import_module(module).__all__]
    assert [row.split("`")[1] for row in rows] == names
    assert [row for row in rows if not re.search(r"\| [A-Z`][^|]{12,}\. \|$", row)] == []


def test_main_writes_every_page(tmp_path: Path) -> None:
    """`main` writes all pages into the folder."""
    reference.main(str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {
        "cli.md", "events.md", "settings.md", "metrics.md", "public-api.md", "python.md",
        "transports.md",
    }  # fmt: skip


def test_every_option_has_a_meaning() -> None:
    """No row of the page of the Python API leaves the meaning empty."""
    rows = [one for one in python_page().splitlines() if one.startswith("| `")]
    assert len(rows) > 500
    assert [row for row in rows if row.rstrip().endswith("|  |")] == []


def test_meanings_have_an_owner() -> None:
    """Every entry of the table of meanings belongs to a function or class on the page."""
    page = python_page()
    owners = {key.rpartition(".")[0] for key in MEANINGS if "." in key}
    assert [one for one in sorted(owners) if f"# {one}\n" not in page] == []


@pytest.mark.parametrize(
    "heading",
    ["Pipeline", "Pipeline.phase", "Phase.processor", "Mode", "same_day", "historical", "optional",
     "per", "FlowTest", "FlowTest.run", "Client", "client.runs", "client.configs.create"],
)  # fmt: skip
def test_sections(heading: str) -> None:
    """What users declare and call has a section with its options."""
    page = python_page()
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#)", page, re.M | re.S)
    assert found is not None
    assert "| `" in found[1] or heading in ("Client", "client.runs"), found[1]


def test_examples_are_on_the_page() -> None:
    """Examples stand with their names; the tests of the documentation execute the page."""
    page = python_page()
    for name, text in python_reference.EXAMPLES.items():
        section = page[page.index(f"\n### {name}\n") + 1 :]
        assert section.index(text.strip()) < section.index("\n### "), name
