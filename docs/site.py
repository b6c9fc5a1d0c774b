"""Hooks of the documentation site: pages of the repository's root, and what links leave the site.

`mkdocs.yml` names this file. The pages are Markdown that also reads well in a clone, so links to
files outside `docs` are relative there; in the site they become pages or plain text.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ADDED = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Pages of the repository's root that the site contains."""
ORDER = ("Tutorial", "Concepts", "How to", "Operations", "Reference")
"""Sections of the navigation, after the index and before all other pages."""
_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)([^)#]+)(#[^)]*)?\)")
_DECISIONS = re.compile(r"\[([^\]]+)\]\((?:\.\./)*decisions/\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root."""
    for name in ADDED:
        files.append(File.generated(config, name, content=(ROOT / name).read_text("utf-8")))
    return files


def on_nav(nav: Any, **_: Any) -> Any:
    """Order the navigation as a reader needs it: learn, look up, then the background."""
    first = {"index.md": -1} | {title: number for number, title in enumerate(ORDER)}

    def position(item: Any) -> tuple[int, bool]:
        name = item.title if item.is_section else item.file.src_uri
        return first.get(name, len(ORDER)), bool(item.is_section)

    for item in nav.items:
        if item.is_page and item.file.src_uri == "index.md":
            item.title = "Home"  # the name of the site is above it
    nav.items.sort(key=position)
    return nav


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Turn links out of `docs` into links to added pages, or into text."""
    here = Path(config["docs_dir"]) / page.file.src_uri
    if page.file.src_uri in ADDED:
        return re.sub(r"\]\(docs/", "](", _out_of_site(markdown, ROOT, ""))
    up = "../" * (len(Path(page.file.src_uri).parts) - 1)
    plain = _DECISIONS.sub(r"\1", markdown)
    return _out_of_site(plain, here.parent, up)


def _out_of_site(markdown: str, folder: Path, up: str) -> str:
    docs = ROOT / "docs"

    def replace(found: re.Match[str]) -> str:
        text, climb, rest, anchor = found.groups()
        target = (folder / (climb + rest)).resolve()
        if target.parent == ROOT and target.name in ADDED:
            return f"[{text}]({up}{target.name}{anchor or ''})"
        return found.group(0) if target.is_relative_to(docs) else text

    return _LINK.sub(replace, markdown)
