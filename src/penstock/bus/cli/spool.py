"""`penstock spool`: list and deliver the events that a spooling producer keeps on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Group
from penstock.core.errors import NotFound

FOLDER = click.argument("folder", type=click.Path(file_okay=False, path_type=Path))


@click.group(cls=Group)
def spool() -> None:
    """List and deliver events spooled on disk."""


@spool.command("list")
@FOLDER
@click.option("--rejected", is_flag=True, help="List the events that the server rejected instead.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True,
              help="Maximum number of rows.")  # fmt: skip
@click.pass_obj
def list_(app: App, folder: Path, rejected: bool, limit: int) -> None:
    """List undelivered events in FOLDER, oldest first."""
    # Imported here because --help does not need it.
    from penstock.remote.spool import rejected_events, waiting_events

    _check(folder)
    events = list(rejected_events(folder) if rejected else waiting_events(folder))
    shown = [_row(one) for one in events[:limit]]
    record = {"items": shown, "total": len(events)}

    def print_text() -> None:
        if not events:
            app.hint("No events were rejected." if rejected else "The spool is empty.")
            return
        output.print_table(
            ("EVENT", "KIND", "SPOOLED", "ABOUT", "ERROR"),
            [
                (one["event_id"], one["kind"], output.format_time(one["spooled_at_us"]),
                 one["about"], one["error"] or "-")
                for one in shown
            ],
        )  # fmt: skip
        if len(events) > limit:
            app.hint(f"and {len(events) - limit:,} more; raise --limit to list them")
        if not rejected:
            app.hint(f"Deliver them: penstock spool flush {folder}")

    app.emit(record, print_text)


@spool.command("flush")
@FOLDER
@click.pass_obj
def flush(app: App, folder: Path) -> None:
    """Deliver the events in FOLDER, in order, without duplicates.

    Exits with 5 if the server cannot be reached, and with 1 if it rejected an event.
    """
    # Imported here because --help does not need it.
    from penstock.remote.producer import SpoolingProducer

    _check(folder)
    with app.connect() as client, SpoolingProducer(client, folder) as producer:
        done = producer.flush()
    record = {
        "delivered": done.delivered,
        "rejected": done.rejected,
        "waiting": done.waiting,
        "error": done.error,
    }

    def print_text() -> None:
        click.echo(f"{output.plural(done.delivered, 'event')} delivered, {done.waiting:,} waiting")
        if done.rejected:
            refused = output.plural(done.rejected, "event")
            app.hint(f"{refused} rejected: penstock spool list {folder} --rejected")
        if done.error:
            app.hint(f"Stopped: {done.error} Run the command again later.")

    app.emit(record, print_text)
    if done.error or done.rejected:
        raise click.exceptions.Exit(5 if done.error else 1)


def _check(folder: Path) -> None:
    if not folder.is_dir():
        raise NotFound("spool", str(folder))


def _row(event: Any) -> dict[str, Any]:
    given = event.arguments
    about = given.get("topic") or given.get("run_id")
    if about is None:
        inner = given.get("submission") or given.get("report") or {}
        about = inner.get("processor_name") or inner.get("pipeline_template")
    return {
        "event_id": event.event_id,
        "kind": event.kind,
        "spooled_at_us": event.spooled_at,
        "about": about,
        "error": event.error,
    }
