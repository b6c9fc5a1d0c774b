"""The parts of pages; templates render each kind in one way.

A page is a heading with a sentence, then panels. Every text in a part is untrusted: templates
escape it, and it never becomes an address. Addresses are built by `address` only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import quote, urlencode

from penstock.web.words import NOTHING, appearance, word


def address(*path: str, **query: Any) -> str:
    """Return a path of this server; parts and values are encoded, empty values are left out."""
    base = "/" + "/".join(quote(str(part), safe="") for part in path)
    chosen = {name: str(value) for name, value in query.items() if value not in (None, "")}
    return f"{base}?{urlencode(chosen)}" if chosen else base


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A phase in the pipe of a flow, with the verdict of the gate before it."""

    name: str
    state: str
    word: str
    gate: str = ""
    is_here: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One value: a text, a link, a time, a state or a share, with a second line."""

    text: str = ""
    href: str | None = None
    small: str = ""
    at: datetime | None = None
    state: str = ""
    """Style of a state, drawn with its icon."""
    severity: str = ""
    share: float | None = None
    """0 to 1, drawn as a bar."""
    fill: str = ""
    """Colour of the bar; derived from its share by default."""
    spark: str = ""
    """Points of a sparkline."""
    marks: str = ""
    """Outcomes of the last runs, oldest first: c completed, f failed, r running, d degraded."""
    slots: tuple[int, int, int] | None = None
    """Slots that are held, free, and removed by learned capacity."""
    tag: str = ""
    """Label shown in a frame."""
    pipe: Sequence[Segment] = ()
    """Phases of a flow, drawn as small marks."""
    is_mono: bool = False
    css: str = ""

    @property
    def is_none(self) -> bool:
        """Whether there is nothing to show; narrow screens omit such a cell."""
        is_drawn = self.at or self.spark or self.marks or self.slots or self.pipe or self.tag
        return (
            self.text in ("", NOTHING)
            and not is_drawn
            and not self.small
            and not self.severity
            and self.share is None
        )


def text(value: Any, *, small: str = "", css: str = "") -> Cell:
    """Return a cell with a text."""
    return Cell(text="" if value is None else str(value), small=small, css=css)


def state_cell(state: str | None, href: str | None = None, small: str = "") -> Cell:
    """Return a cell with the icon and the word of a state."""
    return Cell(text=word(state), state=appearance(state), href=href, small=small)


def time_cell(at: datetime | None, *, small: str = "", css: str = "dim nw") -> Cell:
    """Return a cell that shows a time, or a dash for None."""
    return Cell(at=at, small=small, css=css, text="" if at else "–")


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    """A link that looks like a button."""

    label: str
    href: str
    css: str = ""
    icon: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """Text of an empty panel, with a suggested command."""

    title: str
    text: str
    icon: str = "info"
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """Title and style of a table column."""

    title: str
    css: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePanel:
    """Rows of cells."""

    kind: ClassVar[str] = "table"
    title: str
    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[Cell]]
    empty: Empty
    note: str = ""
    more: str | None = None
    """Address of the next page."""
    actions: Sequence[Button] = ()
    chosen: int | None = None
    """Index of the row that is open next to the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePanel(TablePanel):
    """The decision of a gate as text, with its evidence."""

    kind: ClassVar[str] = "gate"
    state: str = ""
    word: str = ""
    count: str = ""
    text: str = ""
    figures: Sequence[tuple[str, str, bool]] = ()
    """Name, value, and whether the value is insufficient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsPanel:
    """Labels and values."""

    kind: ClassVar[str] = "facts"
    title: str
    facts: Sequence[tuple[str, Cell]]
    actions: Sequence[Button] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseLine:
    """One line of a tree of causes."""

    depth: int
    icon: str
    text: str
    small: str = ""
    clears: str = ""
    at: datetime | None = None
    """Earliest time at which it can clear."""
    is_root: bool = False
    button: Button | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePanel:
    """A tree of causes: each line is the cause of the one above it."""

    kind: ClassVar[str] = "tree"
    title: str
    causes: Sequence[CauseLine]
    earliest: datetime | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One line of a feed."""

    at: datetime
    icon: str
    text: str
    href: str | None = None
    small: str = ""
    detail: str = ""
    """Second line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPanel:
    """A feed of events, newest or oldest first."""

    kind: ClassVar[str] = "feed"
    title: str
    rows: Sequence[Happening]
    note: str = ""
    more: str | None = None
    """Address of the next page."""
    actions: Sequence[Button] = ()
    empty: str = "Nothing yet."


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A suggested action, with its command and, if a page performs it, its address."""

    text: str
    command: str
    title: str = ""
    button: Button | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaysPanel:
    """Suggested commands."""

    kind: ClassVar[str] = "ways"
    title: str
    ways: Sequence[Way]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotePanel:
    """A highlighted note."""

    kind: ClassVar[str] = "note"
    text: str
    state: str = ""
    title: str = ""
    small: str = ""
    actions: Sequence[Button] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPanel:
    """Untrusted text shown unchanged: data, a traceback."""

    kind: ClassVar[str] = "text"
    title: str
    text: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One key figure."""

    label: str
    value: str
    small: str = ""
    href: str | None = None
    spark: str = ""
    """Points of a small line beside the value."""
    tone: str = ""
    """Style of the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FiguresPanel:
    """Key figures in a row."""

    kind: ClassVar[str] = "figures"
    title: str
    figures: Sequence[Figure]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLine:
    """A flow as a line with its pipe, or a cohort of runs with its bar."""

    title: str
    href: str
    state: str
    word: str
    note: str = ""
    pipe: Sequence[Segment] = ()
    bars: Sequence[Any] = ()
    bar_label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowsPanel:
    """Flows as pipes, cohorts as bars."""

    kind: ClassVar[str] = "flows"
    title: str
    lines: Sequence[FlowLine]
    empty: Empty
    note: str = ""
    foot: str = ""
    actions: Sequence[Button] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedLine:
    """An item that needs attention."""

    severity: str
    text: str
    href: str
    small: str = ""
    age: str = ""
    buttons: Sequence[Button] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsPanel:
    """Items that need attention, most severe first."""

    kind: ClassVar[str] = "needs"
    title: str
    needs: Sequence[NeedLine]
    empty: Empty
    total: int = 0
    foot: str = ""
    more: str = ""
    """Address that the foot links to."""
    actions: Sequence[Button] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertLine(NeedLine):
    """An alert with its command."""

    rule: str
    since: str
    command: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertsPanel:
    """Alerts, worst first."""

    kind: ClassVar[str] = "alerts"
    title: str
    lines: Sequence[AlertLine]
    empty: Empty
    more: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """A step on the path of a change or an entity."""

    state: str
    name: str
    text: str
    small: str = ""
    at: datetime | None = None
    href: str | None = None
    is_missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPanel:
    """The path of a change or an entity, then the missing steps."""

    kind: ClassVar[str] = "path"
    title: str
    steps: Sequence[PathStep]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConclusionPanel:
    """The answer to a question, before its evidence."""

    kind: ClassVar[str] = "answer"
    state: str
    text: str
    small: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of several views of a page."""

    label: str
    href: str
    is_current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with its input field."""

    id: str
    title: str
    text: str
    action: str
    placeholder: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPanel:
    """Questions, each with its form."""

    kind: ClassVar[str] = "ask"
    title: str
    questions: Sequence[Question]


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelRow:
    """Panels side by side."""

    kind: ClassVar[str] = "row"
    panels: Sequence[Any]
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter of a list: a field, or a choice."""

    name: str
    label: str
    value: str = ""
    options: Sequence[tuple[str, str]] = ()
    hint: str = ""
    """What a field expects, shown while it is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Views of which one is current."""

    label: str
    choices: Sequence[Choice]


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A part of a sentence that links to a page."""

    text: str
    href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """The page before or after this one: `rel` is prev or next, as in HTML."""

    rel: str
    href: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPage:
    """A page: its navigation entry, summary, actions and panels."""

    title: str
    nav: str
    """Name of the navigation entry."""
    heading: str = ""
    crumbs: Sequence[tuple[str, str]] = ()
    state: str = ""
    word: str = ""
    sentence: str | Sequence[str | Link] = ""
    actions: Sequence[Button] = ()
    neighbours: Sequence[Neighbour] = ()
    choices: Sequence[Choice] = ()
    filters: Sequence[Filter] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    """Query values that the filter form keeps."""
    tools: Sequence[Choices] = ()
    """Choices next to the filters."""
    columns: str = ""
    """Style of the two columns; empty for a wide and a narrow one."""
    pipe: Sequence[Segment] = ()
    top: Sequence[Any] = ()
    main: Sequence[Any] = ()
    side: Sequence[Any] = ()
    below: Sequence[Any] = ()
    is_live: bool = True
    status: int = 200
