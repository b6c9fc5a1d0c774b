"""Every file of the repository keeps the rules, which the tests beside this one prove on snippets.

One test reads all files: to parse a module takes longer than any rule, and here all of them share
what was parsed.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy import files, references, retired, words
from tests.tidy.deadlines import short_deadlines

pytestmark = pytest.mark.repository
ROOT = Path(__file__).parents[2]
CODE_FOLDERS = ("src/", "tests/", "benchmarks/", "examples/")
READ = {
    "Makefile",
    "README.md",
    "docs/architecture.md",
    "src/penstock/__init__.py",
    "tests/tidy/test_repository.py",
}


def test_every_file() -> None:
    """Sizes, calls, SQL, texts, titles, retired words, deadlines of tests, and references."""
    sources = files.sources_read(ROOT)
    assert {source.path for source in sources} >= READ
    for part in words.SCANNED:
        assert any(source.path.startswith(part) for source in sources), part
    assert sum(source.path.startswith("tests/") for source in sources) > 200
    assert [fault for source in sources for fault in faults(source.path, source.text)] == []
    pictures = (ROOT / "docs" / "pictures").glob("*.webp")
    repository = {source.path: source.text for source in sources}
    repository |= {path.relative_to(ROOT).as_posix(): "" for path in pictures}
    assert [fault for rule in references.RULES for fault in rule(repository)] == []


def faults(path: str, text: str) -> Iterator[str]:
    """Return what one file does not keep."""
    yield from files.text_faults(path, text)
    if path.endswith(".md"):
        yield from files.title_faults(path, text)
    if path.endswith(".py") and path.startswith(CODE_FOLDERS):
        references.docstrings(text)  # kept for the references, while its tree is there
        for found in files.module_faults(path, text).values():
            yield from found
        if path.startswith("tests/"):
            yield from short_deadlines(path, text)
    yield from map(str, words.uses(path, text, retired.RULES))
