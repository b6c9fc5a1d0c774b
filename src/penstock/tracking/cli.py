"""`penstock executions` and `penstock find`."""

from __future__ import annotations

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.core.clock import SECOND
from penstock.tracking.records import Execution, SearchResult


@click.command("executions", cls=Command)
@click.argument("cause", metavar="ID")
@click.option("--status", type=click.Choice(["completed", "failed", "skipped"]),
              help="Only executions with this status.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, show_default=True,
              help="Maximum number of rows.")  # fmt: skip
@click.option("--cursor", metavar="TEXT", help="Continue after the previous page.")
@click.pass_obj
def executions(app: App, cause: str, status: str | None, limit: int, cursor: str | None) -> None:
    """List all executions that belong to one cause, newest first.

    ID is a correlation id, a flow, a run, a message, a dead letter, or an id that another system
    gave to a report or message. Executions are runs, external reports, evaluations of gates that
    started nothing, and deliveries of messages.
    """
    with app.connect() as client:
        page = client.tracking.executions(cause, status=status, limit=limit, cursor=cursor)  # type: ignore[arg-type]
    app.emit_page(
        page,
        {
            "ENDED": lambda one: output.format_time(one.completed_at),
            "EXECUTION": lambda one: one.execution_id,
            "STATUS": lambda one: one.status,
            "PHASE": lambda one: one.phase,
            "PROCESSOR": lambda one: one.processor,
            "SERVICE": lambda one: one.service,
            "TOOK": _took,
            "SOURCE": lambda one: one.source_execution_id or one.trigger_source,
            "REASON": _reason,
        },
        empty="No executions yet; see penstock trace.",
    )


def _took(row: Execution) -> str:
    spent = row.duration_seconds
    return output.format_span(None if spent is None else round(spent * SECOND))


def _reason(row: Execution) -> str:
    if row.status == "skipped" and row.missing:
        return f"waited for {', '.join(row.missing)}"
    if row.status == "skipped" and row.outcome is not None:
        return row.outcome
    return output.first_line(": ".join(part for part in (row.error_type, row.error) if part))


@click.command("find", cls=Command)
@click.argument("text", metavar="TEXT", nargs=-1, required=True)
@click.option("--kind", "kinds", multiple=True, metavar="KIND",
              help="Only objects of this kind; may be repeated.")  # fmt: skip
@click.option("--customer", metavar="ID", help="Only objects of this customer.")
@click.pass_obj
def find(app: App, text: tuple[str, ...], kinds: tuple[str, ...], customer: str | None) -> None:
    """Find an object by a fragment of its id, a message id, an entity, a customer or a name.

    Four characters of an id are enough. `penstock find nba 2025-12-31` finds the flows of a
    partition, `penstock find players:1630567` an entity.
    """
    with app.connect() as client:
        found = client.tracking.find(
            " ".join(text), kinds=",".join(kinds) or None, customer=customer
        )
    app.emit(found, lambda: print_found(found))


def print_found(found: SearchResult) -> None:
    """Print the results of a search."""
    if not found.items:
        click.echo(f"Nothing matches {output.escape_control(found.q)}.")
        click.echo("Find older objects by their complete id, and entities with --customer.")
        return
    rows = [
        [one.kind, one.id, one.customer or "", one.state or "", one.name, one.command]
        for one in found.items
    ]
    columns = ("KIND", "ID", "CUSTOMER", "STATE", "NAME", "COMMAND")
    output.print_table(columns, rows, secondary=["ID"])  # a command contains the id
    if found.has_more:
        click.echo("More objects match: enter a longer text, or choose a --kind.")
