"""Results as rows for other programs: tables of chosen columns, CSV, JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from penstock.cli.output import print_table
from penstock.core.errors import InvalidInput
from penstock.core.fields import did_you_mean
from penstock.core.records.record import Page, to_json_value

R = TypeVar("R")
PAGE_MAX = 1_000


def collect(read: Callable[[int, str | None], Page[R]], limit: int) -> Page[R]:
    """Read pages until there are `limit` rows; `read` takes the size of a page and a cursor."""
    found = read(min(limit, PAGE_MAX), None)
    items, following = list(found.items), found.next_cursor
    while following is not None and len(items) < limit:
        found = read(min(limit - len(items), PAGE_MAX), following)
        items += found.items
        following = found.next_cursor
    return Page(items=items, next_cursor=following)


def write_rows(value: Any, form: str, columns: str | None) -> None:
    """Print a result in one of the formats table, csv and jsonl; a page has a row per item."""
    shown = to_json_value(value)
    rows = shown["items"] if isinstance(value, Page) else shown
    rows = rows if isinstance(rows, list) else [rows]
    rows = [row if isinstance(row, dict) else {"value": row} for row in rows]
    names = _names(rows, columns)
    if columns is not None:
        rows = [{name: row.get(name) for name in names} for row in rows]
    if form == "jsonl":
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False))
    elif form == "csv":
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([[_cell(row.get(name)) for name in names] for row in rows])
        click.echo(lines.getvalue(), nl=False)
    else:
        heads = [name.upper().replace("_", " ") for name in names]
        print_table(heads, [[_cell(row.get(name)) for name in names] for row in rows])


def _names(rows: list[dict[str, Any]], columns: str | None) -> list[str]:
    """Return the chosen columns, or all fields in order; raise InvalidInput for an unknown one."""
    known = list(dict.fromkeys(name for row in rows for name in row))
    if columns is None:
        return known
    chosen = [name.strip() for name in columns.split(",") if name.strip()]
    for name in chosen:
        if rows and name not in known:
            meant = did_you_mean(name.lower(), known)
            raise InvalidInput("columns", f"columns from {', '.join(known)}", name, meant)
    return chosen


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else value
