"""What pages say about Penstock as a whole: true, the same everywhere, and easy to find."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from penstock.cli.root import COMMANDS, cli

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text("utf-8")
UNFINISHED = re.compile(
    r"\bbeing built\b|\bnot (?:yet )?(?:built|implemented|supported yet)\b|\bcoming soon\b|\bTODO\b"
    r"|\bwill be (?:added|built|supported)\b|\bunder construction\b",
    re.IGNORECASE,
)
EXAMPLE_LINES_MAX = 20
GUARANTEES = (
    "a trigger happens exactly once per generation; "
    "execution is at least once with fencing (a stale holder's result is refused); "
    "a message is delivered at least once, its effect in our sinks exactly once; "
    "attempts and dead letters are exact, not best effort; "
    "what was accepted with a 2xx is on disk"
)
"""What the specification promises, in its words."""
PRODUCTS = (
    "Airflow",
    "Celery",
    "Dagster",
    "DBOS",
    "Hatchet",
    "Oban",
    "Prefect",
    "River",
    "Temporal",
)


def help_texts() -> dict[str, str]:
    """Return the help of every command by its path."""
    texts: dict[str, str] = {}

    def walk(path: str, command: click.Command) -> None:
        context = click.Context(command, info_name=path)
        texts[path] = command.get_help(context)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                walk(f"{path} {name}", found)

    walk("penstock", cli)
    assert len(texts) > len(COMMANDS)
    return texts


def test_nothing_is_called_unfinished() -> None:
    """A page or a help text names what exists; what does not exist is stated plainly."""
    pages = {str(p.relative_to(ROOT)): p.read_text("utf-8") for p in DOCS.rglob("*.md")}
    texts = {**pages, **help_texts(), "README.md": README}
    found = {name: UNFINISHED.findall(text) for name, text in texts.items()}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    ("text", "is_found"),
    [("It is being built.", True), ("Coming soon", True), ("An index is built.", False)],
)
def test_unfinished_rule(text: str, is_found: bool) -> None:
    assert bool(UNFINISHED.search(text)) is is_found


def test_index_lists_every_page() -> None:
    """The index links each page once or more; decisions have their folder."""
    index = (DOCS / "index.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(([^)#]+)", index))
    pages = {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")} - {"index.md"}
    missing = {page for page in pages if not page.startswith("decisions/")} - linked
    assert sorted(missing) == []
    assert "decisions/" in linked


def test_readme_begins_plainly() -> None:
    """The first sentence is short and names no other product; an install line follows."""
    first = README.split("\n\n")[1]
    assert len(first.split()) <= 12
    assert not [name for name in PRODUCTS if name in README.split("## How it compares")[0]]
    assert "pip install penstock-engine" in README
    assert "**Status:" in README


def test_readme_names_every_extra() -> None:
    """The comment of the install command lists the extras that it does not show."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    shown = re.search(r"^pip install '\.\[(.+)\]' +# further extras: (.+)$", README, re.MULTILINE)
    assert shown is not None
    named = {*shown[1].split(","), *shown[2].split(", ")}
    assert named == {*project["optional-dependencies"]} - {"dev"}


def test_comparison_is_honest() -> None:
    """The table has the systems that users compare with, and rows that Penstock does not win."""
    table = README.split("## How it compares")[1].split("## ")[0]
    for name in ("Airflow", "Dagster", "Prefect", "Temporal", "DBOS", "Hatchet"):
        assert name in table
    assert table.count("| **no** |") >= 3


def test_readme_example() -> None:
    """The first example, of twenty lines at most, is in `examples` and prints what README shows."""
    program = ROOT / "examples" / "first_gate.py"
    block = re.search(r"^```python\n(.*?)^```\n+^```\n(.*?)^```$", README, re.M | re.S)
    assert block is not None
    assert block[1] == program.read_text("utf-8")
    assert block[1].count("\n") <= EXAMPLE_LINES_MAX
    lines = block[2].splitlines()
    assert lines[0].startswith("WAIT ")
    assert lines[-1] == "PROCEED"
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, block[2], "")


@pytest.mark.parametrize("page", ["README.md", "docs/concepts/promises.md"])
def test_guarantees(page: str) -> None:
    """The bold sentences of the section are the guarantees, word for word and in this order."""
    text = (ROOT / page).read_text("utf-8")
    found = re.findall(r"^- \*\*(.+?)\.\*\*", text.partition("promises\n")[2], re.MULTILINE)
    assert [one[:1].lower() + one[1:] for one in found] == GUARANTEES.split("; ")


def test_readme_is_short_and_frank() -> None:
    """At most 150 lines, with the cases in which another product fits better."""
    assert README.count("\n") <= 150
    assert "**When not to use it:**" in README
    assert "the other products were not run" in README


def measured(bench: str) -> list[str]:
    """Return the cells of SQLite and PostgreSQL in the first row of that name in the benchmarks."""
    figures = (DOCS / "benchmarks.md").read_text("utf-8").partition("\n## Figures\n")[2]
    row = re.search(rf"^\| `{bench}`[^|]*\|([^|]*)\|([^|]*)\|$", figures, re.MULTILINE)
    assert row is not None, bench
    return [row[1].strip(), row[2].strip()]


def test_readme_figures() -> None:
    """Each measured figure of README begins the cell of its benchmark; no other is left."""
    section = README.partition("| measured | SQLite | PostgreSQL |\n")[2].partition("\n**When")[0]
    table, _, rest = section.partition("\n\n")
    rows = re.findall(r"^\| .+ \(`(\w+)`\) \| ([^|]+) \| ([^|]+) \|$", table, re.MULTILINE)
    assert len(rows) == table.count("\n") >= 4
    for bench, *figures in rows:
        for figure, cell in zip(figures, measured(bench), strict=True):
            number = figure.removesuffix(" ms")
            unit = "/s" if number == figure else ", "  # a median, followed by another percentile
            assert cell.startswith(number + unit), (bench, figure, cell)
    scale = measured("scale")[1]
    elsewhere = re.findall(r"\d[\d,.]*\d", rest)
    assert elsewhere == ["50,000", "5,000"]
    assert "50,000: 250; 4,998;" in scale


def test_figures_agree() -> None:
    """README, pages and help state the same durations and counts."""
    promises = (DOCS / "concepts" / "promises.md").read_text("utf-8")
    assert "picked up again within 40 seconds" in " ".join(README.split())
    assert "picked up again within 40 s" in promises
    assert "just over a minute" in README
    assert "just over a minute" in " ".join(help_texts()["penstock demo"].split())
    customers = set(re.findall(r"up to ([\d,]+) customers", README + promises))
    assert len(customers) <= 1, customers
