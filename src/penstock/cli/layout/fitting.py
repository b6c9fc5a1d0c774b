"""Fit a table into a terminal without cutting the values that people read or copy exactly.

Whether a text may be cut follows from its form. States, times, partitions, ids, numbers, cron
expressions and commands are never cut, nor is a short text. A row that is still too long is printed
on as few lines as possible: the terminal wraps it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

GAP: Final = 2
"""Spaces between two columns of a table; a single one if that makes the table fit."""
TEXT_MIN: Final = 20
"""Length to which a text may be cut."""
EMPTY: Final = "-"
_HINT: Final = re.compile(r"(?<=\dZ) \((?:in [^()]+|[^()]+ ago|now)\)")
_CODE: Final = re.compile(r"[A-Z][A-Z0-9_]+(?![^\s,:(])")
_WHOLE: Final = re.compile(
    r"""
      \d[\d-]*[ ]\d\d:\d\d\S*          # time: 2026-11-20 05:00:00Z, 11-20 05:00Z
    | [\d+.-]\S*                       # number, partition, date
    | [a-z]{2,6}_[0-9a-z]{8,13}        # id
    | [0-9a-f]{8}(?:-[0-9a-f]{4,12}){4}
    | [A-Z][A-Z0-9_]+(?:[ ]\S+)?       # state or error type, with a qualifier: FAILED dead
    | (?:[\dA-Z*][\dA-Z*/,#?-]*[ ]){4,5}[\dA-Z*][\dA-Z*/,#?-]*(?:[ ]\S+)?  # cron, with its zone
    | penstock[ ].*                    # command
    """,
    re.VERBOSE,
)

Cells = list[list[str]]


class FittedTable(NamedTuple):
    """The columns and cells to print, and the number of spaces between two columns."""

    columns: list[str]
    rows: Cells
    gap: int = GAP


def fit_table(
    columns: Sequence[str], rows: Cells, width: int, secondary: Sequence[str] = ()
) -> FittedTable:
    """Return the table to print on lines of this width.

    As far as necessary, this omits the relative hints after times, then the columns without
    values, then the ends of long texts, the longest first, then a space between the columns, and
    the columns named in `secondary`, the first one first.
    """
    whole = FittedTable(list(columns), rows)
    if _length(whole) <= width:
        return whole
    whole = whole._replace(rows=[[_HINT.sub("", text) for text in row] for row in rows])
    if _length(whole) <= width:
        return whole
    used = [n for n in range(len(columns)) if any(row[n] != EMPTY for row in rows)]
    whole = _only(whole, used) if used else whole
    for table in _narrowed(whole, secondary):
        if _length(table, is_least=True) <= width:
            return _cut_to(table, width)
    lines = -(-_length(whole, is_least=True) // width)
    return _cut_to(whole, lines * width)


def _narrowed(table: FittedTable, secondary: Sequence[str]) -> Iterator[FittedTable]:
    """Yield the table, then ever narrower forms of it."""
    for count in range(len(secondary) + 1):
        shown = _without(table, secondary[:count])
        yield shown
        yield shown._replace(gap=1)


def _without(table: FittedTable, omitted: Sequence[str]) -> FittedTable:
    return _only(table, [n for n, name in enumerate(table.columns) if name not in omitted])


def _only(table: FittedTable, kept: Sequence[int]) -> FittedTable:
    return table._replace(
        columns=[table.columns[n] for n in kept],
        rows=[[row[n] for n in kept] for row in table.rows],
    )


def least_length(text: str) -> int:
    """Return the length to which a text may be cut; its whole length if it must not be cut."""
    if len(text) <= TEXT_MIN or _WHOLE.fullmatch(text):
        return len(text)
    # An error starts with its type, which stays whole: "CODE_ERROR, KeyError: 'cents'".
    code = _CODE.match(text)
    return min(len(text), max(TEXT_MIN, code.end() + 2 if code else 0))


def _cut_to(table: FittedTable, length: int) -> FittedTable:
    """Cut the longest texts until a row has at most this length."""
    widths, least = _widths(table), _widths(table, is_least=True)
    over = _length(table) - length
    while over > 0:
        spare = {n: widths[n] - least[n] for n in range(len(widths)) if widths[n] > least[n]}
        if not spare:
            break
        widest = max(spare, key=lambda n: widths[n])
        others = [widths[n] for n in spare if n != widest]
        cut = min(over, spare[widest], max(1, widths[widest] - max(others, default=0)))
        widths[widest] -= cut
        over -= cut
    return table._replace(
        rows=[[_cut(text, widths[n]) for n, text in enumerate(row)] for row in table.rows]
    )


def _widths(table: FittedTable, *, is_least: bool = False) -> list[int]:
    measure = least_length if is_least else len
    return [
        max([len(name), *(measure(row[n]) for row in table.rows)])
        for n, name in enumerate(table.columns)
    ]


def _length(table: FittedTable, *, is_least: bool = False) -> int:
    """Return the length of a row; with `is_least`, after cutting every text that may be cut."""
    return sum(_widths(table, is_least=is_least)) + table.gap * (len(table.columns) - 1)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
