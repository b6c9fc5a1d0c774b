"""What a demo claims at its end: sentences checked against the store, and what to try next."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence and whether the store bears it out."""

    title: str
    text: str
    is_true: bool
    numbers: dict[str, Any]

    def record(self) -> dict[str, Any]:
        """The claim for programs."""
        return {"title": self.title, "is_true": self.is_true, "text": self.text, **self.numbers}


def claims_text(head: str, claims: Sequence[Claim], after: Iterable[str]) -> str:
    """The summary for people; a claim that does not hold is never hidden."""
    lines = ["", click.style(head, bold=True), ""]
    for claim in claims:
        mark = click.style("✓", fg="green") if claim.is_true else click.style("✗", fg="red")
        lines += [f"{mark} {click.style(claim.title, bold=True)}", *_wrapped(claim.text)]
    if not all(claim.is_true for claim in claims):
        warning = "A claim does not hold: this is a bug, please report it."
        lines.append(click.style(warning, fg="red"))
    return "\n".join([*lines, "", *after])


def _wrapped(text: str) -> list[str]:
    # click's own wrapping: no further import.
    return click.wrap_text(text, width=96, initial_indent="  ", subsequent_indent="  ").splitlines()


def program() -> str:
    """How this person calls the command line: by its name, or by the way to it."""
    if shutil.which("penstock") is not None:
        return "penstock"
    found = Path(sys.executable).with_name("penstock")
    here = Path.cwd()
    return str(found.relative_to(here)) if found.is_relative_to(here) else str(found)
