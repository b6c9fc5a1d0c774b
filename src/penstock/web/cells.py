"""HTML of cells, times, states and icons.

A page has thousands of them, so code writes them and not a template: that takes a tenth of the
time. Every value is escaped here, as the templates escape theirs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final

from markupsafe import Markup, escape

from penstock.web.parts import Cell, TablePanel
from penstock.web.words import SEVERITIES, clock, in_full, visible

MARKS: Final = {
    "f": ("fail", 0, 14, True),
    "r": ("run", 2, 10, True),
    "c": ("ok", 4, 6, True),
    "d": ("deg", 2, 10, True),
}
"""How outcomes are drawn: class, top, height, and whether the corners are round."""
SOFT: Final = ("soft", 6, 2, False)
SLOTS_DRAWN: Final = 24
"""Maximum number of slots that are drawn one by one."""
DOTS: Final = {"complete": "c-complete", "failed": "c-failed"}
_SPECIAL: Final = re.compile("[&<>\"']")


def icon(name: str, css: str = "") -> Markup:
    """Return an icon, which is hidden from screen readers."""
    return Markup(_icon(name, css))  # noqa: S704


def time_tag(at: datetime, now: datetime) -> Markup:
    """Return a time, with its full form as its title."""
    return Markup(_time(at, now))  # noqa: S704


def state_tag(style: str, word: str, css: str = "st") -> Markup:
    """Return a state with its icon."""
    return Markup(_state(style, word, css))  # noqa: S704


def severity_tag(value: str) -> Markup:
    """Return a severity with its icon."""
    return Markup(_severity(value))  # noqa: S704


def outcomes_tag(marks: str) -> Markup:
    """Return the outcomes of the last runs as small bars."""
    return Markup(_outcomes(marks))  # noqa: S704


def slots_tag(counts: Sequence[int], css: str = "") -> Markup:
    """Return slots that are held, free and removed: one by one, or as a bar if there are many."""
    return Markup(_slots(counts, css))  # noqa: S704


def cell_html(cell: Cell, now: datetime) -> Markup:
    """Return the content of a cell."""
    return Markup(_cell(cell, now))  # noqa: S704


def table_rows(panel: TablePanel, now: datetime) -> Markup:
    """Return the rows of a table; narrow screens show the column's title beside each cell."""
    columns = [
        (f'<td class="{_safe(one.css)} ', f'" data-l="{_safe(one.title)}">' if index else '">')
        for index, one in enumerate(panel.columns)
    ]
    made: list[str] = []
    for index, row in enumerate(panel.rows):
        made.append(
            '<tr data-row aria-selected="true">' if index == panel.chosen else "<tr data-row>"
        )
        for (start, end), cell in zip(columns, row, strict=True):
            none = " none" if cell.is_none else ""
            made.append(f"{start}{_safe(cell.css)}{none}{end}{_cell(cell, now)}</td>")
        made.append("</tr>\n")
    return Markup("".join(made))  # noqa: S704


def _safe(value: str) -> str:
    """Return a text with escaped special characters."""
    return value if _SPECIAL.search(value) is None else str(escape(value))


def _shown(value: str) -> str:
    """Return untrusted text as HTML."""
    return _safe(visible(value))


@lru_cache(maxsize=500)
def _icon(name: str, css: str = "") -> str:
    more = f" {_safe(css)}" if css else ""
    return f'<svg class="i{more}" aria-hidden="true"><use href="#{_safe(name)}"/></svg>'


def _time(at: datetime, now: datetime) -> str:
    iso = at.isoformat().replace("+00:00", "Z")
    return f'<time datetime="{iso}" title="{in_full(at)}">{clock(at, now)}</time>'


def _state(style: str, word: str, css: str = "st") -> str:
    drawn = _icon(style)
    return f'<span class="{_safe(css)}" data-s="{_safe(style)}">{drawn}{_safe(word)}</span>'


def _severity(value: str) -> str:
    name, drawn = SEVERITIES.get(value, ("INFO", "info"))
    return f'<span class="sev" data-v="{name}">{_icon(drawn)}{name}</span>'


@lru_cache(maxsize=500)
def _outcomes(marks: str) -> str:
    running = f", {marks.count('r')} running" if "r" in marks else ""
    label = (
        f"last {len(marks)} runs, oldest first: {marks.count('c')} well, "
        f"{marks.count('f')} failed{running}"
    )
    bars = []
    for index, mark in enumerate(marks):
        css, top, height, is_round = MARKS.get(mark, SOFT)
        corner = ' rx="1"' if is_round else ""
        bars.append(
            f'<rect class="{css}" x="{6.3 * index:.1f}" y="{top}" width="4.4" '
            f'height="{height}"{corner}/>'
        )
    return (
        f'<span class="outs"><svg viewBox="0 0 88 14" role="img" aria-label="{label}">'
        f"{''.join(bars)}</svg></span>"
    )


def _slots(counts: Sequence[int], css: str = "") -> str:
    held, free, removed = counts
    total = max(sum(counts), 1)
    more = f" {_safe(css)}" if css else ""
    lost = f", {removed} removed by quota errors" if removed else ""
    if total <= SLOTS_DRAWN:
        drawn = "".join(
            f'<rect class="{"run" if n < held else "soft" if n < held + free else "hat"}" '
            f'x="{100 * n / total + 4 / total:.2f}%" width="{92 / total:.2f}%" height="100%" '
            'rx="2"/>'
            for n in range(total)
        )
    else:
        share = f"{100 * removed / total:.2f}"
        drawn = (
            '<rect class="soft" width="100%" height="100%" rx="4"/>'
            f'<rect class="run" width="{100 * held / total:.2f}%" height="100%" rx="4"/>'
        )
        if removed:
            left = f"{100 - 100 * removed / total:.2f}"
            drawn += f'<rect class="hat" x="{left}%" width="{share}%" height="100%"/>'
    return (
        f'<svg class="slots{more}" role="img" aria-label="{held} held, {free} free{lost}">'
        f"{drawn}</svg>"
    )


def _cell(cell: Cell, now: datetime) -> str:
    small = f"<small>{_shown(cell.small)}</small>" if cell.small else ""
    return f"{_content(cell, now)}{small}"


def _content(cell: Cell, now: datetime) -> str:
    if cell.severity:
        return _severity(cell.severity)
    if cell.state:
        drawn = _state(cell.state, cell.text)
        return f'<a href="{_safe(cell.href)}">{drawn}</a>' if cell.href else drawn
    if cell.at is not None:
        return _time(cell.at, now)
    if cell.slots is not None:
        return _slots(cell.slots)
    if cell.pipe:
        return _dots(cell)
    if cell.marks:
        return _outcomes(cell.marks)
    if cell.spark:
        return (
            f'<svg class="spark" data-s="{_safe(cell.fill or "pending")}" viewBox="0 0 56 16" '
            f'role="img" aria-label="{_safe(cell.text or "trend")}">'
            f'<polyline points="{_safe(cell.spark)}"/></svg>'
        )
    if cell.tag:
        return f'<span class="tag">{_shown(cell.tag)}</span>'
    if cell.share is not None:
        return _meter(cell.share, cell.fill)
    if cell.href:
        css = "btn sm" if cell.href.startswith("/do/") else "mono" if cell.is_mono else ""
        return f'<a class="{css}" href="{_safe(cell.href)}">{_shown(cell.text)}</a>'
    return f'<span class="mono">{_shown(cell.text)}</span>' if cell.is_mono else _shown(cell.text)


def _dots(cell: Cell) -> str:
    made = ['<span class="dots">']
    for one in cell.pipe:
        label = f"{_shown(one.name)}: {_safe(one.word)}"
        made.append(
            f'<span class="c" data-s="{_safe(one.state)}" role="img" aria-label="{label}" '
            f'title="{label}">{_icon(DOTS.get(one.state, one.state))}</span>'
        )
    made.append("</span>")
    return "".join(made)


def _meter(share: float, fill: str) -> str:
    tall = " tall" if fill else ""
    css = fill or ("ok" if share >= 1 else "deg" if share > 0 else "fail")
    width = 0 if fill and not share else max(100 * share, 1.5)
    return (
        f'<svg class="meter{tall}" role="img" aria-label="{math.floor(100 * share)} percent">'
        f'<rect class="{_safe(css)}" width="{width:.2f}%" height="100%"/></svg>'
    )
