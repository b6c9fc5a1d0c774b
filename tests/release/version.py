"""Version and changelog: what must agree before a release.

    python -m tests.release.version

A version that ends in `.dev` and a number is under development: its changes are in Unreleased. A
release has a section of its own in the changelog, with its date, and nothing in Unreleased.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
VERSION: Final = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?(?:\.dev\d+)?")
_SECTION: Final = re.compile(r"^## (.+)$", re.MULTILINE)
_DATED: Final = re.compile(r"(\S+) - \d{4}-\d{2}-\d{2}")
KINDS: Final = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
_KIND: Final = re.compile(r"^### (.+)$", re.MULTILINE)


def version_faults(version: str, changelog: str) -> list[str]:
    """Return what is wrong with a version and its changelog."""
    if not VERSION.fullmatch(version):
        return [f"{version} is not a version such as 1.2.3, 1.2.3rc1 or 1.2.3.dev0"]
    sections = {m[1]: changelog[m.end() :] for m in _SECTION.finditer(changelog)}
    names = list(sections)
    faults = [f"the changelog has the unknown heading {kind!r}"
              for kind in _KIND.findall(changelog) if kind not in KINDS]  # fmt: skip
    if names[:1] != ["Unreleased"]:
        faults.append("the changelog does not begin with Unreleased")
    wrong = [name for name in names[1:] if not _DATED.fullmatch(name)]
    faults += [f"the section {name!r} is not VERSION - YYYY-MM-DD" for name in wrong]
    if ".dev" in version:
        return faults
    pending = changelog.partition("## Unreleased")[2].partition("\n## ")[0]
    if pending.strip():
        faults.append(f"{version} is a release, but Unreleased has lines: move them")
    released = [found[1] for name in names[1:] if (found := _DATED.fullmatch(name))]
    if released[:1] != [version]:
        faults.append(f"the newest section of the changelog is not {version}")
    return faults


def python_faults(project: dict[str, Any], oldest: str = "3.11") -> list[str]:
    """Return where the declared versions of Python disagree."""
    marks = [c.rpartition(" ")[2] for c in project["classifiers"] if re.search(r":: 3\.\d+$", c)]
    faults = [] if project["requires-python"] == f">={marks[0]}" else ["requires-python"]
    faults += [] if marks[0] == oldest else [f"the oldest classifier is {marks[0]}"]
    numbers = [int(mark.partition(".")[2]) for mark in marks]
    is_row = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return faults if is_row else [*faults, f"classifiers leave out a version: {marks}"]


def main() -> int:
    """Print the version and what is wrong; return 1 if anything is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    faults = version_faults(project["version"], changelog) + python_faults(project)
    sys.stdout.write(json.dumps({"version": project["version"], "faults": faults}) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
