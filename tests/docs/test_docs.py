"""Every Python block of the how-to pages runs, and every relative link resolves."""

import functools
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SERVED = ("use-the-api.md", "work-over-a-url.md")  # these need a server: see test_served.py
BROKERS = ("google-pubsub.md", "nats.md")  # see test_brokers.py and tests/pubsub_wire
HOW_TO = [
    *(p for p in sorted((ROOT / "docs" / "how-to").glob("*.md")) if p.name not in SERVED + BROKERS),
    *(ROOT / "docs" / "concepts" / f"{name}.md" for name in ("gates", "modes", "partitions")),
    ROOT / "docs" / "operations" / "recovery.md",
    ROOT / "docs" / "reference" / "python.md",
]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def blocks(text: str) -> list[tuple[int, str]]:
    """Return the Python blocks of a page, each with the number of lines before it."""
    return [
        (text.count("\n", 0, found.start(2)), found[2])
        for found in _FENCED.finditer(text)
        if found[1] == "python"
    ]


@functools.cache
def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings."""
    heads = re.findall(r"^#+ (.+)$", _FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def broken_links(page: Path) -> list[str]:
    """Return the relative links of a page whose file or heading does not exist."""
    text = page.read_text("utf-8")
    broken = []
    for link in _LINK.findall(_CODE.sub("", _FENCED.sub("", text))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.name)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run one after another, in one namespace and an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_DATABASE_URL", raising=False)
    monkeypatch.setattr("penstock.core.error_classification.DEFAULT._rules", ())
    module = ModuleType(f"docs_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    found = blocks(page.read_text("utf-8"))
    assert found
    for before, code in found:
        # Tracebacks then show the line numbers of the page.
        exec(compile("\n" * before + code, str(page), "exec"), vars(module))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    """A relative link names a file, or a heading in it, that exists."""
    assert broken_links(page) == []


def test_a_broken_link_is_detected(tmp_path: Path) -> None:
    """Missing files and headings are reported; code and URLs are ignored."""
    (tmp_path / "b.md").write_text("# Two words\n")
    page = tmp_path / "a.md"
    page.write_text(
        "# A\n[x](b.md#two-words) [x](b.md#three) [x](c.md) `[x](d.md)` [x](https://e.f)\n"
        "```python\n[x](g.md)\n```\n"
    )
    assert broken_links(page) == ["b.md#three", "c.md"]
