"""`penstock entity`: show how far the changes of an entity have progressed."""

from __future__ import annotations

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.flows.explain.records import EntityTrail


@click.command("entity", cls=Command)
@click.argument("entity", metavar="KIND:ID")
@click.option("--partition", metavar="TEXT", help="Only flows of this partition.")
@click.option("--pipeline", metavar="NAME", help="Only flows of this pipeline.")
@click.option(
    "--customer", metavar="ID", help="Customer that owns the flows. Defaults to `default`."
)
@click.option("--limit", type=click.IntRange(1, 50), default=20, show_default=True,
              help="Maximum number of flows to show.")  # fmt: skip
@click.pass_obj
def entity(
    app: App, entity: str, partition: str | None, pipeline: str | None, customer: str | None,
    limit: int,
) -> None:  # fmt: skip
    """Show how far the changes of an entity have progressed, phase by phase.

    Processors report which entities they changed. The newest flows that reported this one are
    listed with what each later phase did with the change.
    """
    with app.connect() as client:
        found = client.diagnostics.entity(
            entity, partition=partition, pipeline=pipeline, customer=customer, limit=limit
        )
    app.emit(found, lambda: print_trail(found))


def print_trail(found: EntityTrail) -> None:
    """Print how far the changes of an entity have progressed."""
    if not found.flows:
        click.echo(f"No report names {output.escape_control(found.entity)}.")
        click.echo("Processors report changes with run.entities(kind, ids).")
    for flow in found.flows:
        about = (flow.pipeline, flow.partition, flow.mode)
        name = " · ".join(output.escape_control(part) for part in about if part)
        click.secho(
            f"{flow.flow_id or 'run outside a flow'}  {flow.state or ''}  {name}", bold=True
        )
        width = max((len(one.phase) for one in flow.phases), default=0)
        for one in flow.phases:
            click.echo(f"  {one.phase:<{width}}  {one.outcome:<12}  {one.text}")
        click.echo(f"  {output.escape_control(flow.text)}")
    if found.has_more:
        click.echo("Older flows are not shown; raise --limit or name a --partition.")
