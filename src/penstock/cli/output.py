"""Format output as text: times with relative hints, durations, tables and states.

The inputs are values of records, which `--json` prints unchanged. rich is
imported when the first table is printed.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.layout.fitting import EMPTY, FittedTable, fit_table
from penstock.core.clock import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    from_datetime,
    shown_datetime,
)

if TYPE_CHECKING:
    from rich.console import Console

TABLE_WIDTH = 5_000
COLOURS = {
    "COMPLETED": "green", "FAILED": "red", "TIMEOUT": "red", "CANCELLED": "yellow",
    "EXPIRED": "red",
    "RUNNING": "cyan", "CLAIMED": "cyan", "HIGH": "red", "CRITICAL": "red", "MEDIUM": "yellow",
    "OK": "green", "WARN": "yellow", "FAIL": "red", "open": "red", "dead": "red", "off": "yellow",
}  # fmt: skip


def format_time(at: datetime | int | None, now: int | None = None) -> str:
    """Format a time as UTC to the second; with `now`, add the relative time. None is `-`."""
    if at is None:
        return "-"
    us = _micros(at)
    text = shown_datetime(us).strftime("%Y-%m-%d %H:%M:%SZ")
    return text if now is None else f"{text} ({format_relative(us - now)})"


def format_time_short(at: datetime | int | None, now: int) -> str:
    """Format a time for a table: without the date if it is the same day as `now`."""
    if at is None:
        return "-"
    us = _micros(at)
    form = "%H:%MZ" if us // DAY == now // DAY else "%m-%d %H:%MZ"
    return f"{shown_datetime(us).strftime(form)} ({format_relative(us - now)})"


def _micros(at: datetime | int) -> int:
    return from_datetime(at) if isinstance(at, datetime) else at


def format_relative(us: int) -> str:
    """Format a time difference: `in 4 min`, `2 h ago`, or `now` below a second."""
    if abs(us) < SECOND:
        return "now"
    text = format_span(abs(us))
    return f"in {text}" if us > 0 else f"{text} ago"


def format_span(span: timedelta | int | None) -> str:
    """Format a duration in one unit: `350 ms`, `42 s`, `4 min`, `3 h`, `2 d`. None is `-`."""
    if span is None:
        return "-"
    us = span // timedelta(microseconds=1) if isinstance(span, timedelta) else span
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s")):
        if us >= 2 * unit or (us >= unit and unit != DAY):
            return f"{us / unit:.0f} {name}" if us >= 10 * unit else f"{us / unit:.2g} {name}"
    return f"{us / 1000:.0f} ms"


def markup_state(word: str) -> str:
    """Return a word as rich markup in the colour of its state, or unchanged if it has none."""
    colour = COLOURS.get(word)
    return f"[{colour}]{word}[/{colour}]" if colour else word


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str = "",
    secondary: Sequence[str] = (),
) -> None:
    """Print a table with one line per row; on a terminal, fitted to its width.

    A terminal that is too narrow gets the table without columns named in `secondary`.
    """
    # Imported here because importing rich takes 100 ms.
    from rich.table import Table

    texts = [[EMPTY if value in (None, "") else escape_control(str(value)) for value in row]
             for row in rows]  # fmt: skip
    shown = FittedTable(list(columns), texts)
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        shown = fit_table(columns, texts, width, secondary)
    made = Table(box=None, pad_edge=False, padding=(0, shown.gap, 0, 0), header_style="bold",
                 title=title or None, title_justify="left", title_style="bold")  # fmt: skip
    for column in shown.columns:
        made.add_column(column, no_wrap=True)
    for row in shown.rows:
        made.add_row(*map(_cell, row))
    wide = console(TABLE_WIDTH)
    with wide.capture() as drawn:
        wide.print(made)
    click.echo("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def print_facts(pairs: Sequence[tuple[str, object]]) -> None:
    """Print aligned name and value pairs, one per line; omit empty values."""
    shown = [(name, _plain(value)) for name, value in pairs if value not in (None, "", "-")]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"  {name:<{width}}  {value}")


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return escape_control(json.dumps(value) if isinstance(value, dict | list) else str(value))


def escape_control(text: str) -> str:
    """Return text from users as one line that cannot control the terminal.

    Line breaks are escaped too: otherwise an error could add lines that look like Penstock's own.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    if character == "\n":
        return "\\n"
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def console(width: int | None = None) -> Console:
    """Return a rich console on standard output."""
    # Imported here because importing rich takes 100 ms.
    from rich.console import Console

    return Console(width=width, highlight=False, soft_wrap=False)


def plural(n: int, word: str, many: str | None = None) -> str:
    """Return a count with its noun: `1 run`, `2,000 runs`."""
    return f"{n:,} {word if n == 1 else many or word + 's'}"


def format_share(share: float, decimals: int = 0) -> str:
    """Return a fraction as a percentage: `97.5 %`."""
    return f"{100 * share:.{decimals}f} %"


def first_line(text: str | None, limit: int = 80) -> str:
    """Return the first line of a text, cut to `limit` characters."""
    line = (text or "").strip().splitlines()[0] if (text or "").strip() else ""
    return line if len(line) <= limit else line[: limit - 1] + "…"


def error_message(details: Any) -> str:
    """Return the message in error details; empty if there are none."""
    if isinstance(details, dict) and "message" in details:
        return str(details["message"])
    if not details:
        return ""
    return details if isinstance(details, str) else json.dumps(details)


def error_text(error_type: str | None, error_class: str | None, details: Any = None) -> str:
    """Return an error in one line: `UNKNOWN, KeyError: 'cents'`; empty without an error type."""
    if error_type is None:
        return ""
    message = " ".join(error_message(details).split())
    named = ": ".join(part for part in (error_class, message) if part)
    return f"{error_type}, {named}" if error_class else ": ".join(filter(None, [error_type, named]))


def print_traceback(details: Any) -> None:
    """Print the traceback in error details, indented so that it cannot be mistaken for other
    output.
    """
    trace = details.get("traceback") if isinstance(details, dict) else None
    if isinstance(trace, str) and trace.strip():
        click.echo("Traceback")
        print_block(trace)


def print_block(text: str) -> None:
    """Print text of several lines from a user, each line escaped and indented."""
    for line in text.rstrip().splitlines():
        click.echo(f"  | {escape_control(line)}")


def _cell(text: str) -> str:
    # rich reads square brackets as markup: escape text from users before adding colours.
    from rich.markup import escape  # imported here because importing rich takes 100 ms

    return markup_state(text) if text in COLOURS else _first_word(text, escape(text))


def _first_word(text: str, escaped: str) -> str:
    """Colour a text that starts with a state, such as `FAILED dead`."""
    word = text.split(" ")[0]
    colour = COLOURS.get(word) if word.isupper() else None
    return f"[{colour}]{escaped}[/{colour}]" if colour else escaped
