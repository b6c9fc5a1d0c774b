"""`penstock explain`: what a flow decided, when, why, on what evidence, and what to do about it."""

from __future__ import annotations

import click

from penstock.cli import output
from penstock.cli.app import App, Command
from penstock.cli.arguments import FLOW_PREFIX, flow_id, no_partition
from penstock.cli.backends.protocol import Shape
from penstock.cli.backends.protocol_flows import Place

COLOURS = {
    "complete": "green", "degraded": "yellow", "running": "cyan", "waiting": "yellow",
    "blocked": "red", "failed": "red",
}  # fmt: skip


@click.command("explain", cls=Command)
@click.argument("pipeline", metavar="PIPELINE|FLOW")
@click.argument("partition", required=False)
@click.option("--customer", metavar="ID", help="Whose; the default customer unless said.")
@click.option("--mode", metavar="NAME", help="In this mode; the newest flow unless said.")
@click.option("--generation", type=click.IntRange(1), metavar="N",
              help="This generation; the newest unless said.")  # fmt: skip
@click.option("--brief", is_flag=True, help="One line per phase.")
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
    """Explain a flow: what was decided, why, what is awaited, what to do.

    For example `penstock explain nba 2025-12-31`, or by id: `penstock explain flow_7h2kq0v3`.
    """
    with app.use_cases() as cases:
        if partition is None and pipeline.startswith(FLOW_PREFIX):
            told = cases.flows.explain_flow(flow_id(pipeline))
        elif partition is None:
            raise no_partition(pipeline)
        else:
            place = Place(pipeline=pipeline, partition=partition, customer=customer, mode=mode,
                          generation=generation)  # fmt: skip
            told = cases.flows.explain(place)
    app.emit(told, lambda: print_explanation(told, brief=brief))


def print_explanation(told: Shape, *, brief: bool = False) -> None:
    """An explanation as people read it."""
    click.secho(output.printable(told["title"]), bold=True)
    if not brief or not told["phases"]:
        click.echo(f"  {output.printable(told['summary'])}")
    width = max((len(story["phase"]) for story in told["phases"]), default=0)
    for story in told["phases"]:
        word = click.style(f"{story['word']:<13}", fg=COLOURS.get(story["word"]))
        rest = output.printable(f"{story['count']:<5}{story['headline']}")
        click.echo(f"  {output.printable(story['phase']):<{width}}  {word}  {rest}".rstrip())
        for sentence in () if brief else story["sentences"]:
            click.echo(f"      {output.printable(sentence)}")
    if told["actions"]:
        click.echo("What you can do:")
        for action in told["actions"]:
            click.echo(f"  {output.printable(action['does'])}:")
            click.echo(f"    {output.printable(action['command'])}")
