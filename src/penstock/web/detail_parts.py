"""Parts of detail pages: the log, progress and error of a run, a dead letter."""

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
