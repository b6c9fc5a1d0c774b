"""What an action is: its fields, its deed, its command. One function serves preview and deed.

The preview runs the deed in a dry run, in which every change is rolled back; it shows what the deed
would do or why it would be refused.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.client import UseCaseGroups

Values: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeedOutcome:
    """What a deed did, or in a preview would do."""

    text: str
    rows: Sequence[tuple[str, str]] = ()
    links: Sequence[tuple[str, str]] = ()
    count: int | None = None
    """How many things it concerns, for deeds over all that match."""
    acted: int = 0
    """How many of them it changes."""
    is_nothing: bool = False
    """Whether there is nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionField:
    """Something that the person fills in."""

    name: str
    label: str
    hint: str = ""
    is_required: bool = False
    is_long: bool = False
    stand_in: str = ""
    """Used in the preview while the field is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action of the pages."""

    name: str
    question: Callable[[Values], str]
    label: Callable[[DeedOutcome], str]
    deed: Callable[[UseCaseGroups, Values], DeedOutcome]
    command: Callable[[Values], str]
    back: Callable[[Values], str]
    fixed: Sequence[str] = ()
    """Names of the values that say what the action is about; the preview binds them."""
    fields: Sequence[ActionField] = ()
    filled: Callable[[UseCaseGroups, Values], Values] = field(default=lambda _, values: values)
    """Fills fields from what is stored, for the first preview."""
    is_final: bool = False
    """Whether it cannot be undone."""
    nav: str = ""


def command_line(*words: str, **options: str | None) -> str:
    """Return a command of the command line; options without a value are left out."""
    parts = ["penstock", *words]
    for name, value in options.items():
        if value:
            parts += [f"--{name.replace('_', '-')}", value]
    return shlex.join(parts)
