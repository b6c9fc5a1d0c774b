"""`python -m tests.release`: what a release needs, one verdict per line; see `make release-check`.

    python -m tests.release --only version,types

What this machine cannot do (an interpreter that it lacks, advisories without a network) is reported
as not run, never as passed. The exit code is 1 if a step failed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.prove.__main__ import REPORT
from tests.prove.proofs import PROOFS, WHOLE
from tests.prove.runner import ROOT, Outcome, adopt_orphans, run

PYTHON: Final = sys.executable
VERSIONS: Final = ("3.12", "3.13", "3.14")
"""Newer versions of Python that the types are checked for; the oldest is in pyproject.toml."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of the check: what it checks, its command, whether it prints figures."""

    name: str
    checks: str
    command: Sequence[str]
    minutes: int = 10
    has_figures: bool = False


STEPS: Final = (
    Step(name="version", checks="version, changelog and versions of Python agree",
         command=(PYTHON, "-m", "tests.release.version"), has_figures=True),
    Step(name="style", checks="formatting and lint",
         command=(PYTHON, "-m", "ruff", "check", "src", "tests", "benchmarks", "examples")),
    *(Step(name=f"types {version}", checks=f"types of the package on Python {version}",
           command=(PYTHON, "-m", "mypy", "--python-version", version, "src"))
      for version in VERSIONS),
    Step(name="wheel", checks="wheel and sdist in clean environments on every Python found",
         command=(PYTHON, "-m", "tests.release.wheels"), minutes=30, has_figures=True),
    Step(name="sbom", checks="the software bill of materials can be written",
         command=("make", "--no-print-directory", "sbom")),
    Step(name="audit", checks="locked dependencies against published advisories",
         command=(PYTHON, "-m", "tests.release.audit", "--pip-audit",
                  ".venv-release/bin/pip-audit"), has_figures=True),
    Step(name="docs", checks="the documentation builds and its links resolve",
         command=("make", "--no-print-directory", "docs")),
    Step(name="deploy", checks="the Dockerfile and the Helm chart pass their own tools",
         command=("make", "--no-print-directory", "test-deploy")),
)  # fmt: skip


def proof_outcome(page: Path = REPORT, root: Path = ROOT) -> Outcome:
    """Return whether the report of `make prove` is whole, of full length, and of this source.

    Whole: every proof of the table holds. Of this source: its commit is known, and the package has
    not changed since.
    """
    text = page.read_text("utf-8") if page.exists() else ""
    minutes = re.search(r"planned for \| ([0-9.]+) minutes", text)
    commit = re.search(r"^\| commit \| ([0-9a-f]{7,40}), [0-9-]+ \|$", text, re.MULTILINE)
    if not text or minutes is None:
        return _refused("there is no report: run make prove")
    held = set(re.findall(r"^\| ([^|]+) \| holds \|", text, re.MULTILINE))
    if missing := [proof.name for proof in PROOFS if proof.name not in held]:
        return _refused(f"the report does not show that these hold: {', '.join(missing)}")
    if float(minutes[1]) < WHOLE:
        return _refused(f"the report is of {minutes[1]} minutes: run make prove")
    if commit is None:
        return _refused("the report is not of one commit without changes: run make prove")
    command = ["git", "diff", "--quiet", commit[1], "HEAD", "--", "src"]
    if subprocess.run(command, cwd=root, capture_output=True, check=False).returncode:
        return _refused(f"src has changed since {commit[1]}, which was proved: run make prove")
    return Outcome(verdict="holds", seconds=0)


def _refused(why: str) -> Outcome:
    return Outcome(verdict="fails", seconds=0, why=why)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("--only", help="parts of names, by comma, such as version,types")
    given = parser.parse_args(arguments)
    words = given.only.split(",") if given.only else [""]
    adopt_orphans()
    failed = 0
    for step in STEPS:
        if not any(word in step.name for word in words):
            continue
        log = ROOT / "build" / "release" / f"{step.name.replace(' ', '-')}.log"
        found = run(step.command, step.minutes * 60, log, needs_figures=step.has_figures)
        failed += _say(step.name, step.checks, found)
    if any(word in "proof" for word in words):
        failed += _say("proof", "the report of make prove", proof_outcome())
    sys.stdout.write("By hand: make test-busy, make test-all, make test-ui; then the checklist.\n")
    return 1 if failed else 0


def _say(name: str, checks: str, found: Outcome) -> int:
    shown = [str(one["skipped"]) for one in found.figures if isinstance(one.get("skipped"), str)]
    notes = "; ".join(filter(None, [found.why, *(shown if found.verdict == "holds" else [])]))
    sys.stdout.write(f"{found.verdict:8} {name:10} {checks}{f' ({notes})' if notes else ''}\n")
    if found.verdict == "fails" and found.tail:
        sys.stdout.write("\n".join(f"    {line}" for line in found.tail.splitlines()[-10:]) + "\n")
    sys.stdout.flush()
    return found.verdict == "fails"


if __name__ == "__main__":
    sys.exit(main())
