"""`penstock items`: count, list and retry the items of a flow."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli import output
from penstock.cli.app import App, Group, dry_run_option
from penstock.cli.arguments import FLOW
from penstock.cli.rows import collect
from penstock.flows.items.records import ItemRetry, ItemsRetried, ItemSummary

LIMIT = click.IntRange(1, 10_000)
STATES = ("waiting", "running", "succeeded", "partial", "failed")


@click.group(cls=Group)
def items() -> None:
    """Count, list and retry the items of a flow."""


@items.command("list")
@click.argument("flow_id", type=FLOW)
@click.option("--processor", metavar="NAME", help="Only items of this processor.")
@click.option(
    "--state",
    type=click.Choice(STATES, case_sensitive=False),
    metavar="STATE",
    help=f"One of {', '.join(STATES)}.",
)
@click.option("--limit", type=LIMIT, default=50, show_default=True, help="Maximum number of rows.")
@click.pass_obj
def list_(app: App, /, flow_id: str, **given: Any) -> None:
    """List the items of a flow by processor and key, each with its latest run."""
    limit = given.pop("limit")
    with app.connect() as client:
        page = collect(
            lambda n, cursor: client.items.list(flow_id, **given, limit=n, cursor=cursor), limit
        )
        now = client.now()
    app.emit_page(
        page,
        {
            "ITEM": lambda item: item.item_key,
            "STATE": lambda item: item.state,
            "PHASE": lambda item: item.phase,
            "PROCESSOR": lambda item: item.processor,
            "RUN": lambda item: item.run_id,
            "SINCE": lambda item: output.format_time_short(item.since, now),
            "ERROR": lambda item: item.error_type,
        },
        empty="No items match."
        if any(given.values())
        else "This flow has no items. A processor has items if it is declared with each=...",
    )


@items.command("show")
@click.argument("flow_id", type=FLOW)
@click.pass_obj
def show(app: App, flow_id: str) -> None:
    """Count the items of a flow by processor, with the first failures."""
    with app.connect() as client:
        page = client.items.summary(flow_id)
    app.emit(page, lambda: _print_summaries(page.items, flow_id))


def _print_summaries(found: list[ItemSummary], flow_id: str) -> None:
    if not found:
        click.echo("This flow has no items. A processor has items if it is declared with each=...")
    for one in found:
        click.echo(click.style(f"{one.phase}/{one.processor}", bold=True))
        left = one.total - one.succeeded - one.partial - one.failed
        output.print_facts(
            [
                ("state", one.state),
                ("items", f"{one.total:,}"),
                ("runs created", f"{one.created:,}"),
                ("succeeded", f"{one.succeeded:,}"),
                ("in part", f"{one.partial:,}" if one.partial else None),
                ("failed", f"{one.failed:,}"),
                ("not ended", f"{left:,}"),
                ("required", f"{one.required:,}"),
                ("error", one.error),
                ("kinds of errors", ", ".join(f"{e.error_type} {e.count:,}" for e in one.errors)),
            ]
        )
        for item in one.first_failures:
            click.echo(
                f"  {output.escape_control(item.item_key)}  {item.error_type or ''}  {item.run_id}"
            )
        if one.failed:
            retry = f"penstock items retry {flow_id} --processor {one.processor}"
            click.echo(f"Run the failed ones again: {retry}")


@items.command("retry")
@click.argument("flow_id", type=FLOW)
@click.argument("keys", nargs=-1, metavar="[ITEM]...")
@click.option(
    "--processor", metavar="NAME", help="Processor of the items; required if there are several."
)
@click.option(
    "--match", metavar="PATTERN", help="Only failed items whose key matches, such as 2025-*."
)
@click.option("--error-type", metavar="KIND", help="Only items that failed with this error.")
@dry_run_option
@click.pass_obj
def retry(
    app: App,
    flow_id: str,
    keys: tuple[str, ...],
    processor: str | None,
    match: str | None,
    error_type: str | None,
) -> None:
    """Run items again: the named ones, the failed ones that match, or all failed ones.

    Each item gets new attempts; its dead letter is closed. Items whose run has not ended are
    skipped.
    """
    request = ItemRetry(processor=processor, items=list(keys), match=match, error_type=error_type)
    with app.connect() as client:
        done = client.items.retry(flow_id, request)
        while done.has_more and not app.is_dry_run:
            more = client.items.retry(flow_id, request)
            done = ItemsRetried(
                flow_id=done.flow_id,
                run_ids=[*done.run_ids, *more.run_ids],
                items=[*done.items, *more.items],
                has_more=more.has_more,
            )
    app.emit(done, lambda: _print_retried(done))


def _print_retried(done: ItemsRetried) -> None:
    count = output.plural(len(done.items), "item")
    if not done.items:
        click.echo("No failed items match; nothing to retry.")
        return
    more = " or more" if done.has_more else ""
    click.echo(f"{count}{more} will run again.")
    for key in done.items[:5]:
        click.echo(f"  {output.escape_control(key)}")
    if len(done.items) > 5:
        click.echo(f"  and {len(done.items) - 5:,} more")
    click.echo(f"See them: penstock items list {done.flow_id} --state waiting")
