"""An action: its fields, function and command. One function serves preview and execution.

The preview executes the action as a dry run, in which every change is rolled back; it shows the
effect of the action or why it would be rejected.
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
    """Outcome of an action; in a preview, the expected outcome."""

    text: str
    rows: Sequence[tuple[str, str]] = ()
    links: Sequence[tuple[str, str]] = ()
    count: int | None = None
    """Number of matching items, for actions on all that match."""
    acted: int = 0
    """Number of items that it changes."""
    is_nothing: bool = False
    """Whether the action would have no effect."""
    is_asked: bool = False
    """Whether no field is filled in yet, so that nothing was done."""
    following: Values = field(default_factory=dict)
    """Values with which the action continues; empty if nothing is left to do."""
    following_label: str = ""
    """Label of the button that continues without another preview."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionField:
    """An input field of an action."""

    name: str
    label: str
    hint: str = ""
    is_required: bool = False
    is_long: bool = False
    stand_in: str = ""
    """Value used in the preview while the field is empty."""


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
    """Names of the values that identify the action's subject; the preview binds them."""
    fields: Sequence[ActionField] = ()
    preview: Callable[[UseCaseGroups, Values], DeedOutcome] | None = None
    """Returns the expected outcome; by default `deed` is executed and rolled back."""
    count: Callable[[UseCaseGroups, Values], int] | None = None
    """Counts the matching items, to compare them with the preview; by default the preview does."""
    is_for_all: Callable[[Values], bool] = field(default=lambda _: False)
    """Whether it concerns all customers if the caller is not bound to one."""
    filled: Callable[[UseCaseGroups, Values], Values] = field(default=lambda _, values: values)
    """Fills fields from stored values, for the first preview."""
    is_form: bool = False
    """Whether its fields are asked for first, and again if a value is invalid."""
    is_final: bool = False
    """Whether it cannot be undone."""
    is_slow: bool = False
    """Whether it may take minutes, so that it runs in a thread that other requests do not need."""
    nav: str = ""


def command_line(*words: str, **options: str | None) -> str:
    """Return the equivalent command line; options without a value are omitted."""
    parts = ["penstock", *words]
    for name, value in options.items():
        if value:
            parts += [f"--{name.replace('_', '-')}", value]
    return shlex.join(parts)
