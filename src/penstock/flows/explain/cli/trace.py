"""`penstock trace`: the whole path of one cause across phases, with what never happened."""

from __future__ import annotations

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.cli.backends.protocol import Shape


@click.command("trace", cls=Command)
@click.argument("cause", metavar="CORRELATION|FLOW|RUN")
@click.pass_obj
def trace(app: App, cause: str) -> None:
    """Follow one cause: what happened, in order, and what never did.

    Takes a correlation id, or any flow or run that the cause set off.
    """
    with app.use_cases() as cases:
        found = cases.flows.trace(cause)
    app.emit(found, lambda: print_trace(found))


def print_trace(found: Shape) -> None:
    """A trace as people read it."""
    click.secho(f"correlation {output.printable(found['correlation_id'])}", bold=True)
    for flow in found["flows"]:
        about = (flow["customer_id"], flow["pipeline_template"], flow["partition"], flow["mode"])
        name = " · ".join([*about, f"generation {flow['generation']}"])
        click.echo(f"  {flow['flow_id']}  {flow['state']:<9}  {output.printable(name)}")
    click.echo("What happened")
    for step in found["steps"]:
        at = output.when(output.micros(step["at"]))
        run = f"  {step['run_id']}" if step["run_id"] else ""
        click.echo(f"  {at}  {step['kind']:<9}  {output.printable(step['text'])}{run}")
    if found["never"]:
        click.echo("What has not happened")
        for absence in found["never"]:
            click.echo(f"  {output.printable(absence['text'])}")
