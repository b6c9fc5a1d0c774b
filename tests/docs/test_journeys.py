"""docs/architecture.md is true: its map has every package, its journeys name existing code."""

import ast
import re
from pathlib import Path

import pytest

from tests.tidy.imports import SUBJECTS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = ROOT / "src" / "penstock"
_STEP = re.compile(r"^(\d+)\. `([^`:]+\.py): ([\w.]+)` (.+)$")
STEPS_MIN, STEPS_MAX = 7, 15


def journeys(text: str) -> dict[str, list[tuple[str, str]]]:
    """Return the numbered lists below `## Journeys`: title → (file, function) in order.

    A list that starts at 1 again under the same title is a second part of the journey.
    """
    section = text.partition("\n## Journeys\n")[2].partition("\n## ")[0]
    found: dict[str, list[tuple[str, str]]] = {}
    title = ""
    for line in section.splitlines():
        if line.startswith("### "):
            title = line.removeprefix("### ")
        elif line[:1].isdigit():
            step = _STEP.match(line)
            assert step, f"expected 'N. `file.py: function` clause', got {line!r}"
            key = title
            if step[1] == "1" and title in found:
                key = title = f"{title}, continued"
            found.setdefault(key, []).append((step[2], step[3]))
            assert int(step[1]) == len(found[key]), f"wrong number: {line!r}"
    return found


def names_defined(source: str) -> set[str]:
    """Return functions, classes, methods and module-level values of a module."""
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{part.name}"
                for part in node.body
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return names


JOURNEYS = journeys(PAGE.read_text(encoding="utf-8"))


def test_the_map_lists_every_package_in_import_order() -> None:
    """`routes` and `commands` are the `api.py` and `cli.py` of the subjects, not packages."""
    table = PAGE.read_text(encoding="utf-8").partition("\n## Map of the packages\n")[2]
    rows = table.partition("| --- | --- |\n")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in rows.splitlines()]
    listed = [name.removesuffix(".py") for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    present = [
        name for name in SUBJECTS if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()
    ]
    assert listed == present


def test_the_journeys_are_read() -> None:
    assert list(JOURNEYS) == [
        "Submit to history",
        "Submit to history, continued",
        "Occurrence to run",
        "Publish to dead letter",
        "Completion to next phase",
        "Slot of a limit",
    ]


@pytest.mark.parametrize("title", JOURNEYS)
def test_every_step_exists(title: str) -> None:
    steps = JOURNEYS[title]
    assert STEPS_MIN <= len(steps) <= STEPS_MAX
    missing = [
        f"{file}: {name}"
        for file, name in steps
        if not (PACKAGE / file).is_file()
        or name not in names_defined((PACKAGE / file).read_text(encoding="utf-8"))
    ]
    assert missing == []


@pytest.mark.parametrize(
    "line",
    ["1. runs/api.py: submit", "2. `runs/api.py: submit` starts at two", "1. `a.py` no name"],
)
def test_a_malformed_step_is_detected(line: str) -> None:
    with pytest.raises(AssertionError):
        journeys(f"# A\n\n## Journeys\n\n### One\n\n{line}\n\n## Next\n")
