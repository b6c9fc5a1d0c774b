"""`penstock explain`: what a flow decided, when and why, on what evidence, and possible actions."""

from __future__ import annotations

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.cli.arguments import FLOW_PREFIX, flow_id, missing_partition_error
from penstock.flows.explain.records import FlowExplanation

COLOURS = {
    "complete": "green", "degraded": "yellow", "running": "cyan", "waiting": "yellow",
    "blocked": "red", "failed": "red",
}  # fmt: skip


@click.command("explain", cls=Command)
@click.argument("pipeline", metavar="PIPELINE|FLOW")
@click.argument("partition", required=False)
@click.option("--customer", metavar="ID", help="Customer id. Defaults to `default`.")
@click.option("--mode", metavar="NAME", help="Mode of the flow; any mode if omitted.")
@click.option("--generation", type=click.IntRange(1), metavar="N",
              help="Generation of the flow; the newest if omitted.")  # fmt: skip
@click.option("--brief", is_flag=True, help="Print one line per phase.")
@click.pass_obj
def explain(
    app: App,
    pipeline: str,
    partition: str | None,
    *,
    customer: str | None,
    mode: str | None,
    generation: int | None,
    brief: bool,
) -> None:
    """Explain what a flow decided, what it waits for and what you can do.

    For example `penstock explain nba 2025-12-31`, or by id: `penstock explain flow_7h2kq0v3`.
    """
    with app.connect() as client:
        if partition is None and pipeline.startswith(FLOW_PREFIX):
            explanation = client.diagnostics.explain_flow(flow_id(pipeline))
        elif partition is None:
            raise missing_partition_error(pipeline)
        else:
            explanation = client.diagnostics.explain(
                pipeline, partition, customer=customer, mode=mode, generation=generation
            )
    app.emit(explanation, lambda: print_explanation(explanation, brief=brief))


def print_explanation(
    explanation: FlowExplanation, *, brief: bool = False, with_actions: bool = True
) -> None:
    """Print an explanation as text; `brief` prints one line per phase."""
    click.secho(output.escape_control(explanation.title), bold=True)
    if not brief or not explanation.phases:
        click.echo(f"  {output.escape_control(explanation.summary)}")
    width = max((len(story.phase) for story in explanation.phases), default=0)
    for story in explanation.phases:
        word = click.style(f"{story.word:<13}", fg=COLOURS.get(story.word))
        rest = output.escape_control(f"{story.count:<5}{story.headline}")
        click.echo(f"  {output.escape_control(story.phase):<{width}}  {word}  {rest}".rstrip())
        for sentence in () if brief else story.sentences:
            click.echo(f"      {output.escape_control(sentence)}")
    if explanation.actions and with_actions:
        click.echo("What you can do:")
        for action in explanation.actions:
            click.echo(f"  {output.escape_control(action.does)}:")
            click.echo(f"    {output.escape_control(action.command)}")
