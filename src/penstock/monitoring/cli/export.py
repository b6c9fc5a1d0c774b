"""`penstock export`: history as CSV or Parquet, streamed page by page."""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.cli.arguments import parse_when
from penstock.core.errors import InvalidInput
from penstock.core.records.record import time_or_none
from penstock.monitoring.exports.columns import COLUMNS

ROWS = 1_000
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@click.command("export", cls=Command)
@click.argument("kind", type=click.Choice(sorted(COLUMNS)))
@click.option("--format", "form", type=click.Choice(["csv", "parquet"]), default="csv",
              show_default=True, help="Format of the file.")  # fmt: skip
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path),
              help="File to write; standard output for CSV when omitted.")  # fmt: skip
@click.option("--since", metavar="WHEN", help="Only rows at or after this ISO time or age (7d).")
@click.option("--until", metavar="WHEN", help="Only rows before this ISO time or age.")
@click.option("--customer", metavar="ID", help="Only rows of this customer.")
@click.pass_obj
def export(app: App, /, kind: Any, form: str, file: Path | None, **given: Any) -> None:
    """Export ended runs, flows, journal entries or executions.

    Rows are streamed in pages of 1,000. In CSV, cells that a spreadsheet would interpret as a
    formula are prefixed with an apostrophe. Parquet needs the package duckdb.
    """
    if form == "parquet" and file is None:
        raise InvalidInput("--file", "a file for Parquet", None)
    with app.connect() as client:
        now = client.now()
        span = {
            name: time_or_none(parse_when(given[name], f"--{name}", now))
            for name in ("since", "until")
        }

        def pages() -> Iterator[list[list[Any]]]:
            cursor: str | None = None
            while True:
                page = client.exports.page(
                    kind, customer=given["customer"], limit=ROWS, cursor=cursor, **span
                )
                yield page.rows
                cursor = page.next_cursor
                if cursor is None:
                    return

        names = [name for name, _ in COLUMNS[kind]]
        if file is None:
            _write_csv(sys.stdout, names, pages())
            return
        part = file.with_name(file.name + ".part")
        if form == "parquet":
            count = _to_parquet(part, kind, pages())
        else:
            count = _to_csv(part, names, pages())
        part.replace(file)
    record = {"file": str(file), "rows": count, "columns": names}
    app.emit(record, lambda: click.echo(f"{output.plural(count, 'row')} written to {file}"))


def _to_csv(path: Path, names: list[str], pages: Iterator[list[list[Any]]]) -> int:
    with path.open("w", newline="", encoding="utf-8") as stream:
        return _write_csv(stream, names, pages)


def _write_csv(
    stream: IO[str], names: list[str], pages: Iterator[list[list[Any]]], *, is_plain: bool = False
) -> int:
    writer = csv.writer(stream)
    writer.writerow(names)
    count = 0
    for rows in pages:
        writer.writerows([_cell(value, is_plain=is_plain) for value in row] for row in rows)
        count += len(rows)
    return count


def _cell(value: Any, *, is_plain: bool) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and not is_plain and value.startswith(_FORMULA):
        return "'" + value
    return value


def _to_parquet(path: Path, kind: Any, pages: Iterator[list[list[Any]]]) -> int:
    """Write typed columns through a CSV file next to the target, which is read as a stream."""
    # Imported here because only Parquet needs it.
    from penstock.assembly.parquet import to_parquet

    forms = dict(COLUMNS[kind])
    parent = path.resolve().parent
    with tempfile.TemporaryDirectory(dir=parent, prefix=".export-") as folder:
        text = Path(folder) / "rows.csv"
        with text.open("w", newline="", encoding="utf-8") as stream:
            count = _write_csv(stream, list(forms), pages, is_plain=True)
        to_parquet(text, path, forms)
    return count
