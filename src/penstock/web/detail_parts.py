"""Parts of detail pages and side panels: a run, a dead letter, a customer, a limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from penstock.web.parts import Button, Cell, Choice, Empty, Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A log entry of a run, formatted for the page."""

    number: int
    at: datetime
    level: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPanel:
    """The log of a run."""

    kind: ClassVar[str] = "log"
    title: str
    lines: Sequence[LogLine]
    empty: Empty
    note: str = ""
    choices: Sequence[Choice] = ()
    search: str = ""
    total: int = 0
    kept: str = ""
    """Log level that the search form keeps."""
    older: str | None = None
    """Address of the lines before those shown."""
    newest: str | None = None
    """Address of the newest lines, if older ones are shown."""
    is_tail: bool = False
    """Whether new lines are added at the end while the page is open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressPanel:
    """Progress of a run."""

    kind: ClassVar[str] = "progress"
    title: str
    text: str
    figures: Sequence[Figure]
    share: float | None = None
    note: str = ""
    heartbeat: str = ""
    left: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterPanel:
    """A dead letter: its cause, its content, and its replay actions."""

    kind: ClassVar[str] = "letter"
    title: str
    state: str
    word: str
    text: str
    facts: Sequence[tuple[str, Cell]]
    body_title: str
    body: str
    buttons: Sequence[Button]
    command: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPanel:
    """An error: its type, its message, and the full details."""

    kind: ClassVar[str] = "error"
    title: str
    state: str
    word: str
    text: str
    body: str
    tag: str = ""
    foot: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigLine:
    """A config of the customer that is open: its schedule, last outcomes and next start."""

    name: str
    href: str
    state: str
    word: str
    schedule: str
    kind: str = ""
    """Provider and domain."""
    outcomes: str = ""
    next_at: datetime | None = None
    small: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomerPanel:
    """A customer opened beside the list: key figures, configs, next starts."""

    kind: ClassVar[str] = "customer"
    title: str
    href: str
    state: str
    word: str
    figures: Sequence[Figure]
    text: str
    configs: Sequence[ConfigLine]
    buttons: Sequence[Button]
    command: str
    more: str = ""
    """How many configs are not listed."""
    starts_of: str = ""
    starts: Sequence[tuple[str, str, str]] = ()
    """Local time, UTC and note of each next start."""
    actions: Sequence[Button] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitPanel:
    """A limit: its slots as segments, waiting times and the learned capacity over time."""

    kind: ClassVar[str] = "limit"
    title: str
    name: str
    href: str
    text: str
    slots: tuple[int, int, int] | None
    """Slots that are held, free, and removed by learned capacity; None for a rate."""
    figures: Sequence[tuple[str, str]]
    command: str
    note: str = ""
    steps: str = ""
    """Points of the capacity over time, in a box of 100 × 100."""
    steps_label: str = ""
    steps_ends: tuple[str, str] = ("", "")
    """Labels of the start and the end of the time axis."""
    actions: Sequence[Button] = ()
