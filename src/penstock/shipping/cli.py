"""`penstock sink` and `penstock query`: ship the logs to the audit sink, and read it."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import click

from penstock.assembly.audit_sink import build_query_bounds, query_sink, ship_once, sink_name
from penstock.cli import output
from penstock.cli.app import App, Command, Group
from penstock.cli.arguments import confirm
from penstock.shipping.records import SinkStatus

SECONDS_MAX = 600


@click.group(cls=Group)
def sink() -> None:
    """Ship the journal and the logs to the audit sink; show the progress."""


@sink.command()
@click.pass_obj
def status(app: App) -> None:
    """Show how far the logs have been shipped, and the backlog."""
    name = sink_name(app.settings())
    with app.connect() as client:
        found = client.audit_sinks.status(name)
        now = client.now()
    app.emit(found, lambda: _print_status(found, now))


def _print_status(found: SinkStatus, now: int) -> None:
    click.echo(f"{found.sink}  {output.plural(found.backlog, 'row')} to ship")
    output.print_table(
        ("LOG", "BATCHES", "ROWS", "BACKLOG", "OLDEST", "SHIPPED", "ERROR"),
        [
            (
                one.relation,
                one.batches,
                f"{one.rows:,}",
                f"{one.backlog:,}",
                output.format_time_short(one.oldest_at, now),
                output.format_time_short(one.shipped_at, now),
                output.first_line(one.error or "", 60),
            )
            for one in found.logs
        ],
    )


@sink.command()
@click.pass_obj
def ship(app: App) -> None:
    """Ship everything that can be shipped now, then exit.

    The shipper of `penstock up` does the same continuously. The newest rows follow in a later call:
    a log is shipped up to the oldest open transaction.
    """
    settings = app.database_settings()
    with app.client(settings) as client:
        found = ship_once(client.store, settings)
    rows, batches = (
        output.plural(found.rows, "row"),
        output.plural(found.batches, "batch", "batches"),
    )
    record = {"sink": sink_name(settings), "rows": found.rows, "batches": found.batches,
              "error": found.error}  # fmt: skip
    app.emit(record, lambda: click.echo(found.error or f"{rows} in {batches} shipped"))
    if found.error:
        raise click.exceptions.Exit(1)


@sink.command()
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@click.pass_obj
def reset(app: App, yes: bool) -> None:
    """Reset the progress of the sink, so that everything still stored is shipped again.

    Use this after losing a sink. Start with an empty folder: a sink with other batches is rejected.
    """
    name = sink_name(app.settings())
    if not yes:
        confirm(f"Ship everything to {name} again?")
    with app.client() as client:
        count = client.audit_sinks.reset(name)
    record = {"sink": name, "logs": count}
    app.emit(record, lambda: click.echo(f"{output.plural(count, 'log')} will be shipped again"))


@click.command("query", cls=Command)
@click.argument("text", metavar="SELECT")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=1_000, show_default=True,
              help="Maximum number of rows.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(0.1, SECONDS_MAX), default=30.0, show_default=True,
              metavar="SECONDS", help="Time limit of the query.")  # fmt: skip
@click.option("--memory", type=click.IntRange(64, 65_536), default=512, show_default=True,
              metavar="MB", help="Memory limit of a query over files.")  # fmt: skip
@click.option("--max-bytes", metavar="SIZE",
              help="Maximum bytes that BigQuery may bill for the query, such as 500MB; "
                   "defaults to the limit in the sink's address.")  # fmt: skip
@click.pass_obj
def query(
    app: App, text: str, limit: int, timeout: float, memory: int, max_bytes: str | None
) -> None:
    """Execute one SELECT over the audit sink: journal, history and the logs of flows.

    The views are journal, history, execution_log, dependency_check_log, phase_completion_log and
    config_audit; each has a column `date`. Nothing else can be read, and nothing can be changed.
    """
    bounds = build_query_bounds(limit, timeout, memory, max_bytes)
    found = query_sink(app.settings(), text, bounds)
    rows = [[_plain(value) for value in row] for row in found.rows]
    record = {
        "columns": found.columns,
        "rows": rows,
        "is_truncated": found.is_truncated,
    }

    def print_text() -> None:
        output.print_table(found.columns, rows)
        if found.is_truncated:
            app.hint(f"Only the first {limit:,} rows are shown; raise --limit for more.")

    app.emit(record, print_text)


def _plain(value: Any) -> Any:
    """Return a DuckDB or BigQuery value, whose times are in UTC, as a JSON value."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat() + "Z"
    if isinstance(value, date):
        return value.isoformat()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
