"""Charts as inline SVG: bars by day, bars by name, a heat map. Pure; colours are CSS classes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

WIDTH: Final = 640
LEFT: Final = 44
BOTTOM: Final = 22
TOP: Final = 10


class Series(NamedTuple):
    """One series of a stacked bar chart, with its colour."""

    name: str
    css: str
    values: Sequence[float]


def stacked_bars(labels: Sequence[str], series: Sequence[Series], *, height: int = 170) -> str:
    """Return bars by label, stacked, with the scale at the left and a title for each bar."""
    totals = [sum(one.values[n] for one in series) for n in range(len(labels))]
    top = nice_top(max(totals, default=0))
    space = height - TOP - BOTTOM
    step = (WIDTH - LEFT) / max(1, len(labels))
    bar = min(46.0, step * 0.7)
    parts = [_grid(top, space)]
    for n, label in enumerate(labels):
        x = LEFT + n * step + (step - bar) / 2
        y = float(TOP + space)
        words = ", ".join(f"{one.values[n]:,.0f} {one.name}" for one in series)
        inner = ""
        for one in series:
            size = one.values[n] / top * space
            if size > 0:
                y -= size
                inner += (
                    f'<rect class="{one.css}" x="{x:.1f}" y="{y:.1f}" width="{bar:.1f}" '
                    f'height="{max(size, 1):.1f}" rx="2"/>'
                )
        parts.append(f"<g><title>{escape(label)}: {escape(words)}</title>{inner}</g>")
        if len(labels) <= 16 or n % (len(labels) // 8) == 0:
            parts.append(_text(x + bar / 2, height - 6, label[5:] or label, "middle"))
    return _svg(height, parts, "; ".join(one.name for one in series) + " by day")


def named_bars(
    rows: Sequence[tuple[str, float, float | None]], *, css: str = "bad", unit: str = ""
) -> str:
    """Return a bar for each name; the second value, of the previous period, is drawn as a mark."""
    top = max((max(value, before or 0) for _, value, before in rows), default=0) or 1
    left, row_height = 230, 24
    space = WIDTH - left - 60
    parts = []
    for n, (name, value, before) in enumerate(rows):
        y = TOP + n * row_height
        size = max(1.0, value / top * space)
        mark = 0.0 if before is None else before / top * space
        past = "" if before is None else f", {before:,.0f} before"
        shown = name if len(name) <= 34 else name[:33] + "…"
        parts.append(
            f"<g><title>{escape(name)}: {value:,.0f}{unit}{past}</title>"
            + _text(left - 8, y + 13, shown, "end")
            + f'<rect class="{css}" x="{left}" y="{y + 2}" width="{size:.1f}" height="14" '
            'rx="2"/>' + _text(left + max(size, mark) + 6, y + 13, f"{value:,.0f}{unit}", "start")
        )
        if before is not None:
            x = left + mark
            parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{y}" y2="{y + 18}"/>')
        parts.append("</g>")
    return _svg(TOP + len(rows) * row_height + 4, parts, "counts by name")


def heat_map(
    columns: Sequence[str], rows: Sequence[tuple[str, Sequence[tuple[str, str, str] | None]]]
) -> str:
    """Return a grid of cells, each with a CSS class, a text and a title."""
    left, row_height = 250, 24
    step = min(70.0, (WIDTH - left) / max(1, len(columns)))
    parts = []
    for n, label in enumerate(columns):
        parts.append(_text(left + (n + 0.5) * step, 14, label, "middle"))
    for row, (name, cells) in enumerate(rows):
        y = 22 + row * row_height
        shown = name if len(name) <= 36 else "…" + name[-35:]
        parts.append(_text(left - 8, y + 15, shown, "end"))
        for n, cell in enumerate(cells):
            if cell is None:
                continue
            css, text, title = cell
            x = left + n * step
            parts.append(
                f'<g><title>{escape(title)}</title><rect class="{css}" x="{x + 1:.1f}" y="{y}" '
                f'width="{step - 2:.1f}" height="{row_height - 2}" rx="3"/>'
                + (_text(x + step / 2, y + 15, text, "middle", "on") if step >= 26 else "")
                + "</g>"
            )
    return _svg(26 + len(rows) * row_height, parts, "heat map")


def nice_top(value: float) -> float:
    """Return a round number at or above a value, for the top of a scale."""
    if value <= 0:
        return 1.0
    unit = 1.0
    while unit * 10 <= value:
        unit *= 10
    return next(n * unit for n in (1, 2, 3, 4, 5, 6, 8, 10) if n * unit >= value)


def _grid(top: float, space: int) -> str:
    parts = []
    for share in (0, 0.5, 1):
        y = TOP + space * (1 - share)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        if share in (0, 1) or top > 1:
            parts.append(_text(LEFT - 6, y + 4, f"{top * share:,.10g}", "end"))
    return "".join(parts)


def _text(x: float, y: float, text: str, anchor: str, css: str = "label") -> str:
    return (
        f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def _svg(height: int, parts: Sequence[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )
