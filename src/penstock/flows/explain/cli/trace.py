"""`penstock trace`: show everything that one cause started, and the missing steps."""

from __future__ import annotations

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.flows.explain.records import FlowTrace


@click.command("trace", cls=Command)
@click.argument("cause", metavar="ID")
@click.pass_obj
def trace(app: App, cause: str) -> None:
    """Show everything that one cause started, and the expected steps that have not happened.

    ID is a correlation id, or any id that belongs to the cause: a flow, a run, a message, a dead
    letter, or the id that another system gave to a report or message. Events are listed in order,
    followed by what was expected and has not happened.
    """
    with app.connect() as client:
        found = client.diagnostics.trace(cause)
    app.emit(found, lambda: print_trace(found))


def print_trace(found: FlowTrace) -> None:
    """Print a trace as text."""
    click.secho(f"correlation {output.escape_control(found.correlation_id)}", bold=True)
    click.echo(output.escape_control(found.summary))
    for flow in found.flows:
        about = (flow.customer, flow.pipeline, flow.partition, flow.mode)
        name = " · ".join([*about, f"generation {flow.generation}"])
        click.echo(f"  {flow.flow_id}  {flow.state:<9}  {output.escape_control(name)}")
    click.echo("Events")
    for step in found.steps:
        at = output.format_time(step.at)
        run = f"  {step.run_id}" if step.run_id else ""
        click.echo(f"  {at}  {step.kind:<11}  {output.escape_control(step.text)}{run}")
    if found.missing:
        click.echo("Not happened yet")
        for absence in found.missing:
            click.echo(f"  {output.escape_control(absence.text)}")
