"""The claims of a demo's summary, each checked against the store."""

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
    """A statement of the summary, whether the store confirms it, and the numbers behind it."""

    title: str
    text: str
    is_true: bool
    numbers: dict[str, Any]

    def record(self) -> dict[str, Any]:
        """Return the claim as JSON."""
        return {"title": self.title, "is_true": self.is_true, "text": self.text, **self.numbers}


def claims_text(head: str, claims: Sequence[Claim], after: Iterable[str]) -> str:
    """Return the summary as text; claims that do not hold are marked and reported as a bug."""
    lines = ["", click.style(head, bold=True), ""]
    for claim in claims:
        mark = click.style("✓", fg="green") if claim.is_true else click.style("✗", fg="red")
        lines += [f"{mark} {click.style(claim.title, bold=True)}", *_wrapped(claim.text)]
    if not all(claim.is_true for claim in claims):
        warning = "A claim does not hold: this is a bug, please report it."
        lines.append(click.style(warning, fg="red"))
    return "\n".join([*lines, "", *after])


def _wrapped(text: str) -> list[str]:
    # click is loaded already; textwrap would be another import.
    return click.wrap_text(text, width=96, initial_indent="  ", subsequent_indent="  ").splitlines()


def program() -> str:
    """Return how to call penstock from this shell: by name if it is on PATH, else by path."""
    if shutil.which("penstock") is not None:
        return "penstock"
    found = Path(sys.executable).with_name("penstock")
    here = Path.cwd()
    return str(found.relative_to(here)) if found.is_relative_to(here) else str(found)
